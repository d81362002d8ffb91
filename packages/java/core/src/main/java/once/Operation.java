package once;

import java.time.Instant;
import java.util.Set;

/** One attempt at a request, for its handler. */
public abstract class Operation extends Bound {
    /** The last checkpoint; without one, {@code name} is null. {@code state} is as {@link Json} reads it. */
    public record Checkpoint(String name, Object state) {
    }

    protected final Ticket ticket;
    final String gatesClaim; // null: the application claims by itself
    protected Exception error; // what the handler threw

    Operation(Transaction transaction, Ticket ticket) {
        super(transaction, ticket.once.json);
        this.ticket = ticket;
        gatesClaim = ticket.request.claim();
    }

    public Request request() {
        return ticket.request;
    }

    /** A key to send to a third party: the same in every attempt, another one for every operation and step. */
    public abstract String derive(String step);

    /**
     * Commits what was done so far as the step {@code name}: a later attempt begins behind it. The next transaction begins
     * without a lock on the record: while a third party is asked, this attempt can be overtaken, and is refused then.
     */
    public abstract void checkpoint(String name, Object state);

    public void checkpoint(String name) {
        checkpoint(name, null);
    }

    public abstract Checkpoint resume();

    // ------------------------------------------------------------------------------------ for what is around the handler

    /** This request holds the key from here on. Throws Answered if there is nothing to run. */
    abstract void start() throws Exception;

    /** Records the response with the effects of the handler. Returns what the client gets. */
    abstract Response finish(Response response) throws Exception;

    /** The handler threw, and nothing is answered but that. {@code goesOn}: another attempt is due, with the same claim. */
    abstract void abandon(Throwable thrown, boolean goesOn);

    abstract boolean isRepeatable(Throwable thrown);

    /** The handler threw: what it did is undone. The answer that the framework makes of it may still be recorded. */
    public void fail(Exception thrown) {
        error = thrown;
        transaction.rollback();
    }

    /** Sends what a persistence context has kept back, so that its errors are the handler's. */
    public void flush() {
        if (error == null) {
            transaction.flush();
        }
    }

    /** With what the gate cannot see by the status; clients do not get it. */
    Response told(Response response, String outcome) {
        return gatesClaim == null ? response : response.with("Once-Outcome", outcome);
    }

    Response recorded(Response response) {
        return gatesClaim == null ? response.expires(Instant.now().plus(ticket.once.ttl)) : response;
    }

    static Answered replay(int status, Object headers, byte[] body, String stored, Instant expires, boolean marked) {
        if (stored == null || !Set.of("plain", "omitted", "erased").contains(stored)) {
            throw Problem.STORE_UNAVAILABLE.answer("the response is stored in a form that only a gateway reads: " + stored);
        }
        Response found = new Response(status, Response.headersOf(headers), body == null ? new byte[0] : body);
        found = stored.equals("plain") ? found : found.with("Once-Body", stored);
        found = expires == null ? found : found.expires(expires);
        return new Answered(marked ? found.with("Idempotent-Replayed", "true") : found, marked ? "replay" : "run");
    }
}
