package once;

import java.sql.Connection;
import java.sql.SQLException;

/** One connection and its transaction, as the application's framework has them. */
public interface Transaction extends AutoCloseable {
    /** Takes a connection if there is none, and begins. */
    default void begin() throws SQLException {
    }

    default void commit() throws SQLException {
    }

    /** Does nothing if there is no transaction. */
    default void rollback() {
    }

    /** Whether it cannot commit any more. */
    default boolean isDoomed() {
        return false;
    }

    /** Sends what a persistence context has kept back. */
    default void flush() {
    }

    Connection connection();

    /** A function of the schema {@code once}: the first row of its result, or null. */
    Object[] call(Call call, Object... values) throws SQLException;

    /** Gives the connection back; rolls back what was not committed. */
    @Override
    default void close() {
        rollback();
    }
}
