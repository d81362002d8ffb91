package once;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** About the calls to {@code once serve}; tests/packages has a real one. */
@Timeout(60)
class StoreTest {
    private static final String PENDING = "p".repeat(70);
    private static final String COMPLETED = "c".repeat(70);
    private final List<String> calls = Collections.synchronizedList(new ArrayList<>());
    private HttpServer server;
    private Once once;

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/v1/", exchange -> {
            String asked = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            String path = exchange.getRequestURI().getPath().substring(4);
            byte[] answer = Json.write(answer(path, (Map<?, ?>) Json.read(asked))).getBytes(StandardCharsets.UTF_8);
            calls.add(path.equals("renew") ? path + " " + asked.replaceAll(".*(\\[.*\\]).*", "$1").replace("\"", "") : path);
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
        once = Once.store(URI.create("http://127.0.0.1:" + server.getAddress().getPort()), null).scope("test")
            .lease(Duration.ofMillis(30));
    }

    @AfterEach
    void stop() {
        server.stop(0);
    }

    private static Map<String, Object> answer(String path, Map<?, ?> asked) {
        if (path.equals("claim")) {
            return Map.of("outcome", "run", "claim", asked.get("key"));
        }
        if (path.equals("recorded") && asked.get("claim").equals(COMPLETED)) {
            return Map.of("recorded", true, "response", Map.of("status", 201, "headers", List.of(), "body", "hi"));
        }
        if (path.equals("recorded")) {
            return Map.of("recorded", false, "state", asked.get("claim").equals(PENDING) ? "pending" : "unknown");
        }
        return path.equals("renew") ? Map.of("outcomes", List.of("done")) : Map.of("outcome", "done");
    }

    @Test
    void endsTheClaimOfAHandlerThatThrowsAnError() throws Exception {
        Request request = MemoryTest.request("a", "Idempotency-Key", "k");
        assertThrows(StackOverflowError.class, () -> once.run(request, op -> {
            awaitCall("renew [k]");
            throw new StackOverflowError();
        }));
        assertTrue(calls.contains("finish"), calls.toString()); // with 500: what it did is not known
        once.run(MemoryTest.request("a", "Idempotency-Key", "k-2"), op -> {
            awaitCall("renew [k-2]"); // and no longer the other one
            return Response.json(200, "done");
        });
    }

    /** Fails by JUnit's time limit. */
    private void awaitCall(String call) throws InterruptedException {
        while (!calls.contains(call)) {
            Thread.sleep(1);
        }
    }

    @Test
    void runsOnlyUnderAPendingClaimOfTheGate() throws Exception {
        Once.Handler handler = op -> Response.json(202, "ran");
        assertEquals(202, once.run(MemoryTest.request("a", "Once-Claim", PENDING), handler).status());
        Response twin = once.run(MemoryTest.request("a", "Once-Claim", COMPLETED), handler); // delivered twice
        assertEquals(201, twin.status());
        assertEquals("hi", new String(twin.body(), StandardCharsets.UTF_8));
        assertEquals(503, once.run(MemoryTest.request("a", "Once-Claim", "u".repeat(70)), handler).status());
        assertEquals(List.of("recorded", "recorded", "recorded"), calls);
    }
}
