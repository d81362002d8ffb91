package once.client;

import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Sends one request until its intent says that it is enough. */
final class Attempts {
    private final HttpClient client;
    private final Intent intent;
    private final HttpRequest request;
    private final CompletableFuture<HttpResponse<byte[]>> last = new CompletableFuture<>();
    private volatile CompletableFuture<HttpResponse<byte[]>> current;

    Attempts(HttpClient client, Intent intent, HttpRequest request) {
        this.client = client;
        this.intent = intent;
        this.request = request;
    }

    CompletableFuture<HttpResponse<byte[]>> begin() {
        send();
        return last;
    }

    /** There is no further attempt, and the one that is under way ends. */
    void end() {
        last.cancel(true);
        CompletableFuture<?> sent = current;
        if (sent != null) {
            sent.cancel(true);
        }
    }

    private void send() {
        if (last.isDone()) {
            return;
        }
        CompletableFuture<HttpResponse<byte[]>> sent = client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray());
        current = sent;
        if (last.isDone()) {
            sent.cancel(true); // ended in between
        }
        // The timeout of a request, as the client sees it, does not include the body of the answer.
        CompletableFuture<HttpResponse<byte[]>> whole = sent.copy();
        request.timeout().ifPresent(limit -> whole.orTimeout(limit.toMillis() + 1, TimeUnit.MILLISECONDS));
        whole.whenComplete((answer, error) -> {
            try {
                judge(answer, causeOf(error), sent);
            } catch (RuntimeException | Error wrong) {
                last.completeExceptionally(wrong);
            }
        });
    }

    private void judge(HttpResponse<byte[]> answer, Throwable error, CompletableFuture<?> sent) {
        Throwable failure = error;
        if (error instanceof TimeoutException) {
            sent.cancel(true);
            failure = new HttpTimeoutException("request timed out");
        }
        Duration pause = failure == null ? intent.answered(answer) : failure instanceof IOException ? intent.failed() : null;
        if (pause != null) {
            CompletableFuture.delayedExecutor(pause.toNanos(), TimeUnit.NANOSECONDS).execute(this::again);
        } else if (failure == null && Intent.isRedirect(answer)) {
            last.completeExceptionally(new Redirected(answer));
        } else if (failure == null) {
            last.complete(answer);
        } else {
            last.completeExceptionally(failure);
        }
    }

    private void again() {
        try {
            send();
        } catch (RuntimeException | Error wrong) {
            last.completeExceptionally(wrong);
        }
    }

    /** Without what futures put around it. */
    static Throwable causeOf(Throwable error) {
        return error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
    }
}
