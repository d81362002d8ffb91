package once;

/** Thrown by a handler that has done nothing yet: the answer is 503, the key is free, and the same request runs again. */
public class NothingDone extends RuntimeException {
    private static final long serialVersionUID = 1;

    public NothingDone(String message, Throwable cause) {
        super(message, cause);
    }
}
