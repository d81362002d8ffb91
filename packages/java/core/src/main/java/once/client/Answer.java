package once.client;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.net.ssl.SSLSession;

/** The last answer, as the caller wants its body, with its bytes. */
record Answer<T>(HttpResponse<byte[]> whole, T body) implements HttpResponse<T> {
    static <T> CompletionStage<HttpResponse<T>> of(HttpResponse<byte[]> whole, BodyHandler<T> handler) {
        BodySubscriber<T> subscriber = handler.apply(new ResponseInfo() {
            @Override
            public int statusCode() {
                return whole.statusCode();
            }

            @Override
            public HttpHeaders headers() {
                return whole.headers();
            }

            @Override
            public HttpClient.Version version() {
                return whole.version();
            }
        });
        AtomicBoolean given = new AtomicBoolean();
        subscriber.onSubscribe(new Flow.Subscription() {
            @Override
            public void request(long number) {
                if (!given.getAndSet(true)) {
                    if (whole.body().length > 0) {
                        subscriber.onNext(List.of(ByteBuffer.wrap(whole.body()).asReadOnlyBuffer()));
                    }
                    subscriber.onComplete();
                }
            }

            @Override
            public void cancel() {
                given.set(true);
            }
        });
        return subscriber.getBody().thenApply(body -> new Answer<>(whole, body));
    }

    @Override
    public int statusCode() {
        return whole.statusCode();
    }

    /** As it was sent, with its key. */
    @Override
    public HttpRequest request() {
        return whole.request();
    }

    @Override
    public Optional<HttpResponse<T>> previousResponse() {
        return Optional.empty();
    }

    @Override
    public HttpHeaders headers() {
        return whole.headers();
    }

    @Override
    public Optional<SSLSession> sslSession() {
        return whole.sslSession();
    }

    @Override
    public URI uri() {
        return whole.uri();
    }

    @Override
    public HttpClient.Version version() {
        return whole.version();
    }
}
