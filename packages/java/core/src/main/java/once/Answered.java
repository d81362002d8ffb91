package once;

/**
 * There is nothing to run, and {@code response} is what the client gets: a replay, or an error of the contract. Thrown by a
 * handler, it rolls back what the handler did, and its response answers the key.
 */
public final class Answered extends RuntimeException {
    private static final long serialVersionUID = 1;
    public final transient Response response;
    final String outcome;

    public Answered(Response response) {
        this(response, "run");
    }

    Answered(Response response, String outcome) {
        super("answered with " + response.status(), null, false, false);
        this.response = response;
        this.outcome = outcome;
    }
}
