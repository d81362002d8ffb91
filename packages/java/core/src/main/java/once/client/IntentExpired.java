package once.client;

/** The key of this name may be forgotten by now: sending it again could take effect a second time. Nothing was sent. */
public final class IntentExpired extends IllegalStateException {
    private static final long serialVersionUID = 1;

    IntentExpired(String name) {
        super('"' + name + "\" was first sent too long ago: find out what became of it before it gets a new name");
    }
}
