package once;

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Map;
import java.util.function.Function;

/** What any transaction may call, with a request or without one. */
public class Bound {
    protected final Transaction transaction;
    private final Function<Object, byte[]> json;
    String claim;

    public Bound(Transaction transaction, Function<Object, byte[]> json) {
        this.transaction = transaction;
        this.json = json;
    }

    /** The connection of the transaction. It is neither committed nor rolled back by its user. */
    public Connection connection() {
        return transaction.connection();
    }

    /** Writes an event that {@code once relay} publishes if and only if the transaction commits. Returns its id. */
    public String emit(String topic, String key, String type, Object payload) {
        return emit(topic, key, type, payload, Map.of());
    }

    public String emit(String topic, String key, String type, Object payload, Map<String, String> headers) {
        return (String) value(Call.EMIT, topic, key, type, bytes(payload), Json.write(headers), claim);
    }

    /** Whether the message is new to the subscriber: if so, handle it in this transaction. */
    public boolean accept(String subscriber, String messageId) {
        return (Boolean) value(Call.ACCEPT, subscriber, messageId);
    }

    /** One transaction at a time for an account, an order, and so on. */
    public void lock(String naturalKey) {
        value(Call.LOCK, naturalKey);
    }

    /** Bytes and text as they are, everything else as JSON. */
    byte[] bytes(Object value) {
        if (value instanceof byte[] raw) {
            return raw;
        }
        return value instanceof String text ? text.getBytes(StandardCharsets.UTF_8) : json.apply(value);
    }

    String text(Object value) {
        return new String(json.apply(value), StandardCharsets.UTF_8);
    }

    Object value(Call call, Object... values) {
        Object[] row = row(call, values);
        return row == null ? null : row[0];
    }

    Object[] row(Call call, Object... values) {
        try {
            return transaction.call(call, values);
        } catch (SQLException error) {
            throw new OnceException(error);
        }
    }
}
