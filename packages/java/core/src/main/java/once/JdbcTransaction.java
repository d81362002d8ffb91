package once;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLTransientConnectionException;
import java.util.Set;

/** Plain JDBC. */
public class JdbcTransaction implements Transaction {
    private static final Set<String> CONFLICTS = Set.of("40001", "40P01");
    private final Source source;
    protected Connection connection;

    /** {@code DataSource::getConnection}, for example. */
    public interface Source {
        Connection get() throws SQLException;
    }

    public JdbcTransaction(Source source) {
        this.source = source;
    }

    @Override
    public void begin() throws SQLException {
        if (connection == null) {
            connection = source.get();
            connection.setAutoCommit(false);
        }
    }

    @Override
    public void commit() throws SQLException {
        connection.commit();
    }

    @Override
    public void rollback() {
        try {
            if (connection != null) {
                connection.rollback();
            }
        } catch (SQLException error) {
            // It is lost, and so is what it did.
        }
    }

    @Override
    public Connection connection() {
        return connection;
    }

    @Override
    public Object[] call(Call call, Object... values) throws SQLException {
        try (PreparedStatement statement = connection().prepareStatement(call.sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                if (!rows.next()) {
                    return null;
                }
                Object[] row = new Object[rows.getMetaData().getColumnCount()];
                for (int i = 0; i < row.length; i++) {
                    row[i] = rows.getObject(i + 1);
                }
                return row;
            }
        }
    }

    @Override
    public void close() {
        rollback();
        try (Connection mine = connection) {
            connection = null;
            if (mine != null && !mine.isClosed()) {
                mine.setAutoCommit(true);
            }
        } catch (SQLException error) {
            // It is lost.
        }
    }

    /** Of a driver's error, or of the one that a framework has wrapped; empty: of neither. */
    static String sqlState(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof SQLException found && found.getSQLState() != null) {
                return found.getSQLState();
            }
        }
        return "";
    }

    /** The connection was lost, or there is none. */
    static boolean isLost(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof SQLTransientConnectionException) { // of a pool that has none left
                return true;
            }
        }
        String state = sqlState(error);
        return state.startsWith("08") || state.startsWith("57P");
    }

    /** A conflict with another transaction, or a lost connection: the same again may work. */
    static boolean isRepeatable(Throwable error) {
        return CONFLICTS.contains(sqlState(error)) || isLost(error);
    }
}
