#include "broken.h"

const broken_t broken_nothing = {"nothing", "the real thing", &once__rules, 0};

#define ACTOR(name, what, behaviour)                                                               \
    {                                                                                              \
        name, what, &once__rules, behaviour                                                        \
    }

const broken_t broken_actors[] = {
    ACTOR("sql-idempotent", "backend: commits although its claim had completed the record before",
          BROKEN_SQL_IDEMPOTENT),
    ACTOR("sql-separate", "backend: commits the effect first and completes the record afterwards",
          BROKEN_SQL_SEPARATE),
    ACTOR("own-answer", "gateway: answers with its own response after lost or already",
          BROKEN_OWN_ANSWER),
    ACTOR("early-answer", "gateway: answers before the completion is recorded",
          BROKEN_EARLY_ANSWER),
    ACTOR("error-releases", "gateway: releases when a completion could not be written",
          BROKEN_ERROR_RELEASES),
    ACTOR("late-forward", "gateway: forwards although half the lease is over", BROKEN_LATE_FORWARD),
    ACTOR("new-claim-id", "library: repeats a claim under a new id after a lost reply",
          BROKEN_NEW_CLAIM_ID),
    ACTOR("timeout-releases", "gateway: takes no response for not executed",
          BROKEN_TIMEOUT_RELEASES),
    ACTOR("next-upstream", "gateway: sends again when there was no response", BROKEN_NEXT_UPSTREAM),
    ACTOR("hangup-releases", "gateway: releases when the client hangs up", BROKEN_HANGUP_RELEASES),
    ACTOR("fail-open", "gateway: forwards without a claim when the store does not answer",
          BROKEN_FAIL_OPEN),
    ACTOR("bold-409", "gateway: forwards without a claim when it is answered busy",
          BROKEN_BOLD_409),
    ACTOR("own-policy", "gateway: judges by its own policy although the record's is stricter",
          BROKEN_OWN_POLICY),
    ACTOR("dirty-401", "backend: answers 401 after the effect", BROKEN_DIRTY_401),
    ACTOR("epoch-only", "store: compares the epoch of a claim but not its id", BROKEN_EPOCH_ONLY),
    ACTOR("no-renewal", "library: claims are not renewed", BROKEN_NO_RENEWAL),
    ACTOR("no-body", "gateway: leaves the body out of the fingerprint", BROKEN_NO_BODY),
    ACTOR("no-scope", "gateway: leaves the scope out", BROKEN_NO_SCOPE),
    ACTOR("hasty-operator", "operator: takes \"not yet\" for \"never\"", BROKEN_HASTY_OPERATOR),
    ACTOR("renaming-operator", "operator: repeats a settle naming the claim of now",
          BROKEN_RENAMING_OPERATOR),
};

const size_t broken_actor_count = sizeof(broken_actors) / sizeof(broken_actors[0]);

const broken_t broken_stores[] = {
    ACTOR("early-ack", "local store: answers before the sync", BROKEN_EARLY_ACK),
    ACTOR("lying-sync", "local store: segments are not synced", BROKEN_LYING_SYNC),
    ACTOR("lying-names", "local store: the directory of segments is not synced",
          BROKEN_LYING_NAMES),
    ACTOR("unsynced", "local store: what others have not synced counts", BROKEN_UNSYNCED),
    ACTOR("old-leases", "local store: leases of another boot are believed", BROKEN_OLD_LEASES),
};

const size_t broken_store_count = sizeof(broken_stores) / sizeof(broken_stores[0]);
