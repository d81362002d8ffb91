// Strings, objects and bytes as JDBC sends them. See ../test_drivers.py.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Base64;

public class Driver {
    static Object valueOf(String kind, byte[] data) throws SQLException {
        if (kind.equals("bytes") || kind.equals("cast")) {
            return data;
        }
        String text = new String(data, StandardCharsets.UTF_8);
        if (kind.equals("object")) {
            org.postgresql.util.PGobject object = new org.postgresql.util.PGobject();
            object.setType("jsonb");
            object.setValue(text);
            return object;
        }
        return text;
    }

    static void execute(Connection db, String text, Object... arguments) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(text)) {
            for (int i = 0; i < arguments.length; i++) {
                statement.setObject(i + 1, arguments[i]);
            }
            statement.execute();
        }
    }

    static void record(Connection db, String call, String kind, String name, byte[] data) throws SQLException {
        String headers = System.getenv("HEADERS");
        String cast = kind.equals("cast") ? "::bytea" : "";
        Object value = valueOf(kind, data);
        switch (call) {
            case "complete":
                execute(db, "SELECT once.complete(?, ?, ?, ?" + cast + ")", name, 201, headers, value);
                break;
            case "emit":
                execute(db, "SELECT once.emit('drivers', ?, 'made', ?" + cast + ", ?)", name, value, headers);
                break;
            case "claim":
                execute(db, "INSERT INTO answers SELECT ?, outcome FROM once.claim('drivers', ?, 'POST', '/', ?" + cast
                    + ", lease => '1 hour')", name, name, value);
                break;
            case "settle":
                execute(db, "SELECT once.settle(?, 'completed', ?, ?, ?" + cast + ", force => true)", name, 201, headers, value);
                break;
            default:
                throw new SQLException("no call " + call);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Connection db = DriverManager.getConnection(System.getenv("JDBC"));
        db.setAutoCommit(false);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t");
            try {
                record(db, fields[1], fields[2], fields[3], Base64.getDecoder().decode(fields.length > 4 ? fields[4] : ""));
                db.commit();
                System.out.println(fields[0] + "\tok");
            } catch (SQLException error) {
                db.rollback();
                System.out.println(fields[0] + "\t" + error.getMessage().replace('\n', ' '));
            }
        }
    }
}
