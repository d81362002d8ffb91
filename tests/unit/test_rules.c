/*
 * The table, cell by cell: each row is put into the situation it is for and must decide as the contract says. What is
 * expected here is written down by hand, not read from the rows. Laws that hold for all rows at once are in
 * test_rules_laws.c.
 */
#include "support/testing.h"

#include <string.h>

#include "core/rules.h"

enum { NOW = 1000000000, LEASE = 30000, TTL = 86400000, SHORT = 500 };

#define N ONCE_STATE_NONE
#define P ONCE_STATE_PENDING
#define C ONCE_STATE_COMPLETED
#define F ONCE_STATE_FAILED
#define U ONCE_STATE_UNKNOWN

/* The situation. Otherwise: lease over, retry, same fingerprint, another claim's event, no flags. */
enum {
    MINE = 1 << 0,
    LIVE = 1 << 1,
    HOLD = 1 << 2,     /* the record's policy */
    ASK_HOLD = 1 << 3, /* the asker's */
    OTHER = 1 << 4,    /* fingerprint */
    BY_LEASE = 1 << 5,
    TAINTED = 1 << 6,
    FORCE = 1 << 7,
    NEWER = 1 << 8,
    EXPIRED = 1 << 9,
    LONG_OVER = 1 << 10, /* a retention after the lease */
    TRANSACTIONAL = 1 << 11,
    EARLY = 1 << 12, /* the release says: before any effect */
    BRIEF = 1 << 13, /* the record was released so */
    TOUCHED = 1 << 14,
};

/* What is left behind. Otherwise: nothing was changed. */
enum {
    GRANT = 1 << 0,    /* the next epoch, this claim, a whole lease */
    LEASED = 1 << 1,   /* a whole lease from now */
    ENDED = 1 << 2,    /* the lease is over */
    KEPT = 1 << 3,     /* the lease is as it was */
    CLEAN = 1 << 4,    /* no flags */
    NOTED = 1 << 5,    /* flag by lease */
    STAINED = 1 << 6,  /* flag tainted */
    RETAINED = 1 << 7, /* expires a ttl from now */
    GONE = 1 << 8,
    SOILED = 1 << 9,   /* flag touched */
    BRIEFLY = 1 << 10, /* expires two leases from now */
    WIPED = 1 << 11,   /* only texts and payload are gone */
};

typedef struct cell {
    const char *row;
    once__event_kind_t event;
    uint8_t from;
    unsigned given;
    uint8_t outcome, to;
    unsigned then;
} cell_t;

/* clang-format off */
static const cell_t cells[] = {
    /* none, failed: claim -> pending, epoch + 1, run */
    {"claim: new", ONCE__CLAIM, N, 0, ONCE_OUTCOME_RUN, P, GRANT | CLEAN},
    {"claim: new", ONCE__CLAIM, C, EXPIRED, ONCE_OUTCOME_RUN, P, GRANT | CLEAN},
    {"claim: new", ONCE__CLAIM, F, EXPIRED | OTHER, ONCE_OUTCOME_RUN, P, GRANT | CLEAN},
    {"claim: failed", ONCE__CLAIM, F, 0, ONCE_OUTCOME_RUN, P, GRANT | SOILED},
    {"claim: failed", ONCE__CLAIM, F, HOLD, ONCE_OUTCOME_RUN, P, GRANT | SOILED},
    {"claim: refused before", ONCE__CLAIM, F, BRIEF, ONCE_OUTCOME_RUN, P, GRANT | CLEAN},
    {"claim: refused before", ONCE__CLAIM, F, BRIEF | HOLD, ONCE_OUTCOME_RUN, P, GRANT | CLEAN},
    {"claim: new", ONCE__CLAIM, F, BRIEF | EXPIRED | OTHER, ONCE_OUTCOME_RUN, P, GRANT | CLEAN},
    {"claim: released claim again", ONCE__CLAIM, F, MINE, ONCE_OUTCOME_LOST, F, 0},
    /* pending: the same claim again -> unchanged, run */
    {"claim: same claim again", ONCE__CLAIM, P, MINE | LIVE, ONCE_OUTCOME_RUN, P, 0},
    {"claim: same claim again", ONCE__CLAIM, P, MINE | HOLD, ONCE_OUTCOME_RUN, P, 0},
    /* pending, lease live: claim by another -> busy */
    {"claim: lease live", ONCE__CLAIM, P, LIVE, ONCE_OUTCOME_BUSY, P, 0},
    {"claim: lease live", ONCE__CLAIM, P, LIVE | HOLD, ONCE_OUTCOME_BUSY, P, 0},
    /* pending, lease over: claim by another */
    {"claim: lease over", ONCE__CLAIM, P, 0, ONCE_OUTCOME_RUN, P, GRANT | STAINED},
    {"claim: lease over", ONCE__CLAIM, P, TRANSACTIONAL, ONCE_OUTCOME_RUN, P, GRANT | STAINED},
    {"claim: lease over, hold", ONCE__CLAIM, P, HOLD, ONCE_OUTCOME_UNKNOWN, U, NOTED | KEPT},
    {"claim: lease over, hold", ONCE__CLAIM, P, ASK_HOLD, ONCE_OUTCOME_UNKNOWN, U, NOTED | KEPT},
    /* unknown: claim by another */
    {"claim: unknown, lease live", ONCE__CLAIM, U, LIVE, ONCE_OUTCOME_BUSY, U, 0},
    {"claim: unknown, lease live", ONCE__CLAIM, U, LIVE | TRANSACTIONAL, ONCE_OUTCOME_BUSY, U, 0},
    {"claim: unknown, lease over", ONCE__CLAIM, U, BY_LEASE, ONCE_OUTCOME_RUN, P, GRANT | STAINED},
    {"claim: unknown, lease over", ONCE__CLAIM, U, TRANSACTIONAL, ONCE_OUTCOME_RUN, P, GRANT | STAINED},
    {"claim: unknown, hold", ONCE__CLAIM, U, HOLD | LIVE, ONCE_OUTCOME_UNKNOWN, U, 0},
    {"claim: unknown, hold", ONCE__CLAIM, U, HOLD | BY_LEASE, ONCE_OUTCOME_UNKNOWN, U, 0},
    {"claim: unknown, hold", ONCE__CLAIM, U, ASK_HOLD, ONCE_OUTCOME_UNKNOWN, U, 0},
    /* unknown by lease: the same claim again -> mine */
    {"claim: mine, unknown by lease", ONCE__CLAIM, U, MINE | BY_LEASE | HOLD, ONCE__MINE, U, 0},
    {"claim: doubted claim again", ONCE__CLAIM, U, MINE, ONCE_OUTCOME_UNKNOWN, U, 0},
    /* completed: claim, same fingerprint -> replay; any but none: other fingerprint -> mismatch, checked first */
    {"claim: completed", ONCE__CLAIM, C, LIVE | HOLD, ONCE_OUTCOME_REPLAY, C, 0},
    {"claim: completed", ONCE__CLAIM, C, MINE, ONCE_OUTCOME_REPLAY, C, 0},
    {"claim: other fingerprint", ONCE__CLAIM, P, OTHER | LIVE, ONCE_OUTCOME_MISMATCH, P, 0},
    {"claim: other fingerprint", ONCE__CLAIM, P, OTHER | MINE | LIVE, ONCE_OUTCOME_MISMATCH, P, 0},
    {"claim: other fingerprint", ONCE__CLAIM, F, OTHER, ONCE_OUTCOME_MISMATCH, F, 0},
    {"claim: other fingerprint", ONCE__CLAIM, F, OTHER | BRIEF, ONCE_OUTCOME_MISMATCH, F, 0},
    {"claim: other fingerprint", ONCE__CLAIM, U, OTHER | HOLD, ONCE_OUTCOME_MISMATCH, U, 0},
    {"claim: other fingerprint", ONCE__CLAIM, C, OTHER, ONCE_OUTCOME_MISMATCH, C, 0},
    {"claim: newer version", ONCE__CLAIM, F, NEWER, ONCE_OUTCOME_BUSY, F, 0},
    {"claim: newer version", ONCE__CLAIM, C, NEWER | EXPIRED | OTHER, ONCE_OUTCOME_BUSY, C, 0},

    /* pending, unknown: complete(claim) -> completed; completed by this claim -> already; everything else -> lost */
    {"complete", ONCE__COMPLETE, P, MINE | LIVE, ONCE_OUTCOME_DONE, C, CLEAN | RETAINED},
    {"complete", ONCE__COMPLETE, U, MINE | BY_LEASE | TAINTED | HOLD, ONCE_OUTCOME_DONE, C, CLEAN | RETAINED},
    {"complete: again", ONCE__COMPLETE, C, MINE, ONCE_OUTCOME_ALREADY, C, 0},
    {"complete: stale", ONCE__COMPLETE, N, 0, ONCE_OUTCOME_LOST, N, 0},
    {"complete: stale", ONCE__COMPLETE, P, LIVE, ONCE_OUTCOME_LOST, P, 0},
    {"complete: stale", ONCE__COMPLETE, F, MINE, ONCE_OUTCOME_LOST, F, 0},
    {"complete: stale", ONCE__COMPLETE, C, MINE | EXPIRED, ONCE_OUTCOME_LOST, C, 0},
    {"complete: newer version", ONCE__COMPLETE, P, MINE | NEWER, ONCE_OUTCOME_BUSY, P, 0},

    /* pending, unknown: release(claim) -> failed; but unknown with the lease over after an earlier doubt */
    {"release", ONCE__RELEASE, P, MINE | LIVE, ONCE_OUTCOME_DONE, F, CLEAN | RETAINED},
    {"release", ONCE__RELEASE, U, MINE | BY_LEASE, ONCE_OUTCOME_DONE, F, CLEAN | RETAINED},
    {"release: earlier doubt", ONCE__RELEASE, P, MINE | LIVE | TAINTED, ONCE_OUTCOME_DONE, U, ENDED | STAINED},
    {"release: earlier doubt", ONCE__RELEASE, U, MINE | BY_LEASE | TAINTED, ONCE_OUTCOME_DONE, U, ENDED | STAINED},
    {"release: earlier doubt", ONCE__RELEASE, P, MINE | TAINTED | EARLY, ONCE_OUTCOME_DONE, U, ENDED | STAINED},
    {"release: before any effect", ONCE__RELEASE, P, MINE | LIVE | EARLY, ONCE_OUTCOME_DONE, F, CLEAN | BRIEFLY},
    {"release: before any effect", ONCE__RELEASE, U, MINE | BY_LEASE | EARLY | HOLD, ONCE_OUTCOME_DONE, F, CLEAN | BRIEFLY},
    {"release", ONCE__RELEASE, P, MINE | LIVE | EARLY | TOUCHED, ONCE_OUTCOME_DONE, F, CLEAN | RETAINED},
    {"release: again", ONCE__RELEASE, F, MINE | EARLY, ONCE_OUTCOME_DONE, F, 0},
    {"release: again", ONCE__RELEASE, F, MINE, ONCE_OUTCOME_DONE, F, 0},
    {"release: completed", ONCE__RELEASE, C, MINE, ONCE_OUTCOME_ALREADY, C, 0},
    {"release: stale", ONCE__RELEASE, F, 0, ONCE_OUTCOME_LOST, F, 0},
    {"release: newer version", ONCE__RELEASE, U, MINE | NEWER, ONCE_OUTCOME_BUSY, U, 0},

    /* pending: doubt(claim) -> unknown, lease = now + lease */
    {"doubt", ONCE__DOUBT, P, MINE | LIVE | TAINTED, ONCE_OUTCOME_DONE, U, LEASED | STAINED},
    {"doubt", ONCE__DOUBT, P, MINE, ONCE_OUTCOME_DONE, U, LEASED | CLEAN},
    {"doubt: unknown by lease", ONCE__DOUBT, U, MINE | BY_LEASE, ONCE_OUTCOME_DONE, U, LEASED | CLEAN},
    {"doubt: again", ONCE__DOUBT, U, MINE | LIVE, ONCE_OUTCOME_DONE, U, 0},
    {"doubt: completed", ONCE__DOUBT, C, MINE, ONCE_OUTCOME_ALREADY, C, 0},
    {"doubt: stale", ONCE__DOUBT, U, 0, ONCE_OUTCOME_LOST, U, 0},
    {"doubt: stale", ONCE__DOUBT, F, MINE, ONCE_OUTCOME_LOST, F, 0},
    {"doubt: newer version", ONCE__DOUBT, P, MINE | NEWER, ONCE_OUTCOME_BUSY, P, 0},

    /* pending, unknown: renew(claim) -> lease extended, also when it had run out */
    {"renew", ONCE__RENEW, P, MINE | LIVE, ONCE_OUTCOME_DONE, P, LEASED | CLEAN},
    {"renew", ONCE__RENEW, P, MINE | TAINTED, ONCE_OUTCOME_DONE, P, LEASED | STAINED},
    {"renew", ONCE__RENEW, U, MINE | BY_LEASE, ONCE_OUTCOME_DONE, U, LEASED | NOTED},
    {"renew: completed", ONCE__RENEW, C, MINE, ONCE_OUTCOME_ALREADY, C, 0},
    {"renew: stale", ONCE__RENEW, F, MINE, ONCE_OUTCOME_LOST, F, 0},
    {"renew: stale", ONCE__RENEW, P, LIVE, ONCE_OUTCOME_LOST, P, 0},
    {"renew: newer version", ONCE__RENEW, P, MINE | NEWER, ONCE_OUTCOME_BUSY, P, 0},

    /* unknown (or pending, lease over): settle naming the claim; refused while the lease is live, except by force */
    {"settle completed", ONCE__SETTLE_COMPLETED, U, MINE | TAINTED | HOLD, ONCE_OUTCOME_DONE, C, CLEAN | RETAINED},
    {"settle completed", ONCE__SETTLE_COMPLETED, P, MINE, ONCE_OUTCOME_DONE, C, CLEAN | RETAINED},
    {"settle completed: forced", ONCE__SETTLE_COMPLETED, P, MINE | LIVE | FORCE, ONCE_OUTCOME_DONE, C, CLEAN | RETAINED},
    {"settle completed: again", ONCE__SETTLE_COMPLETED, C, MINE, ONCE_OUTCOME_ALREADY, C, 0},
    {"settle completed: refused", ONCE__SETTLE_COMPLETED, U, MINE | LIVE, ONCE_OUTCOME_REFUSED, U, 0},
    {"settle completed: refused", ONCE__SETTLE_COMPLETED, U, FORCE, ONCE_OUTCOME_REFUSED, U, 0},
    {"settle completed: refused", ONCE__SETTLE_COMPLETED, F, MINE, ONCE_OUTCOME_REFUSED, F, 0},
    {"settle completed: newer", ONCE__SETTLE_COMPLETED, U, MINE | NEWER, ONCE_OUTCOME_BUSY, U, 0},
    {"settle failed", ONCE__SETTLE_FAILED, U, MINE | TAINTED | BY_LEASE, ONCE_OUTCOME_DONE, F, CLEAN | RETAINED},
    {"settle failed", ONCE__SETTLE_FAILED, P, MINE | HOLD, ONCE_OUTCOME_DONE, F, CLEAN | RETAINED},
    {"settle failed: forced", ONCE__SETTLE_FAILED, U, MINE | LIVE | FORCE, ONCE_OUTCOME_DONE, F, CLEAN | RETAINED},
    {"settle failed: again", ONCE__SETTLE_FAILED, F, MINE, ONCE_OUTCOME_DONE, F, 0},
    {"settle failed: completed", ONCE__SETTLE_FAILED, C, MINE | FORCE, ONCE_OUTCOME_ALREADY, C, 0},
    {"settle failed: refused", ONCE__SETTLE_FAILED, P, MINE | LIVE, ONCE_OUTCOME_REFUSED, P, 0},
    {"settle failed: refused", ONCE__SETTLE_FAILED, U, FORCE, ONCE_OUTCOME_REFUSED, U, 0},
    {"settle failed: refused", ONCE__SETTLE_FAILED, C, FORCE, ONCE_OUTCOME_REFUSED, C, 0},
    {"settle failed: newer", ONCE__SETTLE_FAILED, U, MINE | NEWER, ONCE_OUTCOME_BUSY, U, 0},

    /* completed, failed: ttl over -> none; pending and unknown never expire, abandoned ones are reaped unless hold */
    {"reap: expired", ONCE__REAP, C, EXPIRED | HOLD, ONCE_OUTCOME_DONE, N, GONE},
    {"reap: expired", ONCE__REAP, F, EXPIRED, ONCE_OUTCOME_DONE, N, GONE},
    {"reap: abandoned", ONCE__REAP, P, LONG_OVER, ONCE_OUTCOME_DONE, N, GONE},
    {"reap: abandoned", ONCE__REAP, U, LONG_OVER | TRANSACTIONAL, ONCE_OUTCOME_DONE, N, GONE},
    {"reap: kept", ONCE__REAP, U, LONG_OVER | HOLD, ONCE_OUTCOME_REFUSED, U, 0},
    {"reap: kept", ONCE__REAP, U, 0, ONCE_OUTCOME_REFUSED, U, 0},
    {"reap: kept", ONCE__REAP, C, 0, ONCE_OUTCOME_REFUSED, C, 0},
    {"reap: kept", ONCE__REAP, C, EXPIRED | NEWER, ONCE_OUTCOME_REFUSED, C, 0},

    {"purge: ended", ONCE__PURGE, C, MINE, ONCE_OUTCOME_DONE, N, GONE},
    {"purge: ended", ONCE__PURGE, F, MINE, ONCE_OUTCOME_DONE, N, GONE},
    {"purge: forced", ONCE__PURGE, U, MINE | FORCE | HOLD, ONCE_OUTCOME_DONE, N, GONE},
    {"purge: forced", ONCE__PURGE, P, MINE | FORCE | LIVE, ONCE_OUTCOME_DONE, N, GONE},
    {"purge: refused", ONCE__PURGE, U, MINE, ONCE_OUTCOME_REFUSED, U, 0},
    {"purge: refused", ONCE__PURGE, C, FORCE, ONCE_OUTCOME_REFUSED, C, 0},
    {"purge: refused", ONCE__PURGE, N, FORCE, ONCE_OUTCOME_REFUSED, N, 0},

    /* completed, failed: erase(claim) -> the same without its texts; nothing else is erased */
    {"erase", ONCE__ERASE, C, MINE, ONCE_OUTCOME_DONE, C, WIPED | KEPT},
    {"erase", ONCE__ERASE, F, MINE | HOLD, ONCE_OUTCOME_DONE, F, WIPED | KEPT},
    {"erase", ONCE__ERASE, F, MINE | BRIEF, ONCE_OUTCOME_DONE, F, WIPED | KEPT},
    {"erase: refused", ONCE__ERASE, C, FORCE, ONCE_OUTCOME_REFUSED, C, 0},
    {"erase: refused", ONCE__ERASE, C, MINE | EXPIRED, ONCE_OUTCOME_REFUSED, C, 0},
    {"erase: refused", ONCE__ERASE, P, MINE | FORCE, ONCE_OUTCOME_REFUSED, P, 0},
    {"erase: refused", ONCE__ERASE, U, MINE | FORCE, ONCE_OUTCOME_REFUSED, U, 0},
    {"erase: refused", ONCE__ERASE, N, FORCE, ONCE_OUTCOME_REFUSED, N, 0},
    {"erase: newer version", ONCE__ERASE, C, MINE | NEWER, ONCE_OUTCOME_BUSY, C, 0},
};
/* clang-format on */

static once__head_t head_of(const cell_t *cell)
{
    once__head_t head = {
        .schema = ONCE__SCHEMA, .state = cell->from, .claim = {.epoch = 7, .id = {1}}};

    head.schema = (uint8_t)(head.schema + (cell->given & NEWER ? 1 : 0));
    head.recover = cell->given & HOLD            ? ONCE_RECOVER_HOLD
                   : cell->given & TRANSACTIONAL ? ONCE_RECOVER_TRANSACTIONAL
                                                 : ONCE_RECOVER_RETRY;
    head.flags |= cell->given & BY_LEASE ? ONCE__BY_LEASE : 0;
    head.flags |= cell->given & TAINTED ? ONCE__TAINTED : 0;
    head.flags |= cell->given & TOUCHED ? ONCE__TOUCHED : 0;
    head.lease_ms = LEASE;
    head.ttl_ms = TTL;
    head.lease_until = cell->given & LIVE ? NOW + SHORT : cell->given & LONG_OVER ? NOW - TTL : NOW;
    head.changed = NOW - LEASE;
    if (cell->from == C || cell->from == F) {
        uint64_t kept = cell->given & BRIEF ? 2 * LEASE : TTL;
        head.changed = cell->given & EXPIRED ? NOW - kept : NOW - LEASE;
        head.expires = head.changed + kept;
    }
    head.fingerprint.secret = 3;
    return head;
}

static once__event_t event_of(const cell_t *cell)
{
    once__event_t event = {
        .kind = cell->event, .lease_ms = LEASE, .ttl_ms = TTL, .fingerprint_count = 1};

    event.claim.id[0] = cell->given & MINE ? 1 : 2;
    event.claim.epoch = cell->given & MINE ? 7 : 6;
    event.force = (cell->given & FORCE) != 0;
    if (cell->event == ONCE__RELEASE) {
        event.ttl_ms = cell->given & EARLY ? SHORT : 0;
    }
    event.recover = cell->given & ASK_HOLD ? ONCE_RECOVER_HOLD : ONCE_RECOVER_RETRY;
    event.fingerprints[0].secret = 3;
    event.fingerprints[0].mac[0] = (cell->given & OTHER) != 0;
    return event;
}

/* Everything about the next head that the cell names. */
static void check_next(const cell_t *cell, const once__head_t *was, const once__event_t *event,
                       const once__head_t *is)
{
    uint8_t flags = (uint8_t)((cell->then & NOTED ? ONCE__BY_LEASE : 0) |
                              (cell->then & STAINED ? ONCE__TAINTED : 0) |
                              (cell->then & SOILED ? ONCE__TOUCHED : 0));
    int fresh = cell->from == N || (cell->given & EXPIRED);

    if (cell->then & GRANT) {
        assert_int_equal(is->claim.epoch, fresh ? 1 : was->claim.epoch + 1);
        assert_memory_equal(is->claim.id, event->claim.id, ONCE_CLAIM_ID_SIZE);
        assert_int_equal(is->lease_until, NOW + LEASE);
        assert_int_equal(is->expires, 0);
        assert_int_equal(is->recover,
                         fresh || event->recover > was->recover ? event->recover : was->recover);
        assert_int_equal(is->created, fresh ? NOW : was->created);
    } else {
        assert_int_equal(is->claim.epoch, was->claim.epoch);
        assert_memory_equal(is->claim.id, was->claim.id, ONCE_CLAIM_ID_SIZE);
        assert_int_equal(is->recover, was->recover);
    }
    if (cell->then & LEASED) {
        assert_int_equal(is->lease_until, NOW + LEASE);
    }
    if (cell->then & ENDED) {
        assert_true(is->lease_until <= NOW);
    }
    if (cell->then & KEPT) {
        assert_int_equal(is->lease_until, was->lease_until);
    }
    if (cell->then & (CLEAN | NOTED | STAINED | SOILED)) {
        assert_int_equal(is->flags, flags);
    }
    if (cell->then & RETAINED) {
        assert_int_equal(is->expires, NOW + TTL);
    }
    if (cell->then & BRIEFLY) {
        assert_int_equal(is->expires, NOW + 2 * LEASE);
        assert_int_equal(is->ttl_ms, TTL);
    }
    if (cell->then & WIPED) {
        assert_memory_equal(is, was, sizeof(*is));
        return;
    }
    assert_int_equal(is->changed, NOW);
}

static void each_cell_decides_as_the_contract_says(void **state)
{
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
        const cell_t *cell = &cells[i];
        once__head_t head = head_of(cell);
        once__event_t event = event_of(cell);
        once__step_t step;

        once__step(&once__rules, cell->from == N ? NULL : &head, &event, NOW, &step);
        assert_string_equal(step.rule->name, cell->row);
        assert_int_equal(step.outcome, cell->outcome);
        assert_int_equal(step.changed, cell->then != 0);
        if (cell->then != 0) {
            assert_int_equal(step.next.state, cell->to);
        }
        if (cell->then != 0 && cell->to != N) {
            check_next(cell, &head, &event, &step.next);
        }
    }
}

/* As long as was asked for, but at least two leases, and never longer than its ttl. */
static void brief_has_bounds(void **state)
{
    static const struct {
        uint64_t asked, lease, ttl, kept;
    } cases[] = {
        {1, LEASE, TTL, 2 * LEASE},
        {2 * LEASE, LEASE, TTL, 2 * LEASE},
        {2 * LEASE + 1, LEASE, TTL, 2 * LEASE + 1},
        {TTL, LEASE, TTL, TTL},
        {TTL + 1, LEASE, TTL, TTL},
        {1, LEASE, LEASE, LEASE},
        {1, UINT64_MAX, TTL, TTL},
        {UINT64_MAX, LEASE, UINT64_MAX, UINT64_MAX - NOW},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cell_t cell = {.event = ONCE__RELEASE, .from = P, .given = MINE | EARLY};
        once__head_t head = head_of(&cell);
        once__event_t event = event_of(&cell);
        once__step_t step;
        head.lease_ms = cases[i].lease;
        head.ttl_ms = cases[i].ttl;
        event.ttl_ms = cases[i].asked;
        once__step(&once__rules, &head, &event, NOW, &step);
        assert_int_equal(step.next.expires - NOW, cases[i].kept);
        assert_int_equal(step.next.ttl_ms, cases[i].ttl);
    }
}

static void each_row_has_a_cell(void **state)
{
    for (size_t i = 0; i < once__rules.count; i++) {
        size_t found = 0;
        for (size_t k = 0; k < sizeof(cells) / sizeof(cells[0]); k++) {
            found += strcmp(cells[k].row, once__rules.rows[i].name) == 0;
        }
        if (found == 0) {
            fail_msg("no cell for row \"%s\"", once__rules.rows[i].name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_cell_decides_as_the_contract_says),
        cmocka_unit_test(brief_has_bounds),
        cmocka_unit_test(each_row_has_a_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
