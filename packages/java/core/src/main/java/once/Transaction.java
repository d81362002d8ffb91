package once;

import java.sql.Connection;
import java.sql.SQLException;

/** One connection and its transaction, as the application's framework has them, and the functions of the schema {@code once} in it. */
public interface Transaction extends AutoCloseable {
    /** Takes a connection if there is none, and begins. */
    void begin() throws SQLException;

    void commit() throws SQLException;

    /** Does nothing if there is no transaction. */
    void rollback();

    /** Whether it cannot commit any more. */
    default boolean isDoomed() {
        return false;
    }

    /** Sends what a persistence context has kept back. */
    default void flush() {
    }

    Connection connection();

    /** The first row of its result, or null. */
    Object[] call(Call call, Object... values) throws SQLException;

    /** Gives the connection back; rolls back what was not committed. */
    @Override
    void close();
}
