package once;

import java.util.Optional;
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

    /** Empty: it has none, or not one. */
    Optional<String> key() {
        try {
            return Optional.of(request.key());
        } catch (Answered refusal) {
            return Optional.empty();
        }
    }

    String scope() {
        String found = once.scope.apply(request);
        if (found == null || found.isEmpty()) {
            throw Problem.SCOPE_MISSING.answer();
        }
        return found;
    }
}
