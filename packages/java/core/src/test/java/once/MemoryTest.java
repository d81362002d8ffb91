package once;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.context.Scope;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.sql.SQLTransientConnectionException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import once.testing.Memory;
import org.junit.jupiter.api.Test;

/** Handlers on the test double: what an operation does, and that the double does it as PostgreSQL would. */
class MemoryTest {
    private final Memory records = new Memory();
    private final Once once = Once.transactional(records).scope("test");
    private final AtomicInteger runs = new AtomicInteger();

    static Request request(String body, String... headers) {
        List<Header> all = new ArrayList<>();
        for (int i = 0; i < headers.length; i += 2) {
            all.add(new Header(headers[i], headers[i + 1]));
        }
        return new Request("POST", "/payments", all, body.getBytes(StandardCharsets.UTF_8), null);
    }

    private Response pay(Operation op) {
        op.emit("payments", "o-1", "paid", Map.of("run", runs.incrementAndGet()));
        return Response.json(201, Map.of("run", runs.get()));
    }

    private Response post(String body) throws Exception {
        return once.run(request(body, "Idempotency-Key", "k"), this::pay);
    }

    private static String replayed(Response response) {
        return response.headers().stream().filter(header -> header.name().equals("Idempotent-Replayed")).map(Header::value)
            .findAny().orElse(null);
    }

    @Test
    void takesEffectOnce() throws Exception {
        Response first = post("a");
        Response again = post("a");
        assertEquals(201, first.status());
        assertArrayEquals(first.body(), again.body());
        assertEquals(null, replayed(first));
        assertEquals("true", replayed(again));
        assertEquals(422, post("b").status());
        assertEquals(1, runs.get());
        assertEquals(List.of("{\"run\":1}"), records.events().stream().map(Memory.Event::text).toList());
    }

    @Test
    void isBusyWhileItRuns() throws Exception {
        Response[] inner = new Response[1];
        once.run(request("a", "Idempotency-Key", "k"), op -> {
            inner[0] = post("a");
            return pay(op);
        });
        assertEquals(409, inner[0].status());
        assertTrue(inner[0].headers().contains(new Header("Retry-After", "1")));
        assertEquals(1, runs.get());
    }

    @Test
    void undoesWhatAHandlerDidThatThrows() throws Exception {
        assertThrows(IllegalStateException.class, () -> once.run(request("a", "Idempotency-Key", "k"), op -> {
            pay(op);
            throw new IllegalStateException("as asked");
        }));
        assertEquals(List.of(), records.events());
        Response refusal = once.run(request("a", "Idempotency-Key", "k"), op -> {
            pay(op);
            throw new Answered(Response.json(402, "no"));
        });
        assertEquals(402, refusal.status());
        assertEquals(List.of(), records.events());
        assertEquals("true", replayed(post("a")));
    }

    @Test
    void boundsResponses() throws Exception {
        Response largest = new Response(200, List.of(), new byte[Once.BODY_LIMIT]);
        assertEquals(200, once.run(request("a", "Idempotency-Key", "k"), op -> largest).status());
        Response more = new Response(200, List.of(), new byte[Once.BODY_LIMIT + 1]);
        assertThrows(IllegalStateException.class, () -> once.run(request("a", "Idempotency-Key", "k-2"), op -> more));
    }

    @Test
    void repeatsConflictsAndGivesUp() throws Exception {
        Response answer = once.attempts(3).run(request("a", "Idempotency-Key", "k"), op -> {
            if (runs.incrementAndGet() < 3) {
                throw new IllegalStateException(new SQLException("could not serialize", "40001"));
            }
            return Response.json(200, "through");
        });
        assertEquals(200, answer.status());
        answer = once.run(request("a", "Idempotency-Key", "k-2"), op -> {
            throw new SQLException("deadlock", "40P01");
        });
        assertEquals(503, answer.status());
    }

    @Test
    void refusesASuccessWhoseTransactionFailed() {
        Memory failing = new Memory();
        Once on = Once.transactional(asked -> new Doomed(failing.apply(asked))).scope("test");
        Request request = request("a", "Idempotency-Key", "k");
        assertThrows(IllegalStateException.class, () -> on.run(request, op -> Response.json(201, "paid")));
    }

    /** Passes everything on. */
    private static class Around implements Transaction {
        private final Transaction inner;

        Around(Transaction inner) {
            this.inner = inner;
        }

        @Override
        public void begin() throws SQLException {
            inner.begin();
        }

        @Override
        public void commit() throws SQLException {
            inner.commit();
        }

        @Override
        public void rollback() {
            inner.rollback();
        }

        @Override
        public java.sql.Connection connection() {
            return null;
        }

        @Override
        public Object[] call(Call call, Object... values) throws SQLException {
            return inner.call(call, values);
        }
    }

    /** As Spring's, when a method that joined it has marked it for rollback. */
    private static final class Doomed extends Around {
        Doomed(Transaction inner) {
            super(inner);
        }

        @Override
        public void commit() throws SQLException {
            throw new SQLException("rolled back");
        }

        @Override
        public boolean isDoomed() {
            return true;
        }
    }

    @Test
    void goesOnBehindACheckpoint() throws Exception {
        List<String> keys = new ArrayList<>();
        Once.Handler steps = op -> {
            keys.add(op.derive("transfer"));
            if (op.resume().name() == null) {
                op.checkpoint("reserved", Map.of("id", 7));
                throw new IllegalStateException("killed");
            }
            return Response.json(200, op.resume());
        };
        assertThrows(IllegalStateException.class, () -> once.run(request("a", "Idempotency-Key", "k"), steps));
        Response done = once.run(request("a", "Idempotency-Key", "k"), steps);
        assertEquals("{\"name\":\"reserved\",\"state\":{\"id\":7}}", new String(done.body(), StandardCharsets.UTF_8));
        assertEquals(keys.get(0), keys.get(1));
    }

    @Test
    void keepsTheClaimWhileAnotherAttemptIsDue() throws Exception {
        List<Call> calls = new ArrayList<>();
        Once on = Once.transactional(asked -> new Around(records.apply(asked)) {
            @Override
            public Object[] call(Call call, Object... values) throws SQLException {
                calls.add(call);
                return super.call(call, values);
            }
        }).scope("test");
        Once.Handler steps = op -> {
            int run = runs.incrementAndGet();
            if (op.resume().name() == null) {
                op.checkpoint("reserved");
            }
            if (run == 1) {
                throw new SQLException("could not serialize", "40001");
            }
            if (run == 2) { // for good: the checkpoint of the first attempt has committed the claim
                throw new IllegalStateException("as asked");
            }
            return Response.json(200, "through");
        };
        assertThrows(IllegalStateException.class, () -> on.run(request("a", "Idempotency-Key", "k"), steps));
        assertEquals(2, runs.get());
        assertEquals(1, java.util.Collections.frequency(calls, Call.RELEASE));
        assertEquals(Call.RELEASE, calls.get(calls.size() - 1));
        assertEquals(200, on.run(request("a", "Idempotency-Key", "k"), steps).status());
    }

    @Test
    void completesTheClaimOfTheGate() throws Exception {
        String claim = "c".repeat(70);
        Response first = once.run(request("a", "Once-Claim", claim), this::pay);
        Response twin = once.run(request("a", "Once-Claim", claim), this::pay); // delivered twice
        assertArrayEquals(first.body(), twin.body());
        assertEquals(null, replayed(twin));
        assertEquals(400, once.run(request("a", "Once-Claim", "forged"), this::pay).status());
        assertEquals(1, runs.get());
    }

    @Test
    void acceptsAMessageOnce() throws Exception {
        List<Boolean> told = new ArrayList<>();
        for (String key : List.of("k-1", "k-2")) {
            once.run(request("a", "Idempotency-Key", key), op -> {
                told.add(op.accept("billing", "message-1"));
                return Response.json(200, "done");
            });
        }
        assertEquals(List.of(true, false), told);
    }

    @Test
    void needsAScopeAndAKey() throws Exception {
        assertEquals(400, Once.transactional(records).run(request("a", "Idempotency-Key", "k"), this::pay).status());
        assertEquals(400, once.run(request("a"), this::pay).status());
        assertEquals(400, once.run(request("a", "Idempotency-Key", "k", "idempotency-key", "l"), this::pay).status());
        assertThrows(IllegalStateException.class, Once::current);
        assertEquals("a,b\"\\", request("", "Idempotency-Key", " \"a,b\\\"\\\\\" ").key());
        assertEquals(0, runs.get());
    }

    @Test
    void marksTheSpan() throws Exception {
        Map<String, Object> marks = new HashMap<>();
        Class<?>[] kind = {Span.class};
        Span span = (Span) Proxy.newProxyInstance(Span.class.getClassLoader(), kind, (proxy, method, values) -> {
            if (!method.getName().equals("setAttribute")) {
                return InvocationHandler.invokeDefault(proxy, method, values);
            }
            marks.put(values[0].toString(), values[1]);
            return proxy;
        });
        Scope scope = span.makeCurrent();
        try {
            post("a");
            assertEquals(Map.of("once.key", "k", "once.outcome", "run", "once.attempts", 1L), marks);
            post("b");
            assertEquals("mismatch", marks.get("once.outcome"));
        } finally {
            scope.close();
        }
    }

    @Test
    void isUnavailableWithoutAConnection() throws Exception {
        Once pooled = Once.transactional(asked -> new JdbcTransaction(() -> {
            throw new SQLTransientConnectionException("the pool is empty");
        })).scope("test");
        assertEquals(503, pooled.run(request("a", "Idempotency-Key", "k"), this::pay).status());
    }

    @Test
    void saysWhichServersItKnows() {
        for (String bad : List.of("https://127.0.0.1:1", "http://127.0.0.1", "/run/once.sock")) {
            assertThrows(IllegalArgumentException.class, () -> Once.store(java.net.URI.create(bad), null), bad);
        }
    }
}
