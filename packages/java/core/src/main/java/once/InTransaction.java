package once;

import java.sql.SQLException;
import java.time.Instant;

/** The record completes in the caller's transaction. */
final class InTransaction extends Operation {
    static final String OVERTAKEN = "ON001";

    InTransaction(Transaction transaction, Ticket ticket) {
        super(transaction, ticket);
    }

    @Override
    public String derive(String step) {
        return (String) value(Call.DERIVE, claim, step);
    }

    @Override
    public void checkpoint(String name, Object state) {
        value(Call.CHECKPOINT, claim, name, text(state));
        value(Call.RENEW, claim);
        try {
            transaction.commit();
            ticket.hasCheckpoint = true;
            transaction.begin();
        } catch (SQLException failed) {
            throw new OnceException(failed);
        }
    }

    @Override
    public Checkpoint resume() {
        Object[] row = row(Call.RESUME, claim);
        return row == null ? new Checkpoint(null, null)
            : new Checkpoint((String) row[0], row[1] == null ? null : Json.read((String) row[1]));
    }

    @Override
    void start() throws SQLException {
        if (gatesClaim == null) {
            ticket.request.key(); // a bad one needs no connection
        }
        try {
            transaction.begin();
        } catch (SQLException | RuntimeException failed) {
            if (JdbcTransaction.isLost(failed)) {
                throw Problem.STORE_UNAVAILABLE.answer(1);
            }
            throw failed;
        }
        Object[] row = ticket.claim == null ? null : row(Call.RECORDED, ticket.claim);
        if (row != null) { // it was the reply to COMMIT that was lost
            throw recorded(row, false, 0);
        }
        hold();
    }

    private void hold() throws SQLException {
        claim = ticket.claim = gatesClaim == null ? claimed() : renewed();
    }

    private static Answered recorded(Object[] row, boolean marked, int at) {
        return row == null ? Problem.STORE_UNAVAILABLE.answer(1) : replay((Integer) row[at],
            Json.read(row[at + 1] == null ? "[]" : (String) row[at + 1]), (byte[]) row[at + 2], (String) row[at + 3],
            row[at + 4] == null ? null : Instant.ofEpochSecond(((Double) row[at + 4]).longValue()), marked);
    }

    private String renewed() throws SQLException {
        try {
            value(Call.RENEW, gatesClaim);
            return gatesClaim;
        } catch (OnceException refused) {
            String state = JdbcTransaction.sqlState(refused);
            if (state.equals("ON002")) { // delivered twice
                transaction.rollback();
                transaction.begin();
                throw recorded(row(Call.RECORDED, gatesClaim), false, 0);
            }
            if (state.equals(OVERTAKEN)) { // the gate answers with what the record says
                throw Problem.STORE_UNAVAILABLE.answer(1);
            }
            throw refused;
        }
    }

    private String claimed() {
        Once once = ticket.once;
        Request request = ticket.request;
        Object[] row = row(Call.CLAIM, ticket.scope(), request.key(), request.method(), request.target(), request.body(),
            once.lease.toMillis() / 1e3, once.ttl.toMillis() / 1e3, once.waits, ticket.claimId.toString());
        switch ((String) row[0]) {
            case "run", "mine":
                return (String) row[1];
            case "replay":
                throw recorded(row, true, 3);
            case "mismatch":
                throw Problem.KEY_REUSED.answer();
            case "unknown":
                throw Problem.OUTCOME_UNKNOWN.answer();
            default:
                throw Problem.IN_FLIGHT.answer(row[2] == null ? 1 : Math.max(1, (Double) row[2]));
        }
    }

    @Override
    Response finish(Response response) throws Exception {
        if (error != null && isRepeatable(error)) {
            throw error;
        }
        if (!response.isFinal() || error instanceof NothingDone) {
            abandon(error, false);
            return response.isEarly() ? response : told(response, "retry");
        }
        if (error == null && !transaction.isDoomed()) {
            try {
                return complete(response);
            } catch (OnceException failed) {
                if (!JdbcTransaction.sqlState(failed).equals("25P02")) { // after a failed statement there were no effects any more
                    throw failed;
                }
            }
        }
        if (error == null && response.status() < 400) {
            throw new IllegalStateException("the handler answers with " + response.status() + ", but its transaction cannot be "
                + "committed: a statement in it failed, or it is marked for rollback");
        }
        transaction.rollback();
        transaction.begin();
        hold();
        return complete(response);
    }

    private Response complete(Response response) throws SQLException {
        value(Call.COMPLETE, claim, response.status(), Json.write(response.recordedHeaders()), response.body());
        transaction.commit();
        return recorded(response);
    }

    /** Checkpoints, of whichever attempt, have committed the claim: the next request need not wait for its lease. */
    @Override
    void abandon(Throwable thrown, boolean goesOn) {
        transaction.rollback();
        if (!ticket.hasCheckpoint || goesOn || gatesClaim != null) {
            return;
        }
        try {
            transaction.begin();
            value(Call.RELEASE, ticket.claim);
            transaction.commit();
            ticket.hasCheckpoint = false;
        } catch (SQLException | RuntimeException failed) {
            transaction.rollback(); // the lease ends it
        }
    }

    @Override
    boolean isRepeatable(Throwable thrown) {
        return JdbcTransaction.isRepeatable(thrown);
    }
}
