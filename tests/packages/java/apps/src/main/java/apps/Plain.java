package apps;

import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import once.Answered;
import once.Header;
import once.JdbcTransaction;
import once.Json;
import once.NothingDone;
import once.Once;
import once.Operation;
import once.Response;

/** The HTTP server of the JDK, and JDBC without anything. With ONCE_SERVE, records are in a store of their own. */
public final class Plain {
    private static final String SERVE = System.getenv("ONCE_SERVE");

    private Plain() {
    }

    private static Connection connect() throws SQLException {
        return DriverManager.getConnection(Where.jdbc());
    }

    private static Object one(Connection db, String text, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(text)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getObject(1);
            }
        }
    }

    private static Response pay(Operation op) throws SQLException {
        if (SERVE == null) {
            return pay(op, op.connection());
        }
        try (Connection db = connect()) {
            return pay(op, db);
        }
    }

    private static Response pay(Operation op, Connection db) throws SQLException {
        Map<?, ?> asked = (Map<?, ?>) op.request().json();
        String order = (String) asked.get("order");
        String then = asked.get("then") instanceof String text ? text : "";
        if (SERVE != null) {
            before(then);
            if (then.equals("later")) {
                return Response.json(429, Map.of("error", "later"));
            }
        }
        Object number = one(db, "SELECT count(*) + 1 FROM payments WHERE order_id = ?", order);
        Object payment = one(db, "INSERT INTO payments (order_id, number, note) VALUES (?, ?, ?) RETURNING id", order, number,
            asked.get("note"));
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("order", order);
        event.put("note", asked.get("note"));
        String id = SERVE == null ? op.emit("payments", order, "paid", event) : null;
        before(then);
        switch (then) {
            case "raise":
                throw new IllegalStateException("as asked");
            case "refuse later":
                throw new Answered(Response.json(429, Map.of("error", "later")));
            case "later":
                return Response.json(429, Map.of("error", "later"));
            case "refuse in the transaction":
                return Response.json(402, Map.of("error", "no"));
            case "bytes":
                byte[] bytes = new byte[512];
                for (int i = 0; i < bytes.length; i++) {
                    bytes[i] = (byte) i;
                }
                return new Response(200, List.of(new Header("Content-Type", "application/octet-stream")), bytes);
            default:
                event.put("payment", payment);
                event.put("number", number);
                event.put("event", id);
                return Response.json(201, event).with("X-Order", order);
        }
    }

    private static void before(String then) {
        if (then.equals("refuse")) {
            throw new Answered(Response.json(404, Map.of("error", "refused")));
        }
        if (then.equals("release")) {
            throw new NothingDone("as asked", null);
        }
    }

    private static Response payOut(Operation op) throws Exception {
        Map<?, ?> asked = (Map<?, ?>) op.request().json();
        String order = (String) asked.get("order");
        String key = op.derive("transfer");
        if (SERVE != null) {
            String id = Where.transfer((String) asked.get("provider"), key, order);
            try (Connection db = connect()) {
                one(db, "INSERT INTO payments (order_id, number, note) VALUES (?, 0, ?) RETURNING id", order, id);
            }
            return Response.json(201, Map.of("transfer", id));
        }
        Operation.Checkpoint done = op.resume();
        Object id = done.state() instanceof Map<?, ?> state ? state.get("id") : null;
        if (done.name() == null) {
            one(op.connection(), "INSERT INTO payments (order_id, number, note) VALUES (?, 0, 'reserved') RETURNING id", order);
            op.checkpoint("reserved");
        }
        if (!"transferred".equals(done.name())) {
            id = Where.transfer((String) asked.get("provider"), key, order);
            op.checkpoint("transferred", Map.of("id", id));
        }
        one(op.connection(), "UPDATE payments SET note = ? WHERE order_id = ? RETURNING id", id, order);
        return Response.json(201, Map.of("transfer", id));
    }

    public static void main(String[] arguments) throws Exception {
        Once once = SERVE == null ? Once.transactional(request -> new JdbcTransaction(Plain::connect))
            : Once.store(URI.create(SERVE), System.getenv("ONCE_TOKEN"))
                .lease(Duration.ofSeconds(Long.parseLong(System.getenv("LEASE"))));
        once.scope("tenant-7");
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), Where.port()), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/payments", once.handler(Plain::pay));
        server.createContext("/payouts", once.handler(Plain::payOut));
        server.createContext("/events", exchange -> {
            try (exchange; Connection db = connect()) {
                db.setAutoCommit(false);
                String message = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
                byte[] answer = Json.write(Map.of("new", Once.bind(db).accept("ledger", message))).getBytes(StandardCharsets.UTF_8);
                db.commit();
                exchange.sendResponseHeaders(200, answer.length);
                exchange.getResponseBody().write(answer);
            } catch (SQLException error) {
                throw new IllegalStateException(error);
            }
        });
        server.start();
        System.out.println("listening on http://127.0.0.1:" + server.getAddress().getPort());
    }
}
