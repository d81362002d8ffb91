package once;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The errors of the contract, the same as the gateway's: docs/problems.md. */
enum Problem {
    KEY_MISSING(400, "missing", "Idempotency key is missing",
        "This operation needs an idempotency key in the header Idempotency-Key. "
            + "Send a new, unique key with each new operation, and the same key with each retry of it."),
    KEY_INVALID(400, "invalid", "Idempotency key is invalid", "A key is 1 to 255 visible ASCII characters, sent once."),
    SCOPE_MISSING(400, "invalid", "Caller is not known",
        "Idempotency keys belong to a caller, and this request does not say whose it is."),
    IN_FLIGHT(409, "busy", "A request with this idempotency key is in progress",
        "Send the same request again later to get its response."),
    OUTCOME_UNKNOWN(409, "unknown", "The outcome of this operation is not known",
        "An earlier request with this key may have taken effect. It is not run again until its outcome has been settled."),
    KEY_REUSED(422, "mismatch", "Idempotency key was used for another request",
        "The first request with this key was different. Send a new key with a new operation."),
    STORE_UNAVAILABLE(503, "error", "Idempotency records are not available",
        "Send the same request with the same key again later.");

    private final String outcome;
    private final int status;
    private final String title;
    private final String detail;

    Problem(int status, String outcome, String title, String detail) {
        this.status = status;
        this.outcome = outcome;
        this.title = title;
        this.detail = detail;
    }

    Answered answer() {
        return answer(detail, 0);
    }

    Answered answer(String told) {
        return answer(told, 0);
    }

    /** {@code seconds}: after which to try again; 0: not said. */
    Answered answer(double seconds) {
        return answer(detail, seconds);
    }

    private Answered answer(String told, double seconds) {
        String code = name().toLowerCase(Locale.ROOT).replace('_', '-');
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("type", "urn:once:problem:" + code);
        body.put("title", title);
        body.put("status", status);
        body.put("detail", told);
        body.put("retryable", this == IN_FLIGHT || this == STORE_UNAVAILABLE);
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("type", status == 400 ? "invalid_request_error" : status == 503 ? "api_error" : "idempotency_error");
        error.put("code", code);
        error.put("message", told);
        body.put("error", error);
        Response response = new Response(status, List.of(new Header("Content-Type", "application/problem+json"),
            new Header("Content-Language", "en"), new Header("Cache-Control", "no-store")),
            Json.write(body).getBytes(StandardCharsets.UTF_8));
        String after = String.valueOf((long) Math.max(1, Math.ceil(seconds)));
        return new Answered(seconds > 0 ? response.with("Retry-After", after) : response, outcome);
    }
}
