package once;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;
import javax.sql.DataSource;

/** Runs operations so that each takes effect once. Made once, set up, and then shared by all threads. */
public final class Once {
    /** What a request does. */
    @FunctionalInterface
    public interface Handler {
        Response handle(Operation operation) throws Exception;
    }

    public static final int BODY_LIMIT = 16 << 20;
    private static final Function<Object, byte[]> TO_JSON = value -> Json.write(value).getBytes(StandardCharsets.UTF_8);
    private static final System.Logger LOG = System.getLogger("once");
    private static final ThreadLocal<Operation> CURRENT = new ThreadLocal<>();
    private final Function<Ticket, Operation> attempts;
    Function<Request, String> scope = request -> null;
    Function<Object, byte[]> json = TO_JSON;
    Duration lease = Duration.ofSeconds(30);
    Duration ttl = Duration.ofDays(1);
    boolean waits;
    boolean retries;
    private int limit = 6;

    private Once(Function<Ticket, Operation> attempts) {
        this.attempts = attempts;
    }

    /** What a handler writes and its response are one transaction of this PostgreSQL. */
    public static Once transactional(DataSource source) {
        return transactional(request -> new JdbcTransaction(source::getConnection));
    }

    public static Once transactional(Function<Request, Transaction> transactions) {
        return new Once(ticket -> new InTransaction(transactions.apply(ticket.request), ticket));
    }

    /** Records in any store, through {@code once serve}: {@code unix:PATH}, or {@code http://127.0.0.1:PORT} and its token. */
    public static Once store(URI server, String token) {
        Serve serve = new Serve(server, token);
        return new Once(ticket -> new InStore(serve, ticket));
    }

    /** Whose key it is; a client must not be able to choose it. */
    public Once scope(Function<Request, String> of) {
        scope = of;
        return this;
    }

    public Once scope(String text) {
        return scope(request -> text);
    }

    /** Waits for a request with the same key that is at work, instead of 409. */
    public Once waits(boolean on) {
        waits = on;
        return this;
    }

    /** For how long a checkpoint holds the key; with a store, how long a crash keeps it busy. */
    public Once lease(Duration time) {
        lease = time;
        return this;
    }

    /** For how long a response is kept. */
    public Once ttl(Duration time) {
        ttl = time;
        return this;
    }

    /** Of a transaction, when it conflicts or its connection is lost. */
    public Once attempts(int most) {
        limit = most;
        return this;
    }

    /** With a store: what may have taken effect runs again (true), or waits until somebody settles it (false, the default). */
    public Once retries(boolean on) {
        retries = on;
        return this;
    }

    /** Makes the JSON of events and checkpoints. */
    public Once json(Function<Object, byte[]> mapper) {
        json = mapper;
        return this;
    }

    /** The operation of the handler that is running in this thread. */
    public static Operation current() {
        return find().orElseThrow(() -> new IllegalStateException("no operation: this is not called by a handler that once runs"));
    }

    public static Optional<Operation> find() {
        return Optional.ofNullable(CURRENT.get());
    }

    /** For a transaction without a request, such as that of a consumer: {@code Once.bind(connection).accept("billing", id)}. */
    public static Bound bind(Connection connection) throws SQLException {
        if (connection.getAutoCommit()) {
            throw new IllegalStateException("there is no transaction: begin one with setAutoCommit(false)");
        }
        JdbcTransaction transaction = new JdbcTransaction(() -> connection);
        transaction.begin();
        return new Bound(transaction, TO_JSON);
    }

    /** Runs the handler until its response is recorded. Returns the response that the client gets. */
    public Response run(Request request, Handler handler) throws Exception {
        Ticket ticket = new Ticket(this, request);
        while (true) {
            ticket.attempt++;
            Operation operation = null;
            try {
                operation = attempts.apply(ticket);
                Response made = attempt(operation, handler, ticket.attempt >= limit);
                Telemetry.mark("run", ticket);
                return made;
            } catch (Answered answer) {
                Telemetry.mark(answer.outcome, ticket);
                return answer.response;
            } catch (Exception error) {
                if (JdbcTransaction.sqlState(error).equals(InTransaction.OVERTAKEN)) { // another attempt has the key
                    return Problem.STORE_UNAVAILABLE.answer(1).response;
                }
                if (operation == null || !operation.isRepeatable(error)) {
                    throw error;
                }
                LOG.log(System.Logger.Level.WARNING, "attempt {0} of {1}: {2}", ticket.attempt, limit, error.toString());
                if (ticket.attempt >= limit) {
                    return Problem.STORE_UNAVAILABLE.answer(1).response;
                }
            } finally {
                if (operation != null) {
                    operation.transaction.close();
                }
            }
            Thread.sleep(ThreadLocalRandom.current().nextInt(20 << Math.min(ticket.attempt, 6)));
        }
    }

    private static Response attempt(Operation operation, Handler handler, boolean isLast) throws Exception {
        try {
            operation.start();
            CURRENT.set(operation);
            Response made;
            try {
                made = handler.handle(operation);
            } catch (Answered refusal) {
                operation.fail(refusal);
                made = refusal.response;
            } finally {
                CURRENT.remove();
            }
            if (made.body().length > BODY_LIMIT) {
                throw new IllegalStateException("the response is larger than " + BODY_LIMIT + " bytes, and is not recorded");
            }
            return operation.finish(made);
        } catch (Answered answer) {
            throw answer;
        } catch (Exception error) {
            operation.abandon(error, !isLast && operation.isRepeatable(error));
            if (error instanceof NothingDone || operation.error instanceof NothingDone) { // a framework may have wrapped it
                Map<String, String> said = Map.of("error", "nothing was done; send the same request again later");
                throw new Answered(operation.told(Response.json(503, said).with("Retry-After", "1"), "retry"));
            }
            throw error;
        } catch (Error error) { // is not repeated, but nobody else ends the claim
            operation.abandon(error, false);
            throw error;
        }
    }

    /** For the HTTP server of the JDK. */
    public HttpHandler handler(Handler handler) {
        return exchange -> {
            try (exchange) {
                send(exchange, run(exchange, handler));
            }
        };
    }

    private Response run(HttpExchange exchange, Handler handler) throws IOException {
        byte[] body = exchange.getRequestBody().readNBytes(BODY_LIMIT + 1);
        if (body.length > BODY_LIMIT) {
            return Response.json(413, List.of("the body is too large"));
        }
        List<Header> headers = new ArrayList<>();
        exchange.getRequestHeaders().forEach((name, values) -> values.forEach(value -> headers.add(new Header(name, value))));
        try {
            String target = exchange.getRequestURI().toString();
            return run(new Request(exchange.getRequestMethod(), target, headers, body, exchange), handler);
        } catch (Exception error) {
            LOG.log(System.Logger.Level.ERROR, "the handler failed", error);
            return Response.json(500, Map.of("error", "internal error"));
        }
    }

    private static void send(HttpExchange exchange, Response response) throws IOException {
        response.headers().forEach(header -> exchange.getResponseHeaders().add(header.name(), header.value()));
        exchange.sendResponseHeaders(response.status(), response.body().length == 0 ? -1 : response.body().length);
        try (OutputStream out = exchange.getResponseBody()) {
            out.write(response.body());
        }
    }
}
