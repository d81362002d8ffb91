package once.client;

import java.io.IOException;
import java.net.http.HttpResponse;

/**
 * The answer to a write is a redirect. It is not followed, because the write and its headers are for one address; and it is not
 * returned, because callers that look for 4xx and 5xx only would take it for success.
 */
public final class Redirected extends IOException {
    private static final long serialVersionUID = 1L;
    private final transient HttpResponse<byte[]> response;

    Redirected(HttpResponse<byte[]> response) {
        super(response.statusCode() + " to \"" + response.headers().firstValue("Location").orElse("")
            + "\" is not followed: a write is for one URL");
        this.response = response;
    }

    /** Null after serialization. */
    public HttpResponse<byte[]> response() {
        return response;
    }
}
