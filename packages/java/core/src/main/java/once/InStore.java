package once;

import java.io.IOException;
import java.sql.Connection;
import java.time.Instant;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The record is in a store of its own, behind {@code once serve}: at most one effect, and an honest "unknown". */
final class InStore extends Operation {
    private final Serve serve;

    InStore(Serve serve, Ticket ticket) {
        super(new Nothing(), ticket);
        this.serve = serve;
    }

    @Override
    public String derive(String step) {
        try {
            return (String) serve.ask("derive", Map.of("claim", claim, "step", step)).get("key");
        } catch (IOException lost) {
            throw new java.io.UncheckedIOException(lost);
        }
    }

    @Override
    public void checkpoint(String name, Object state) {
        throw Nothing.unsupported();
    }

    @Override
    public Checkpoint resume() {
        throw Nothing.unsupported();
    }

    @Override
    void start() throws IOException {
        if (gatesClaim == null) {
            claim();
            return;
        }
        Map<String, Object> answer = ask("recorded", Map.of("claim", gatesClaim));
        if (answer.get("response") != null) { // delivered twice
            throw recorded(answer, false);
        }
        if (!"pending".equals(answer.get("state"))) { // overtaken, not of this store, or made up by a client
            throw Problem.STORE_UNAVAILABLE.answer(1);
        }
        claim = gatesClaim;
    }

    private void claim() throws IOException {
        Once once = ticket.once;
        Request request = ticket.request;
        String key = request.key();
        Map<String, Object> question = new HashMap<>(Map.of("scope", ticket.scope(), "key", key, "method", request.method(),
            "target", request.target(), "body_base64", Base64.getEncoder().encodeToString(request.body()),
            "ttl_ms", once.ttl.toMillis(), "lease_ms", once.lease.toMillis(), "wait_ms", once.waits ? 60000 : 0));
        question.put("recover", once.retries ? "retry" : "hold");
        question.put("claim_id", ticket.claimId.toString().replace("-", "")); // the same claim, asked again after a lost reply
        Map<String, Object> answer = ask("claim", question);
        switch ((String) answer.get("outcome")) {
            case "run":
                claim = (String) answer.get("claim");
                serve.hold(claim, once.lease);
                return;
            case "replay":
                throw recorded(answer, true);
            case "mismatch":
                throw Problem.KEY_REUSED.answer();
            case "unknown":
                throw Problem.OUTCOME_UNKNOWN.answer();
            default:
                Number after = (Number) answer.getOrDefault("retry_after_ms", 1000);
                throw Problem.IN_FLIGHT.answer(Math.max(1, after.doubleValue() / 1e3));
        }
    }

    private Map<String, Object> ask(String path, Map<String, Object> question) throws IOException {
        try {
            return serve.ask(path, question);
        } catch (Serve.Refused refused) {
            throw refused;
        } catch (IOException lost) {
            throw Problem.STORE_UNAVAILABLE.answer(1);
        }
    }

    private static Answered recorded(Map<String, Object> answer, boolean marked) {
        Map<?, ?> response = (Map<?, ?>) answer.get("response");
        byte[] body = response.get("body_base64") instanceof String coded ? Base64.getDecoder().decode(coded)
            : response.get("body") instanceof String text ? text.getBytes(java.nio.charset.StandardCharsets.UTF_8) : null;
        Object omitted = response.get("body_omitted");
        String stored = omitted == null || omitted.equals(false) ? "plain" : "erased".equals(omitted) ? "erased" : "omitted";
        Object headers = response.get("headers");
        Instant expires = answer.get("expires_ms") instanceof Number left ? Instant.now().plusMillis(left.longValue()) : null;
        return replay(((Number) response.get("status")).intValue(), headers == null ? List.of() : headers, body, stored, expires,
            marked);
    }

    @Override
    Response finish(Response response) throws IOException {
        // What was thrown says nothing about what was done before: a 429 may be that of a third party, passed on.
        String verdict = error instanceof NothingDone ? "retry" : error != null && response.isEarly() ? "unknown" : null;
        if (gatesClaim != null) { // the gate records
            return verdict == null ? response : told(response, verdict);
        }
        Map<String, Object> answer = end(verdict, Map.of("status", response.status(), "headers", response.recordedHeaders(),
            "body_base64", Base64.getEncoder().encodeToString(response.body())));
        if (answer.get("response") != null) { // the record has one already
            throw recorded(answer, false);
        }
        if ("lost".equals(answer.get("outcome"))) { // overtaken
            throw Problem.IN_FLIGHT.answer(1);
        }
        return verdict == null && response.isFinal() ? recorded(response) : response;
    }

    private Map<String, Object> end(String verdict, Map<String, Object> response) throws IOException {
        Map<String, Object> question = new HashMap<>(Map.of("claim", claim, "response", response));
        if (verdict != null) {
            question.put("verdict", verdict);
        }
        try {
            return ask("finish", question);
        } finally {
            serve.drop(claim);
        }
    }

    @Override
    void abandon(Throwable thrown, boolean goesOn) {
        if (gatesClaim != null || claim == null) {
            return;
        }
        boolean isFree = thrown instanceof NothingDone || error instanceof NothingDone; // a framework wraps what the handler threw
        try {
            end(isFree ? "retry" : null, Map.of("status", 500));
        } catch (IOException | Answered lost) {
            // The lease ends it, as a crash would.
        }
    }

    /** What a handler did cannot be undone here. */
    @Override
    boolean isRepeatable(Throwable thrown) {
        return false;
    }

    /** The transaction is the handler's own affair. */
    private static final class Nothing implements Transaction {
        static UnsupportedOperationException unsupported() {
            return new UnsupportedOperationException("this belongs to a transaction: the records of this application are in a "
                + "store of their own (Once.transactional has it, and Once.bind)");
        }

        @Override
        public Connection connection() {
            throw unsupported();
        }

        @Override
        public Object[] call(Call call, Object... values) {
            throw unsupported();
        }
    }
}
