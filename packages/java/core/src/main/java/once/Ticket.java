package once;

import java.util.UUID;

/** One request, over all attempts at it. */
final class Ticket {
    final Once once;
    final Request request;
    final UUID claimId = UUID.randomUUID();
    String claim;
    int attempt;
    boolean hasCheckpoint; // which has committed the claim

    Ticket(Once once, Request request) {
        this.once = once;
        this.request = request;
    }

    String scope() {
        String found = once.scope.apply(request);
        if (found == null || found.isEmpty()) {
            throw Problem.SCOPE_MISSING.answer();
        }
        return found;
    }
}
