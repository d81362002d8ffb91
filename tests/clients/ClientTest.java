package once.client;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import javax.net.ssl.SSLSession;
import once.Json;

/** once.client against a real gate, started by world.py. Plain Java: Maven would take longer than the tests. */
final class ClientTest {
    private static final String GATE = System.getenv("GATE");
    private static final String LOSSY = System.getenv("LOSSY");
    private static final String PAYMENT = "{\"amount\": 4200}";
    private static final String HELD = GATE + "/payments?plan=hold";
    private static final Retries FAST = new Retries().deadline(Duration.ofMinutes(2)).base(Duration.ofMillis(10))
        .cap(Duration.ofMillis(50));

    private ClientTest() {
    }

    private interface Test {
        void run() throws Exception;
    }

    /** What the tests look at in an answer. */
    private record Got(int status, boolean replayed, String problem, String key) {
    }

    /** A new one for each: no connection of another test is used again. */
    private static HttpClient plain() {
        return HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    }

    private static OnceHttpClient with(Retries retries) {
        return OnceHttpClient.around(plain()).retries(retries);
    }

    private static HttpRequest post(String url, String body, String... headers) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofMinutes(1))
            .POST(HttpRequest.BodyPublishers.ofString(body));
        return (headers.length > 0 ? request.headers(headers) : request).build();
    }

    private static Got got(HttpResponse<String> answer) {
        Object key = answer.statusCode() == 201 ? ((Map<?, ?>) Json.read(answer.body())).get("key") : null;
        return new Got(answer.statusCode(), answer.headers().firstValue("Idempotent-Replayed").isPresent(),
            OnceHttpClient.problem(answer).orElse(null), (String) key);
    }

    private static Got send(HttpClient client, String url, String body, String... headers) throws Exception {
        return got(client.send(post(url, body, headers), BodyHandlers.ofString()));
    }

    /** How many requests of this key have reached the backend, and how many payments there are. */
    private static List<Object> ask(String verb, String key) {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(GATE + "/" + verb + "/" + key)).build();
            Map<?, ?> found = (Map<?, ?>) Json.read(plain().send(request, BodyHandlers.ofString()).body());
            same(found.containsKey("elsewhere"), false); // no redirect was followed
            return List.of(found.get("requests"), found.get("payments"));
        } catch (IOException | InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    private static void same(Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            throw new AssertionError(got + ", not " + wanted);
        }
    }

    private static void raises(Class<? extends Throwable> wanted, Callable<?> call) throws Exception {
        Object got;
        try {
            got = call.call();
        } catch (Exception error) {
            if (wanted.isInstance(error)) {
                return;
            }
            throw error;
        }
        throw new AssertionError(got + ", not " + wanted);
    }

    private static String newKey() {
        return UUID.randomUUID().toString();
    }

    static void theKeyIsMadeOnce() throws Exception {
        Got got = send(with(FAST), GATE + "/payments?plan=429,500,ok", PAYMENT);
        same(got, new Got(201, false, null, got.key()));
        same(ask("seen", got.key()), List.of(3L, 1L));
    }

    static void aLostAnswerIsAReplay() throws Exception {
        String key = newKey();
        same(send(with(FAST), LOSSY + "/payments", PAYMENT, "Idempotency-Key", key), new Got(201, true, null, key));
        same(ask("seen", key), List.of(1L, 1L));
    }

    /** The first one is at work; its answer is let go by the first pause of the second. */
    static void inFlightWaits() throws Exception {
        String key = newKey();
        HttpRequest request = post(HELD, PAYMENT, "Idempotency-Key", key);
        CompletableFuture<HttpResponse<String>> first = with(FAST).sendAsync(request, BodyHandlers.ofString());
        ask("reached", key);
        AtomicInteger pauses = new AtomicInteger();
        long begun = System.nanoTime();
        Retries released = FAST.draw(most -> {
            pauses.incrementAndGet();
            ask("release", key);
            return Duration.ZERO;
        });
        same(got(with(released).sendAsync(request, BodyHandlers.ofString()).get()), new Got(201, true, null, key));
        same(pauses.get() > 0, true);
        same(System.nanoTime() - begun >= Duration.ofSeconds(1).toNanos(), true); // Retry-After of the gate
        same(first.get().statusCode(), 201);
        same(ask("seen", key), List.of(1L, 1L));
    }

    static void unknownOutcomesStop() throws Exception {
        String key = newKey();
        same(send(with(FAST), GATE + "/held?plan=cut", PAYMENT, "Idempotency-Key", key),
            new Got(409, false, "outcome-unknown", null));
        same(ask("seen", key), List.of(1L, 1L));
    }

    static void anotherRequestStops() throws Exception {
        String key = newKey();
        same(send(with(FAST), GATE + "/payments", PAYMENT, "Idempotency-Key", key), new Got(201, false, null, key));
        same(send(with(FAST), GATE + "/payments", "{}", "Idempotency-Key", key), new Got(422, false, "key-reused", null));
        HttpResponse<InputStream> stream = with(FAST).send(post(GATE + "/payments", "[]", "Idempotency-Key", key),
            BodyHandlers.ofInputStream());
        same(OnceHttpClient.problem(stream).orElse(null), "key-reused"); // whatever the caller wants the body to be
        same(new String(stream.body().readAllBytes(), StandardCharsets.UTF_8).startsWith("{"), true);
        same(ask("seen", key), List.of(1L, 1L));
    }

    static void redirectsAreNeitherFollowedNorSuccess() throws Exception {
        for (int status : List.of(301, 302, 303, 307, 308)) {
            String key = newKey();
            HttpRequest request = post(GATE + "/payments?plan=" + status, PAYMENT, "Idempotency-Key", key,
                "Authorization", "Bearer s3cret");
            try {
                throw new AssertionError(with(FAST).send(request, BodyHandlers.ofString()));
            } catch (Redirected redirected) {
                same(redirected.response().statusCode(), status);
                same(redirected.getMessage().contains(key), true);
            }
            same(with(FAST).sendAsync(request, BodyHandlers.ofString())
                .handle((answer, error) -> error instanceof Redirected).get(), true);
            same(((Long) ask("seen", key).get(0)) <= 2, true);
            same(ask("seen", key).get(1), 0L);
        }
    }

    /** The fourth pause would be too long. */
    static void theDeadlineEndsIt() throws Exception {
        Callable<HttpClient> brief = () -> {
            AtomicInteger drawn = new AtomicInteger();
            return with(FAST.draw(most -> drawn.incrementAndGet() < 4 ? Duration.ZERO : Duration.ofHours(1)));
        };
        String key = newKey();
        same(send(brief.call(), GATE + "/payments?plan=429", PAYMENT, "Idempotency-Key", key), new Got(429, false, null, null));
        same(ask("seen", key), List.of(4L, 0L));
        raises(IOException.class, () -> send(brief.call(), "http://127.0.0.1:1/payments", PAYMENT));
    }

    /** A server that begins each answer, and leaves it at that, or cuts it off. */
    private static ServerSocket unfinished(boolean cut) throws IOException {
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        List<Socket> open = new ArrayList<>();
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    Socket socket = server.accept();
                    socket.getInputStream().read(new byte[4096]);
                    String begun = "HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{";
                    socket.getOutputStream().write(begun.getBytes(StandardCharsets.UTF_8));
                    if (cut) {
                        socket.close();
                    }
                    open.add(socket);
                }
            } catch (IOException closed) {
                return;
            }
        });
        thread.setDaemon(true);
        thread.start();
        return server;
    }

    /** Both are answers that were lost. When the caller does not want the answer any more, there is no further attempt. */
    static void unfinishedAnswersAndCancellation() throws Exception {
        for (boolean cut : List.of(true, false)) {
            try (ServerSocket server = unfinished(cut)) {
                AtomicInteger drawn = new AtomicInteger();
                CompletableFuture<Void> paused = new CompletableFuture<>();
                Retries three = FAST.draw(most -> drawn.incrementAndGet() < 3 ? Duration.ZERO : Duration.ofHours(1));
                Retries waits = FAST.draw(most -> {
                    paused.complete(null);
                    return Duration.ofSeconds(100);
                });
                HttpRequest request = HttpRequest.newBuilder(post("http://127.0.0.1:" + server.getLocalPort(), PAYMENT),
                    (name, value) -> true).timeout(cut ? Duration.ofMinutes(1) : Duration.ofMillis(200)).build();
                raises(cut ? IOException.class : HttpTimeoutException.class,
                    () -> with(three).send(request, BodyHandlers.ofString()));
                same(drawn.get(), 3);
                CompletableFuture<HttpResponse<String>> answer = with(waits).sendAsync(request, BodyHandlers.ofString());
                paused.get();
                same(answer.cancel(true), true);
            }
        }
    }

    /** kill -9 while the request is at work: the next process has the same key, and pays nothing. */
    static void aKilledProcessGoesOn(Path directory) throws Exception {
        String key = newKey();
        Process child = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp",
            System.getProperty("java.class.path"), ClientTest.class.getName(), directory.toString(), key).inheritIO().start();
        ask("reached", key);
        same(child.destroyForcibly().waitFor(), 128 + 9);
        ask("release", key);

        Journal journal = new Journal(directory);
        OnceHttpClient client = with(FAST).journal(journal);
        same(send(client, HELD, PAYMENT, "Once-Intent", "order-1"), new Got(201, true, null, key));
        same(names(directory), List.of(journal.path("order-1").getFileName().toString()));
        same(PosixFilePermissions.toString(Files.getPosixFilePermissions(journal.path("order-1"))), "rw-------");
        same(PosixFilePermissions.toString(Files.getPosixFilePermissions(directory)), "rwx------");
        raises(IntentChanged.class, () -> send(client, HELD, "{}", "Once-Intent", "order-1"));
        journal.ended("order-1", Instant.now().minusSeconds(1));
        raises(IntentExpired.class, () -> send(client, HELD, PAYMENT, "Once-Intent", "order-1"));
        raises(IllegalArgumentException.class, () -> send(with(FAST), HELD, PAYMENT, "Once-Intent", "order-1"));
        same(ask("seen", key), List.of(1L, 1L));
    }

    private static List<String> names(Path directory) throws IOException {
        try (Stream<Path> entries = Files.list(directory)) {
            return entries.map(entry -> entry.getFileName().toString()).toList();
        }
    }

    static void oldIntentsAreForgotten(Path directory) throws Exception {
        Journal journal = new Journal(directory, Duration.ofSeconds(1));
        journal.key("old", "r", "k");
        Files.writeString(directory.resolve("0".repeat(64) + ".torn.new"), "{");
        for (String name : List.of("not-ours", "orders.json", "half.new")) {
            Files.writeString(directory.resolve(name), "{");
        }
        for (String name : names(directory)) {
            Files.setLastModifiedTime(directory.resolve(name), FileTime.fromMillis(0));
        }
        journal.key("new", "r", "k");
        new Journal(directory, Duration.ofSeconds(1));
        same(names(directory).stream().sorted().toList(),
            Stream.of("not-ours", "orders.json", "half.new", journal.path("new").getFileName().toString()).sorted().toList());
        // As the other packages write it.
        Files.writeString(journal.path("python"), "{\"version\": 1, \"request\": \"r\", \"key\": \"theirs\", \"created\": "
            + "1794898507.25, \"expires\": 4102444800.0}");
        same(journal.key("python", "r", "ours"), "theirs");
    }

    /** An answer, and what becomes of it. */
    private static Duration after(int status, String... headers) throws IOException {
        Map<String, List<String>> all = new HashMap<>();
        for (int i = 0; i < headers.length; i += 2) {
            all.put(headers[i], List.of(headers[i + 1]));
        }
        HttpHeaders made = HttpHeaders.of(all, (name, value) -> true);
        return intent().answered(new Fixed(status, made));
    }

    private static Intent intent() throws IOException {
        Retries retries = new Retries().base(Duration.ofSeconds(1)).cap(Duration.ofSeconds(5)).draw(most -> most);
        return new Intent(retries, null, post("http://localhost/", ""), new byte[0]);
    }

    private record Fixed(int statusCode, HttpHeaders headers) implements HttpResponse<byte[]> {
        @Override
        public byte[] body() {
            return new byte[0];
        }

        @Override
        public HttpRequest request() {
            return null;
        }

        @Override
        public Optional<HttpResponse<byte[]>> previousResponse() {
            return Optional.empty();
        }

        @Override
        public Optional<SSLSession> sslSession() {
            return Optional.empty();
        }

        @Override
        public URI uri() {
            return null;
        }

        @Override
        public HttpClient.Version version() {
            return HttpClient.Version.HTTP_1_1;
        }
    }

    /** Full jitter up to a doubling bound, after what Retry-After asks for, within the deadline. */
    static void pauses() throws Exception {
        Intent one = intent();
        List<Duration> pauses = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            pauses.add(one.failed());
        }
        same(pauses, Stream.of(1, 2, 4, 5).map(Duration::ofSeconds).toList());
        same(new Retries().draw(most -> most).pause(1000), Duration.ofSeconds(20));
        for (int i = 0; i < 100; i++) {
            Duration drawn = new Retries().pause(0);
            same(drawn.isNegative() || drawn.compareTo(Duration.ofMillis(200)) > 0, false);
        }
        same(after(503, "Retry-After", "7"), Duration.ofSeconds(8));
        same(after(503, "Retry-After", "61"), null);
        same(after(503, "Retry-After", "9".repeat(40)), null);
        same(after(503, "Idempotent-Replayed", "true"), null);
        same(after(409), null);
        same(after(409, "Retry-After", "1"), Duration.ofSeconds(2));
        same(after(503, "Idempotency-Expires", "Thu, 01 Jan 1970 00:00:10 GMT"), null);
        same(after(503, "Idempotency-Expires", "Fri, 01 Jan 2100 00:00:10 GMT"), Duration.ofSeconds(1));
        same(after(400), null);
        same(after(501), null);
        same(after(308, "Location", "/"), null);
    }

    static void othersAreLeftAlone() throws Exception {
        HttpRequest get = HttpRequest.newBuilder(URI.create(GATE + "/seen/none")).build();
        HttpResponse<String> answer = with(FAST).send(get, BodyHandlers.ofString());
        same(answer.statusCode(), 200);
        same(answer.request().headers().map(), Map.of());
        HttpClient follows = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.NORMAL).build();
        raises(IllegalArgumentException.class, () -> OnceHttpClient.around(follows));
    }

    /** With arguments it is the process that is killed. */
    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) {
            OnceHttpClient client = OnceHttpClient.around(plain()).journal(new Journal(Path.of(arguments[0])));
            throw new AssertionError(send(client, HELD, PAYMENT, "Once-Intent", "order-1", "Idempotency-Key", arguments[1]));
        }
        Path directory = Files.createTempDirectory("once-client-");
        Map<String, Test> tests = new LinkedHashMap<>();
        tests.put("theKeyIsMadeOnce", ClientTest::theKeyIsMadeOnce);
        tests.put("aLostAnswerIsAReplay", ClientTest::aLostAnswerIsAReplay);
        tests.put("inFlightWaits", ClientTest::inFlightWaits);
        tests.put("unknownOutcomesStop", ClientTest::unknownOutcomesStop);
        tests.put("anotherRequestStops", ClientTest::anotherRequestStops);
        tests.put("redirectsAreNeitherFollowedNorSuccess", ClientTest::redirectsAreNeitherFollowedNorSuccess);
        tests.put("theDeadlineEndsIt", ClientTest::theDeadlineEndsIt);
        tests.put("unfinishedAnswersAndCancellation", ClientTest::unfinishedAnswersAndCancellation);
        tests.put("aKilledProcessGoesOn", () -> aKilledProcessGoesOn(directory.resolve("killed")));
        tests.put("oldIntentsAreForgotten", () -> oldIntentsAreForgotten(directory.resolve("old")));
        tests.put("pauses", ClientTest::pauses);
        tests.put("othersAreLeftAlone", ClientTest::othersAreLeftAlone);
        for (Map.Entry<String, Test> test : tests.entrySet()) {
            System.out.println(test.getKey());
            test.getValue().run();
        }
        try (Stream<Path> made = Files.walk(directory)) {
            for (Path path : made.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }
}
