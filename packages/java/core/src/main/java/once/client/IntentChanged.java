package once.client;

/** The journal has another request under this name: another method, URL or body. Nothing was sent. */
public final class IntentChanged extends IllegalStateException {
    private static final long serialVersionUID = 1;

    IntentChanged(String name) {
        super('"' + name + "\" is another request in the journal: use another name for another intent");
    }
}
