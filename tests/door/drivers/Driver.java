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
    static void set(PreparedStatement statement, int n, String kind, byte[] data) throws SQLException {
        if (kind.equals("bytes") || kind.equals("cast")) {
            statement.setBytes(n, data);
        } else if (kind.equals("object")) {
            org.postgresql.util.PGobject object = new org.postgresql.util.PGobject();
            object.setType("jsonb");
            object.setValue(new String(data, StandardCharsets.UTF_8));
            statement.setObject(n, object);
        } else {
            statement.setString(n, new String(data, StandardCharsets.UTF_8));
        }
    }

    static void record(Connection db, String[] fields) throws SQLException {
        byte[] data = Base64.getDecoder().decode(fields.length > 3 ? fields[3] : "");
        String cast = fields[1].equals("cast") ? "::bytea" : "";
        try (PreparedStatement complete = db.prepareStatement("SELECT once.complete(?, ?, ?, ?" + cast + ")")) {
            complete.setString(1, fields[2]);
            complete.setInt(2, 201);
            complete.setString(3, System.getenv("HEADERS"));
            set(complete, 4, fields[1], data);
            complete.execute();
        }
        try (PreparedStatement emit = db.prepareStatement("SELECT once.emit('drivers', ?, 'made', ?" + cast + ", ?)")) {
            emit.setString(1, fields[0]);
            set(emit, 2, fields[1], data);
            emit.setString(3, System.getenv("HEADERS"));
            emit.execute();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Connection db = DriverManager.getConnection(System.getenv("JDBC"));
        db.setAutoCommit(false);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t");
            try {
                record(db, fields);
                db.commit();
                System.out.println(fields[0] + "\tok");
            } catch (SQLException error) {
                db.rollback();
                System.out.println(fields[0] + "\t" + error.getMessage().replace('\n', ' '));
            }
        }
    }
}
