package once.testing;

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Function;
import once.Call;
import once.Request;
import once.Transaction;

/**
 * For tests of handlers, without a server: {@code Once.transactional(new Memory(connection)).scope("test")} keeps records,
 * events and accepted messages in memory. {@code connection} is what handlers find as theirs; it may be null.
 */
public final class Memory implements Function<Request, Transaction> {
    public record Event(String topic, String key, String type, byte[] payload) {
        public String text() {
            return new String(payload, StandardCharsets.UTF_8);
        }
    }

    private record Kept(List<Object> fingerprint, Object[] response) {
    }

    private final Connection connection;
    private final List<Event> events = new ArrayList<>();
    private final Set<List<Object>> accepted = new HashSet<>();
    private final Map<List<Object>, Kept> responses = new HashMap<>();
    private final Map<List<Object>, Object[]> checkpoints = new HashMap<>();
    private final Map<String, List<Object>> claims = new HashMap<>();
    private final Set<String> released = new HashSet<>(); // claims, which do not come back
    private final Map<List<Object>, Transaction> open = new HashMap<>();

    public Memory(Connection connection) {
        this.connection = connection;
    }

    public Memory() {
        this(null);
    }

    /** What was emitted, and committed. */
    public synchronized List<Event> events() {
        return List.copyOf(events);
    }

    @Override
    public Transaction apply(Request request) {
        return new InMemory();
    }

    private final class InMemory implements Transaction {
        private final Map<List<Object>, List<Object>> fingerprints = new HashMap<>();
        private final List<Runnable> changes = new ArrayList<>(); // what a commit does

        @Override
        public void commit() {
            synchronized (Memory.this) {
                changes.forEach(Runnable::run);
                rollback();
            }
        }

        @Override
        public void rollback() {
            synchronized (Memory.this) {
                changes.clear();
                open.values().removeIf(holder -> holder == this);
            }
        }

        @Override
        public Connection connection() {
            return connection;
        }

        @Override
        public Object[] call(Call call, Object... v) throws SQLException {
            synchronized (Memory.this) {
                return switch (call) {
                    case CLAIM -> claim(List.of(v[0], v[1]), List.of(v[2], v[3], Arrays.hashCode((byte[]) v[4])), (String) v[8]);
                    case RENEW -> renew((String) v[0]);
                    case COMPLETE -> {
                        List<Object> id = claims.get(v[0]);
                        Kept kept = new Kept(fingerprints.get(id), new Object[] {v[1], v[2], v[3], "plain", null});
                        yield change(() -> responses.put(id, kept));
                    }
                    case RECORDED -> recorded((String) v[0]);
                    case RELEASE -> change(() -> released.add((String) v[0]));
                    case LOCK -> null;
                    case EMIT -> {
                        change(() -> events.add(new Event((String) v[0], (String) v[1], (String) v[2], (byte[]) v[3])));
                        yield new Object[] {UUID.nameUUIDFromBytes((byte[]) v[3]).toString()};
                    }
                    case ACCEPT -> {
                        change(() -> accepted.add(List.of(v)));
                        yield new Object[] {!accepted.contains(List.of(v))};
                    }
                    case DERIVE -> new Object[] {"d2-" + UUID.nameUUIDFromBytes((claims.get(v[0]) + "/" + v[1]).getBytes(
                        StandardCharsets.UTF_8))};
                    case CHECKPOINT -> change(() -> checkpoints.put(claims.get(v[0]), new Object[] {v[1], v[2]}));
                    case RESUME -> checkpoints.get(claims.get(v[0]));
                };
            }
        }

        private Object[] change(Runnable change) {
            changes.add(change);
            return null;
        }

        private Object[] claim(List<Object> id, List<Object> fingerprint, String claim) {
            Kept kept = responses.get(id);
            if (open.computeIfAbsent(id, none -> this) != this) {
                return new Object[] {"busy", null, 1.0, null, null, null, null, null};
            }
            if (released.contains(claim)) {
                return new Object[] {"lost", null, null, null, null, null, null, null};
            }
            if (kept == null) {
                claims.put(claim, id);
                fingerprints.put(id, fingerprint);
                return new Object[] {"run", claim, null, null, null, null, null, null};
            }
            Object[] r = kept.response;
            return kept.fingerprint.equals(fingerprint) ? new Object[] {"replay", null, null, r[0], r[1], r[2], r[3], r[4]}
                : new Object[] {"mismatch", null, null, null, null, null, null, null};
        }

        private Object[] renew(String claim) throws SQLException {
            if (recorded(claim) != null) {
                throw new SQLException("the claim is completed", "ON002");
            }
            List<Object> id = claims.computeIfAbsent(claim, gates -> List.of("gate", gates));
            if (open.computeIfAbsent(id, none -> this) != this) {
                throw new SQLException("the claim is held", "ON001");
            }
            return null;
        }

        private Object[] recorded(String claim) {
            Kept kept = responses.get(claims.getOrDefault(claim, List.of()));
            return kept == null ? null : kept.response;
        }
    }
}
