package once;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/** What is recorded and sent: a status, headers in their order, and a body. */
public record Response(int status, List<Header> headers, byte[] body) {
    // Of the connection or of the moment, or made anew by every server: not part of a record.
    private static final Set<String> NOT_RECORDED = Set.of("connection", "keep-alive", "proxy-authenticate", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade", "content-length", "date", "server", "set-cookie");
    // Sent before any effect: the gate and once serve leave the key free.
    private static final Set<Integer> EARLY = Set.of(401, 403, 407, 421, 425, 429);
    private static final DateTimeFormatter DATE = DateTimeFormatter.ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.US)
        .withZone(ZoneOffset.UTC);

    /** Maps, lists, records, text, numbers: see {@link Json}. */
    public static Response json(int status, Object value) {
        return new Response(status, List.of(new Header("Content-Type", "application/json")),
            Json.write(value).getBytes(StandardCharsets.UTF_8));
    }

    public Response with(String name, String value) {
        List<Header> more = new ArrayList<>(headers);
        more.add(new Header(name, value));
        return new Response(status, more, body);
    }

    /** As pairs. */
    List<List<String>> recordedHeaders() {
        return headers.stream().filter(header -> !NOT_RECORDED.contains(header.name().toLowerCase(Locale.ROOT)))
            .map(header -> List.of(header.name(), header.value())).toList();
    }

    static List<Header> headersOf(Object pairs) {
        List<Header> found = new ArrayList<>();
        for (Object pair : (List<?>) pairs) {
            found.add(new Header((String) ((List<?>) pair).get(0), (String) ((List<?>) pair).get(1)));
        }
        return found;
    }

    /** Whether it answers the key for good. Everything else rolls back and leaves the key free. */
    boolean isFinal() {
        return status >= 200 && status < 500 && !isEarly() && status != 408;
    }

    boolean isEarly() {
        return EARLY.contains(status);
    }

    /** Until when the record is kept. */
    Response expires(Instant at) {
        return with("Idempotency-Expires", DATE.format(at));
    }
}
