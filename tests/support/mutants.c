#include "support/mutants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define P (1 << ONCE_STATE_PENDING)
#define C (1 << ONCE_STATE_COMPLETED)
#define F (1 << ONCE_STATE_FAILED)
#define U (1 << ONCE_STATE_UNKNOWN)

/* clang-format off */
const mutant_t mutants[] = {
    /* permission to write */
    {"complete-any-claim", "complete does not compare the claim", 0,
     {{"complete", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},
    {"release-any-claim", "release does not compare the claim", 0,
     {{"release", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},
    {"tainted-release-any-claim", "release after an earlier doubt does not compare the claim", 0,
     {{"release: earlier doubt", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},
    {"doubt-any-claim", "doubt does not compare the claim", 0,
     {{"doubt", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},
    {"renew-any-claim", "renew does not compare the claim", 0,
     {{"renew", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},
    {"settle-any-claim", "settle to failed does not compare the claim it judged", 0,
     {{"settle failed", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},
    {"settle-completed-any-claim", "settle to completed does not compare the claim it judged", 0,
     {{"settle completed", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},
    {"purge-any-claim", "purge does not compare the claim it names", 0,
     {{"purge: ended", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},
    {"already-for-any-claim", "complete answers already to a claim that did not complete the record", 0,
     {{"complete: again", MUTANT_DROP_NEED, ONCE__G_MINE, NULL}}},

    /* in which state */
    {"complete-twice", "complete checks the claim but not the state", 0,
     {{"complete", MUTANT_ADD_FROM, C, NULL}}},
    {"complete-failed", "complete is accepted by a failed record: it is no fence", 0,
     {{"complete", MUTANT_ADD_FROM, F, NULL}}},
    {"doubt-completed", "doubt checks the claim but not the state", 0,
     {{"doubt", MUTANT_ADD_FROM, C, NULL}}},
    {"release-completed", "release checks the claim but not the state", 0,
     {{"release", MUTANT_ADD_FROM, C, NULL}}},
    {"release-completed-tainted", "the same for a record with an earlier doubt", 0,
     {{"release: earlier doubt", MUTANT_ADD_FROM, C, NULL}, {"release", MUTANT_ADD_FROM, C, NULL}}},
    {"settle-completed-record", "settle to failed is accepted by a completed record", 0,
     {{"settle failed", MUTANT_ADD_FROM, C, NULL}}},
    {"complete-not-unknown", "a known outcome is refused by an unknown record", 0,
     {{"complete", MUTANT_DROP_FROM, U, NULL}}},
    {"release-not-unknown", "release is refused by an unknown record", 0,
     {{"release", MUTANT_DROP_FROM, U, NULL}}},
    {"renew-not-unknown", "renew is refused by an unknown record", 0,
     {{"renew", MUTANT_DROP_FROM, U, NULL}}},
    {"complete-not-again", "a repeated complete is called lost", 0,
     {{"complete: again", MUTANT_DROP_ROW, 0, NULL}}},

    /* what was asked */
    {"mismatch-after-lease", "busy is answered before mismatch", 0,
     {{"claim: other fingerprint", MUTANT_MOVE_BEHIND, 0, "claim: lease live"}}},
    {"mismatch-after-all", "the fingerprint is looked at last", 0,
     {{"claim: other fingerprint", MUTANT_MOVE_BEHIND, 0, "claim: completed"}}},
    {"mismatch-not-failed", "a failed record may change its fingerprint", 0,
     {{"claim: other fingerprint", MUTANT_DROP_FROM, F, NULL}}},
    {"mismatch-not-unknown", "an unknown record may change its fingerprint", 0,
     {{"claim: other fingerprint", MUTANT_DROP_FROM, U, NULL}}},

    /* leases */
    {"claim-ignores-lease", "a pending record is claimed under a live lease", 0,
     {{"claim: lease live", MUTANT_DROP_ROW, 0, NULL}}},
    {"unknown-ignores-lease", "an unknown record is claimed under a live lease", 0,
     {{"claim: unknown, lease live", MUTANT_DROP_ROW, 0, NULL}}},
    {"settle-ignores-lease", "settle to failed works under a live lease", 0,
     {{"settle failed", MUTANT_DROP_FORBID, ONCE__G_LIVE, NULL}}},
    {"settle-completed-ignores-lease", "settle to completed works under a live lease", 0,
     {{"settle completed", MUTANT_DROP_FORBID, ONCE__G_LIVE, NULL}}},
    {"doubt-without-lease", "doubt ends the lease, the effect is not waited for", 0,
     {{"doubt", MUTANT_DROP_EFFECT, ONCE__E_DOUBT_LEASE, NULL}, {"doubt", MUTANT_ADD_EFFECT, ONCE__E_END_LEASE, NULL}}},
    {"late-doubt-without-lease", "doubt of a record unknown by lease starts no lease", 0,
     {{"doubt: unknown by lease", MUTANT_DROP_ROW, 0, NULL}}},
    {"renew-does-nothing", "renew is answered done and extends nothing", 0,
     {{"renew", MUTANT_DROP_EFFECT, ONCE__E_EXTEND, NULL}}},

    /* hold */
    {"hold-ignored-at-lease-over", "a pending hold record is claimed when its lease is over", 0,
     {{"claim: lease over, hold", MUTANT_DROP_ROW, 0, NULL}}},
    {"hold-ignored-in-unknown", "an unknown hold record is claimed when its lease is over", 0,
     {{"claim: unknown, hold", MUTANT_DROP_ROW, 0, NULL}}},
    {"reap-ignores-hold", "an abandoned hold record is removed", 0,
     {{"reap: abandoned", MUTANT_DROP_FORBID, ONCE__G_HOLD, NULL}}},
    {"reap-ignores-time", "a pending or unknown record is removed at any time", 0,
     {{"reap: abandoned", MUTANT_DROP_NEED, ONCE__G_ABANDONED, NULL}}},
    {"reap-ignores-ttl", "a completed or failed record is removed before its ttl is over", 0,
     {{"reap: expired", MUTANT_DROP_NEED, ONCE__G_EXPIRED, NULL}}},
    {"purge-without-force", "a pending or unknown record is purged without force", 0,
     {{"purge: forced", MUTANT_DROP_NEED, ONCE__G_FORCE, NULL}}},

    /* the owner's own claim */
    {"mine-runs", "the owner of a record that is unknown by lease is answered run", 0,
     {{"claim: mine, unknown by lease", MUTANT_SET_OUTCOME, ONCE_OUTCOME_RUN, NULL}}},
    {"mine-revives", "the same, and the record is pending again", 0,
     {{"claim: mine, unknown by lease", MUTANT_SET_OUTCOME, ONCE_OUTCOME_RUN, NULL},
      {"claim: mine, unknown by lease", MUTANT_SET_TO, ONCE_STATE_PENDING, NULL}}},
    {"mine-not-told", "the owner of a record that is unknown by lease is answered unknown", 0,
     {{"claim: mine, unknown by lease", MUTANT_DROP_ROW, 0, NULL}}},
    {"own-claim-is-busy", "a repeated claim is not recognised", 0,
     {{"claim: same claim again", MUTANT_DROP_ROW, 0, NULL}}},
    {"released-claim-granted", "a late copy of a released claim is granted", 0,
     {{"claim: released claim again", MUTANT_DROP_ROW, 0, NULL}}},
    {"doubted-claim-granted", "a late copy of a doubted claim is granted", 0,
     {{"claim: doubted claim again", MUTANT_DROP_ROW, 0, NULL}}},

    /* answers */
    {"completed-runs", "a completed record answers run", 0,
     {{"claim: completed", MUTANT_SET_OUTCOME, ONCE_OUTCOME_RUN, NULL}}},
    {"completed-claimed", "a completed record is claimed again", 0,
     {{"claim: failed", MUTANT_ADD_FROM, C, NULL}}},
    {"busy-runs", "a pending record answers run to everybody", 0,
     {{"claim: lease live", MUTANT_SET_OUTCOME, ONCE_OUTCOME_RUN, NULL}}},
    {"stale-complete-done", "a stale complete is answered done", 0,
     {{"complete: stale", MUTANT_SET_OUTCOME, ONCE_OUTCOME_DONE, NULL}}},
    {"unknown-for-ever", "an unknown record stays busy when its lease is over", 0,
     {{"claim: unknown, lease live", MUTANT_DROP_NEED, ONCE__G_LIVE, NULL}}},

    /* what an earlier claim may have done */
    {"release-ignores-taint", "release makes a record failed although an earlier claim is in doubt", 0,
     {{"release: earlier doubt", MUTANT_DROP_ROW, 0, NULL}}},
    {"no-taint-by-lease", "a grant after the lease ran out does not remember it", 0,
     {{"claim: lease over", MUTANT_DROP_EFFECT, ONCE__E_TAINT, NULL}}},
    {"no-taint-by-doubt", "a grant after doubt does not remember it", 0,
     {{"claim: unknown, lease over", MUTANT_DROP_EFFECT, ONCE__E_TAINT, NULL}}},
    {"tainted-briefly", "release before any effect forgets that an earlier claim is in doubt", 0,
     {{"release: before any effect", MUTANT_MOVE_FIRST, 0, NULL}}},
    {"touched-briefly", "the same where an earlier claim was released after it may have acted", 0,
     {{"release: before any effect", MUTANT_DROP_FORBID, ONCE__G_TOUCHED, NULL}}},
    {"no-touch", "a grant does not remember that an earlier claim may have acted before its release", 0,
     {{"claim: failed", MUTANT_DROP_EFFECT, ONCE__E_TOUCH, NULL}}},
    {"always-briefly", "every release is remembered briefly, that of a 5xx too", 0,
     {{"release", MUTANT_DROP_EFFECT, ONCE__E_RETAIN, NULL}, {"release", MUTANT_ADD_EFFECT, ONCE__E_BRIEFLY, NULL}}},
    {"never-briefly", "a release before any effect binds its key for the ttl", 0,
     {{"release: before any effect", MUTANT_DROP_ROW, 0, NULL}}},
    {"payload-lost", "complete records no response", 0,
     {{"complete", MUTANT_DROP_EFFECT, ONCE__E_PAYLOAD, NULL}}},

    /* rules of the users of the table */
    {"idempotent-sql", "once.complete commits when the record is already completed", MUTANT_IDEMPOTENT_SQL,
     {{NULL, MUTANT_NO_EDIT, 0, NULL}}},
    {"own-answer-after-lost", "a gateway whose complete was lost sends its own response", MUTANT_OWN_ANSWER,
     {{NULL, MUTANT_NO_EDIT, 0, NULL}}},
    {"every-release-early", "a gateway calls the release of a 5xx one before any effect", MUTANT_ALWAYS_EARLY,
     {{NULL, MUTANT_NO_EDIT, 0, NULL}}},
    {"failed-write-releases", "a complete without a reply is given up with a release", MUTANT_FAILED_WRITE_RELEASES,
     {{NULL, MUTANT_NO_EDIT, 0, NULL}}},
};
/* clang-format on */

const size_t mutant_count = sizeof(mutants) / sizeof(mutants[0]);

const mutant_t *mutant_find(const char *name)
{
    for (size_t i = 0; i < mutant_count; i++) {
        if (strcmp(mutants[i].name, name) == 0) {
            return &mutants[i];
        }
    }
    return NULL;
}

static once__rule_t *find_row(once__rule_t *rows, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* Moves a row so that it stands behind another that comes later. */
static void move_behind(once__rule_t *row, const once__rule_t *behind)
{
    once__rule_t moved = *row;
    size_t between = (size_t)(behind - row);

    memmove(row, row + 1, between * sizeof(*row));
    row[between] = moved;
}

static void move_first(once__rule_t *rows, const once__rule_t *row)
{
    once__rule_t moved = *row;

    memmove(rows + 1, rows, (size_t)(row - rows) * sizeof(*row));
    rows[0] = moved;
}

int mutant_edit(once__rule_t *rows, size_t count, const mutant_edit_t *edit)
{
    once__rule_t *row = find_row(rows, count, edit->row);
    const once__rule_t *behind;

    if (row == NULL) {
        return -1;
    }
    switch (edit->op) {
    case MUTANT_NO_EDIT:
        break;
    case MUTANT_DROP_ROW:
        row->from = 0;
        break;
    case MUTANT_DROP_NEED:
        row->need &= (uint16_t)~edit->value;
        break;
    case MUTANT_ADD_NEED:
        row->need |= (uint16_t)edit->value;
        break;
    case MUTANT_DROP_FORBID:
        row->forbid &= (uint16_t)~edit->value;
        break;
    case MUTANT_ADD_FORBID:
        row->forbid |= (uint16_t)edit->value;
        break;
    case MUTANT_ADD_FROM:
        row->from |= (uint8_t)edit->value;
        break;
    case MUTANT_DROP_FROM:
        row->from &= (uint8_t)~edit->value;
        break;
    case MUTANT_SET_TO:
        row->to = (uint8_t)edit->value;
        break;
    case MUTANT_SET_OUTCOME:
        row->outcome = (uint8_t)edit->value;
        break;
    case MUTANT_ADD_EFFECT:
        row->effects |= (uint16_t)edit->value;
        break;
    case MUTANT_DROP_EFFECT:
        row->effects &= (uint16_t)~edit->value;
        break;
    case MUTANT_MOVE_BEHIND:
        behind = find_row(rows, count, edit->behind);
        if (behind == NULL || behind < row) {
            return -1;
        }
        move_behind(row, behind);
        break;
    case MUTANT_MOVE_FIRST:
        move_first(rows, row);
        break;
    }
    return 0;
}

once__rules_t mutant_rules(const mutant_t *mutant, const once__rules_t *rules, once__rule_t *rows)
{
    size_t count = rules->count < MUTANT_ROWS_MAX ? rules->count : MUTANT_ROWS_MAX;

    memcpy(rows, rules->rows, count * sizeof(*rows));
    for (size_t i = 0; i < sizeof(mutant->edits) / sizeof(mutant->edits[0]); i++) {
        if (mutant->edits[i].op != MUTANT_NO_EDIT &&
            mutant_edit(rows, count, &mutant->edits[i]) != 0) {
            fprintf(stderr, "mutant %s: no row \"%s\"\n", mutant->name, mutant->edits[i].row);
            abort();
        }
    }
    return (once__rules_t){rows, count};
}
