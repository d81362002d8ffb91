package once;

import java.sql.SQLException;

/** A statement of once failed; the cause has the SQLSTATE (docs/postgres.md, Errors). */
public final class OnceException extends RuntimeException {
    private static final long serialVersionUID = 1;

    OnceException(SQLException cause) {
        super(cause.getMessage(), cause);
    }
}
