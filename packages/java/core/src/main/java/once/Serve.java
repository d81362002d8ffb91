package once;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.URI;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A client of {@code once serve}, which renews the claims that are at work. One connection for each question, over a UNIX socket or
 * loopback: java.net.http knows no UNIX sockets.
 */
final class Serve {
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(10);
    private static final long FIRST = TimeUnit.SECONDS.toNanos(5); // before the handler runs: nothing is lost, and the client waits
    private static final int REPLY_SECONDS = 70; // waits for other attempts included
    private static final int BATCH = 1000;
    private final SocketAddress address;
    private final String token;
    private final Set<String> claims = ConcurrentHashMap.newKeySet();
    private final ScheduledExecutorService timer = Executors.newScheduledThreadPool(2, task -> {
        Thread thread = new Thread(task, "once-serve");
        thread.setDaemon(true);
        return thread;
    });
    private boolean renews;

    Serve(URI server, String token) {
        boolean local = "unix".equals(server.getScheme());
        if (!local && !"http".equals(server.getScheme()) || !local && server.getPort() < 0) {
            throw new IllegalArgumentException(server + ": the address of once serve is unix:PATH or http://127.0.0.1:PORT");
        }
        address = local ? UnixDomainSocketAddress.of(server.getSchemeSpecificPart())
            : new InetSocketAddress(server.getHost(), server.getPort());
        this.token = token;
    }

    /** Asks until there is a reply: every request may be repeated. */
    @SuppressWarnings("unchecked")
    Map<String, Object> ask(String path, Map<String, Object> question) throws IOException {
        String text = Json.write(question);
        long end = System.nanoTime() + (Set.of("claim", "recorded").contains(path) ? FIRST : PATIENCE);
        for (long pause = 20; ; pause = Math.min(1000, pause * 2)) {
            try {
                return (Map<String, Object>) Json.read(exchange("/v1/" + path, text));
            } catch (Refused refused) {
                throw refused;
            } catch (IOException lost) {
                if (System.nanoTime() - end > 0) {
                    throw lost;
                }
            }
            try {
                Thread.sleep(pause);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new IOException(interrupted);
            }
        }
    }

    /** It has an answer, and it is no. */
    static final class Refused extends IOException {
        private static final long serialVersionUID = 1;

        Refused(String message) {
            super(message);
        }
    }

    private String exchange(String path, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        String head = "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            + (token == null || token.isEmpty() ? "" : "Authorization: Bearer " + token + "\r\n")
            + "Content-Length: " + body.length + "\r\n\r\n";
        try (SocketChannel channel = SocketChannel.open(address)) {
            ScheduledFuture<?> limit = timer.schedule(() -> end(channel), REPLY_SECONDS, TimeUnit.SECONDS);
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            all.writeBytes(head.getBytes(StandardCharsets.ISO_8859_1));
            all.writeBytes(body);
            try (OutputStream out = Channels.newOutputStream(channel)) {
                out.write(all.toByteArray());
                return bodyOf(path, new String(Channels.newInputStream(channel).readAllBytes(), StandardCharsets.ISO_8859_1));
            } finally {
                limit.cancel(false);
            }
        }
    }

    private static Void end(SocketChannel channel) throws IOException {
        channel.close();
        return null;
    }

    private static String bodyOf(String path, String reply) throws IOException {
        String[] parts = reply.split("\r\n\r\n", 2);
        Matcher length = Pattern.compile("(?i)\r\ncontent-length: *(\\d+)").matcher(parts[0]);
        if (parts.length < 2 || !length.find() || parts[1].length() != Integer.parseInt(length.group(1))) {
            throw new IOException("the reply of once serve was cut off");
        }
        String body = new String(parts[1].getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.UTF_8);
        if (reply.startsWith("HTTP/1.1 503")) {
            throw new IOException("once serve: " + body);
        }
        if (!reply.startsWith("HTTP/1.1 200")) {
            throw new Refused("once serve refused " + path + ": " + body);
        }
        return body;
    }

    synchronized void hold(String claim, Duration lease) {
        claims.add(claim);
        if (!renews) {
            renews = true;
            long period = Math.max(1, lease.toMillis() / 3);
            timer.scheduleWithFixedDelay(this::renew, period, period, TimeUnit.MILLISECONDS);
        }
    }

    void drop(String claim) {
        claims.remove(claim);
    }

    private void renew() {
        List<String> all = new ArrayList<>(claims);
        for (int from = 0; from < all.size(); from += BATCH) {
            try {
                ask("renew", Map.of("claims", all.subList(from, Math.min(all.size(), from + BATCH))));
            } catch (IOException | RuntimeException error) {
                System.getLogger("once").log(System.Logger.Level.WARNING, "claims were not renewed: {0}", error.toString());
            }
        }
    }
}
