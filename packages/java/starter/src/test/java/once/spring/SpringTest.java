package once.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.PrintWriter;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import once.Once;
import once.Operation;
import once.testing.Memory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestMethod;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

/** What the starter does with requests, in a real Tomcat; its records are in memory. The contract suite has the transactions. */
class SpringTest {
    private static final Memory RECORDS = new Memory();
    private static final AtomicInteger RUNS = new AtomicInteger();
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static ConfigurableApplicationContext context;

    @Configuration
    @EnableAutoConfiguration(excludeName = "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration")
    static class Application {
        @Bean
        Once once(ScopeResolver scope) {
            return Once.transactional(RECORDS).scope(request -> scope.scopeOf((HttpServletRequest) request.origin()));
        }

        @Bean
        ScopeResolver scope() {
            return request -> request.getHeader("X-Caller");
        }

        /** Of others: its header belongs to the moment, not to the record. */
        @Bean
        Filter stamp() {
            return (request, response, chain) -> {
                ((HttpServletResponse) response).addHeader("X-Moment", String.valueOf(System.nanoTime()));
                chain.doFilter(request, response);
            };
        }

        @Bean
        Api api() {
            return new Api();
        }
    }

    static class Refused extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    @Idempotent
    @RestController
    static class Api {
        @PostMapping("/json")
        Map<String, Object> json(@RequestBody Map<String, Object> asked, Operation op) {
            op.emit("runs", null, "ran", asked);
            return Map.of("run", RUNS.incrementAndGet(), "key", op.request().key());
        }

        @GetMapping("/read")
        String read() {
            return "needs no key";
        }

        @RequestMapping(path = "/form", method = {RequestMethod.POST, RequestMethod.PUT})
        String form(@RequestParam List<String> order) {
            return String.join(" ", order) + " " + RUNS.incrementAndGet();
        }

        @PostMapping("/bytes")
        byte[] bytes() {
            return new byte[Once.BODY_LIMIT + 1];
        }

        @PostMapping("/text")
        void text(HttpServletResponse response) throws IOException {
            PrintWriter writer = response.getWriter();
            for (int i = 0; i <= Once.BODY_LIMIT >> 10; i++) {
                writer.write("0123456789abcdef".repeat(64));
            }
        }

        @PostMapping("/handled")
        String handled() {
            Once.current().emit("runs", null, "ran", Map.of());
            throw new Refused();
        }

        @PostMapping("/status")
        String status() {
            throw new ResponseStatusException(org.springframework.http.HttpStatus.CONFLICT, "taken");
        }

        @PostMapping("/conflict")
        String conflict() {
            if (RUNS.incrementAndGet() % 3 != 0) {
                throw new IllegalStateException(new java.sql.SQLException("could not serialize", "40001"));
            }
            return "through";
        }

        @PostMapping("/later")
        Callable<String> later() {
            return () -> "too late";
        }

        @ExceptionHandler
        ResponseEntity<Map<String, Object>> refused(Refused error) {
            return ResponseEntity.status(402).header("X-Handled", "yes").body(Map.of("refused", RUNS.incrementAndGet()));
        }
    }

    @BeforeAll
    static void start() {
        SpringApplication application = new SpringApplication(Application.class);
        application.setDefaultProperties(Map.of("server.port", 0, "server.address", "127.0.0.1", "spring.main.banner-mode", "off",
            "logging.level.root", "off", "spring.main.lazy-initialization", true));
        context = application.run();
    }

    @AfterAll
    static void stop() {
        context.close();
    }

    private static String address(String path) {
        return "http://127.0.0.1:" + context.getEnvironment().getProperty("local.server.port") + path;
    }

    private static HttpResponse<String> post(String path, String key, String body, String type) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(address(path)))
            .header("Content-Type", type).header("X-Caller", "anna").POST(HttpRequest.BodyPublishers.ofString(body));
        request = key == null ? request : request.header("Idempotency-Key", key);
        return CLIENT.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    /** Twice; the second response is the first one. */
    private static HttpResponse<String> twice(String path, int status, String body, String type) throws Exception {
        String key = path.substring(1);
        HttpResponse<String> first = post(path, key, body, type);
        int runs = RUNS.get();
        HttpResponse<String> again = post(path, key, body, type);
        assertEquals(status, first.statusCode(), first.body());
        assertEquals(status, again.statusCode());
        assertEquals(first.body(), again.body());
        assertEquals(first.headers().firstValue("Content-Type"), again.headers().firstValue("Content-Type"));
        assertEquals(runs, RUNS.get());
        assertTrue(first.headers().firstValue("Idempotent-Replayed").isEmpty());
        assertEquals("true", again.headers().firstValue("Idempotent-Replayed").orElse(""));
        assertEquals(1, again.headers().allValues("X-Moment").size());
        assertTrue(!first.headers().firstValue("X-Moment").equals(again.headers().firstValue("X-Moment")));
        return again;
    }

    @Test
    void recordsWhatAConverterMade() throws Exception {
        int events = RECORDS.events().size();
        assertTrue(twice("/json", 200, "{\"a\": \"\u65e5\"}", "application/json").body().contains("\"key\":\"json\""));
        assertEquals("{\"a\":\"\u65e5\"}", RECORDS.events().get(events).text());
        assertEquals(422, post("/json", "json", "{}", "application/json").statusCode());
        assertEquals(400, post("/json", null, "{}", "application/json").statusCode());
    }

    @Test
    void readsForms() throws Exception {
        assertTrue(twice("/form", 200, "order=o-1+%C3%A9", "application/x-www-form-urlencoded").body().startsWith("o-1 \u00e9 "));
    }

    @Test
    void tellsFormsApartByTheirBytes() throws Exception {
        String form = "application/x-www-form-urlencoded";
        assertTrue(post("/form?order=a", "bytes", "order=b+c&other=1", form).body().startsWith("a b c "));
        assertEquals(422, post("/form?order=a", "bytes", "order=b%20c&other=1", form).statusCode());
        assertEquals(422, post("/form?order=a", "bytes", "other=1&order=b+c", form).statusCode());
        assertEquals(400, post("/form", "wrong", "order=%zz", form).statusCode());
    }

    /** Spring's FormContentFilter has read them. */
    @Test
    void tellsFormsApartThatWereRead() throws Exception {
        for (String[] row : new String[][] {{"order=b", "200"}, {"order=b", "200"}, {"order=c", "422"}}) {
            HttpRequest put = HttpRequest.newBuilder(URI.create(address("/form"))).header("X-Caller", "anna")
                .header("Content-Type", "application/x-www-form-urlencoded").header("Idempotency-Key", "put")
                .PUT(HttpRequest.BodyPublishers.ofString(row[0])).build();
            assertEquals(row[1], "" + CLIENT.send(put, HttpResponse.BodyHandlers.ofString()).statusCode(), row[0]);
        }
    }

    @Test
    void boundsResponses() throws Exception {
        assertEquals(500, post("/bytes", "large", "", "text/plain").statusCode());
        assertEquals(500, post("/text", "large-text", "", "text/plain").statusCode());
    }

    @Test
    void recordsWhatAnExceptionHandlerMade() throws Exception {
        int events = RECORDS.events().size();
        assertEquals("yes", twice("/handled", 402, "", "text/plain").headers().firstValue("X-Handled").orElse(""));
        assertEquals(events, RECORDS.events().size());
    }

    @Test
    void recordsWhatTheErrorPageShows() throws Exception {
        assertTrue(twice("/status", 409, "", "text/plain").body().contains("\"error\":\"Conflict\""));
    }

    @Test
    void repeatsConflicts() throws Exception {
        RUNS.set(0);
        assertEquals("through", twice("/conflict", 200, "", "text/plain").body());
        assertEquals(3, RUNS.get());
    }

    @Test
    void refusesHandlersThatAnswerInAnotherThread() throws Exception {
        assertEquals(500, post("/later", "later", "", "text/plain").statusCode());
    }

    @Test
    void passesEverythingElse() throws Exception {
        HttpRequest read = HttpRequest.newBuilder(URI.create(address("/read"))).build();
        assertEquals("needs no key", CLIENT.send(read, HttpResponse.BodyHandlers.ofString()).body());
        assertEquals(404, post("/nowhere", null, "", "text/plain").statusCode());
        assertEquals(415, post("/json", "type", "", "text/plain").statusCode());
    }
}
