package once.client;

import java.io.IOException;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import once.Json;

/** One request and its attempts. Sends nothing itself: it says how long to wait before the next attempt, null for no more. */
final class Intent {
    static final String KEY = "Idempotency-Key";
    static final String NAME = "Once-Intent";
    private static final String PREFIX = "urn:once:problem:";
    private static final Set<Integer> REPEATED = Set.of(408, 425, 429, 500, 502, 503, 504);
    private static final int LONGEST = 9; // digits of seconds: decades
    final String key;
    private final Retries retries;
    private final Journal journal;
    private final String name;
    private final long begun = System.nanoTime();
    private Instant expires;
    private int attempts;

    Intent(Retries retries, Journal journal, HttpRequest request, byte[] body) throws IOException {
        this.retries = retries;
        this.journal = journal;
        String made = header(request.headers(), KEY);
        made = made.isEmpty() ? UUID.randomUUID().toString() : made;
        name = header(request.headers(), NAME);
        if (!name.isEmpty()) {
            if (journal == null) {
                throw new IllegalArgumentException(NAME + " needs a journal");
            }
            made = journal.key(name, Journal.sha256(request.method().getBytes(StandardCharsets.UTF_8),
                request.uri().toString().getBytes(StandardCharsets.UTF_8), body), made);
        }
        key = made;
    }

    static boolean concerns(Retries retries, HttpRequest request) {
        return retries.methods().contains(request.method().toUpperCase(Locale.ROOT)) || !header(request.headers(), KEY).isEmpty()
            || !header(request.headers(), NAME).isEmpty();
    }

    private static String header(HttpHeaders headers, String name) {
        return headers.firstValue(name).orElse("");
    }

    /** The gateway's problem in an answer; empty: it is none. */
    static Map<?, ?> problem(int status, HttpHeaders headers, byte[] body) {
        if (status >= 400 && header(headers, "Content-Type").startsWith("application/problem+json")) {
            try {
                if (Json.read(new String(body, StandardCharsets.UTF_8)) instanceof Map<?, ?> found
                    && found.get("type") instanceof String type && type.startsWith(PREFIX)) {
                    return found;
                }
            } catch (IllegalArgumentException notJson) {
                return Map.of();
            }
        }
        return Map.of();
    }

    static String nameOf(Map<?, ?> problem) {
        return problem.get("type") instanceof String type ? type.substring(PREFIX.length()) : null;
    }

    /** No answer: reset, timeout, refused. */
    Duration failed() {
        return pause(Duration.ZERO);
    }

    Duration answered(HttpResponse<byte[]> answer) {
        HttpHeaders headers = answer.headers();
        Instant until = date(header(headers, "Idempotency-Expires"));
        if (until != null) {
            expires = expires == null || until.isBefore(expires) ? until : expires;
            remember(expires);
        }
        if (header(headers, "Idempotent-Replayed").equals("true") || !isRepeated(answer)) {
            return null;
        }
        return pause(retryAfter(header(headers, "Retry-After")));
    }

    private void remember(Instant until) {
        if (!name.isEmpty()) {
            try {
                journal.ended(name, until);
            } catch (IOException full) {
                return; // the answer is there, and is what the caller wants; the journal has its own limit
            }
        }
    }

    static boolean isRedirect(HttpResponse<?> answer) {
        int status = answer.statusCode();
        return status >= 300 && status < 400 && status != 304;
    }

    private static boolean isRepeated(HttpResponse<byte[]> answer) {
        int status = answer.statusCode();
        Map<?, ?> problem = problem(status, answer.headers(), answer.body());
        if (!problem.isEmpty()) {
            return Boolean.TRUE.equals(problem.get("retryable"));
        }
        return REPEATED.contains(status) || status == 409 && !header(answer.headers(), "Retry-After").isEmpty();
    }

    private static Duration retryAfter(String text) {
        if (text.matches("[0-9]+")) {
            return Duration.ofSeconds(Long.parseLong(text.substring(0, Math.min(text.length(), LONGEST))));
        }
        Instant at = date(text);
        Duration left = at == null ? Duration.ZERO : Duration.between(Instant.now(), at);
        return left.isNegative() ? Duration.ZERO : left;
    }

    private static Instant date(String text) {
        try {
            return text.isEmpty() ? null : Instant.from(DateTimeFormatter.RFC_1123_DATE_TIME.parse(text));
        } catch (DateTimeParseException wrong) {
            return null;
        }
    }

    /** After the deadline there is no attempt, nor when the key may be forgotten. */
    private Duration pause(Duration least) {
        Duration pause = least.plus(retries.pause(attempts++));
        Duration after = Duration.ofNanos(System.nanoTime() - begun).plus(pause);
        boolean forgotten = expires != null && Instant.now().plus(pause).isAfter(expires);
        return forgotten || after.compareTo(retries.deadline()) > 0 ? null : pause;
    }
}
