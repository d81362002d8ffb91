package once.client;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.Authenticator;
import java.net.CookieHandler;
import java.net.ProxySelector;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;

/**
 * The client's side: an {@link HttpClient} around another one that gives each POST and PATCH an Idempotency-Key unless it has one,
 * and repeats it with that, its bytes unchanged, until the answer says that repeating is of no use. What cannot be sent within the
 * deadline ends as it would without this: with the last answer, or the last error. A redirect is {@link Redirected}.
 *
 * <pre>
 * HttpClient client = OnceHttpClient.around(HttpClient.newHttpClient());
 * </pre>
 *
 * With a journal and a name (the header Once-Intent, which is not sent) the key is on disk before the first byte is sent, so that
 * a process that starts again goes on with the same key.
 */
public final class OnceHttpClient extends HttpClient {
    private final HttpClient inner;
    private final Retries retries;
    private final Journal journal;

    private OnceHttpClient(HttpClient inner, Retries retries, Journal journal) {
        this.inner = inner;
        this.retries = retries;
        this.journal = journal;
    }

    /** {@code inner} must not follow redirects, as it does not unless it is told to: a write is not for another address. */
    public static OnceHttpClient around(HttpClient inner) {
        if (inner.followRedirects() != Redirect.NEVER) {
            throw new IllegalArgumentException("a write must not follow redirects: build the inner client with Redirect.NEVER");
        }
        return new OnceHttpClient(inner, new Retries(), null);
    }

    public OnceHttpClient retries(Retries value) {
        return new OnceHttpClient(inner, value, journal);
    }

    public OnceHttpClient journal(Journal value) {
        return new OnceHttpClient(inner, retries, value);
    }

    /** The name of the gateway's problem in an answer, such as outcome-unknown; empty: it is none. */
    public static Optional<String> problem(HttpResponse<?> answer) {
        byte[] body = new byte[0];
        if (answer instanceof Answer<?> kept) {
            body = kept.whole().body();
        } else if (answer.body() instanceof byte[] bytes) {
            body = bytes;
        } else if (answer.body() instanceof String text) {
            body = text.getBytes(StandardCharsets.UTF_8);
        }
        return Optional.ofNullable(Intent.nameOf(Intent.problem(answer.statusCode(), answer.headers(), body)));
    }

    @Override
    public <T> HttpResponse<T> send(HttpRequest request, HttpResponse.BodyHandler<T> handler)
        throws IOException, InterruptedException {
        if (!Intent.concerns(retries, request)) {
            return inner.send(request, handler);
        }
        CompletableFuture<HttpResponse<T>> answer = sendAsync(request, handler);
        try {
            return answer.get();
        } catch (InterruptedException interrupted) {
            answer.cancel(true);
            throw interrupted;
        } catch (ExecutionException failed) {
            Throwable cause = failed.getCause();
            if (cause instanceof IOException lost) {
                throw lost;
            } else if (cause instanceof RuntimeException wrong) {
                throw wrong;
            } else if (cause instanceof Error error) {
                throw error;
            }
            throw new IOException(cause);
        }
    }

    @Override
    public <T> CompletableFuture<HttpResponse<T>> sendAsync(HttpRequest request, HttpResponse.BodyHandler<T> handler) {
        return sendAsync(request, handler, null);
    }

    /** With a journal, the file of the intent is written before this returns if the body is there already. */
    @Override
    public <T> CompletableFuture<HttpResponse<T>> sendAsync(HttpRequest request, HttpResponse.BodyHandler<T> handler,
        HttpResponse.PushPromiseHandler<T> pushed) {
        if (!Intent.concerns(retries, request)) {
            return inner.sendAsync(request, handler, pushed);
        }
        CompletableFuture<HttpResponse<T>> result = new CompletableFuture<>();
        bodyOf(request).thenCompose(body -> {
            try {
                Intent intent = new Intent(retries, journal, request, body);
                HttpRequest.Builder made = HttpRequest.newBuilder(request, (name, value) -> !name.equalsIgnoreCase(Intent.NAME))
                    .setHeader(Intent.KEY, intent.key);
                if (request.bodyPublisher().isPresent()) {
                    made.method(request.method(), HttpRequest.BodyPublishers.ofByteArray(body));
                }
                Attempts attempts = new Attempts(inner, intent, made.build());
                result.whenComplete((answer, error) -> attempts.end()); // cancelled by the caller
                return attempts.begin();
            } catch (IOException full) {
                return CompletableFuture.failedFuture(full);
            }
        }).thenCompose(whole -> Answer.of(whole, handler)).whenComplete((answer, error) -> {
            if (error == null) {
                result.complete(answer);
            } else {
                result.completeExceptionally(Attempts.causeOf(error));
            }
        });
        return result;
    }

    private static CompletableFuture<byte[]> bodyOf(HttpRequest request) {
        CompletableFuture<byte[]> body = new CompletableFuture<>();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        request.bodyPublisher().ifPresentOrElse(publisher -> publisher.subscribe(new Flow.Subscriber<>() {
            @Override
            public void onSubscribe(Flow.Subscription subscription) {
                subscription.request(Long.MAX_VALUE);
            }

            @Override
            public void onNext(ByteBuffer part) {
                byte[] copy = new byte[part.remaining()];
                part.get(copy);
                bytes.writeBytes(copy);
            }

            @Override
            public void onError(Throwable error) {
                body.completeExceptionally(error);
            }

            @Override
            public void onComplete() {
                body.complete(bytes.toByteArray());
            }
        }), () -> body.complete(new byte[0]));
        return body;
    }

    @Override
    public Optional<CookieHandler> cookieHandler() {
        return inner.cookieHandler();
    }

    @Override
    public Optional<Duration> connectTimeout() {
        return inner.connectTimeout();
    }

    @Override
    public Redirect followRedirects() {
        return inner.followRedirects();
    }

    @Override
    public Optional<ProxySelector> proxy() {
        return inner.proxy();
    }

    @Override
    public SSLContext sslContext() {
        return inner.sslContext();
    }

    @Override
    public SSLParameters sslParameters() {
        return inner.sslParameters();
    }

    @Override
    public Optional<Authenticator> authenticator() {
        return inner.authenticator();
    }

    @Override
    public Version version() {
        return inner.version();
    }

    @Override
    public Optional<Executor> executor() {
        return inner.executor();
    }

    @Override
    public WebSocket.Builder newWebSocketBuilder() {
        return inner.newWebSocketBuilder();
    }
}
