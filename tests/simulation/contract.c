/*
 * The contract, as the table must keep it.
 *
 * Two kinds of checks. The first are about harm: which change, and was it allowed (a stale claim, a live lease, a
 * completed record, a hold that must stay). The second are about answers: does each outcome mean what the contract says it
 * means. They are written from the contract's words, not from the table of rules, so that an error in one of them shows.
 */
#include <string.h>

#include "sight.h"

#define STALE     "I4 stale claim changed the record"
#define ONE       "claim: one holder at a time"
#define REFUSED   "I7 the holder is refused"
#define UNDONE    "I8 completed undone"
#define HIDDEN    "I3 failed hides an earlier doubt"
#define TWO       "I9 two bodies under one key"
#define TOO_EARLY "I10 removed too early"
#define MEANING   "an answer means what it says"

#define VIOLATE(sight, property, ...)                                                              \
    world_violate((sight)->world, (sight)->key->number, property, __VA_ARGS__)

/* ------------------------------------------------------------------------------------------------------------- harm */

static void check_claim_harm(const sight_t *s)
{
    int takes = s->after.exists && s->after.head.state == ONCE_STATE_PENDING;

    if (s->state == ONCE_STATE_COMPLETED) {
        VIOLATE(s, UNDONE, "a claim changed a completed record");
    } else if (sight_is_open(s->state) && s->live) {
        VIOLATE(s, ONE, "a claim changed a record whose lease is live");
    } else if (sight_is_open(s->state) && s->hold && takes) {
        VIOLATE(s, ONE, "under hold a claim took over what may have taken effect");
    } else if (s->state != ONCE_STATE_NONE &&
               ledger_variant(s->key, s->event) != s->key->life->variant) {
        VIOLATE(s, TWO, "a claim with another body changed the record");
    }
}

static void check_write_harm(const sight_t *s)
{
    int removed = !s->after.exists || s->after.head.state == ONCE_STATE_NONE;

    if (!s->mine) {
        VIOLATE(s, STALE, "%s of epoch %u changed the record of epoch %u",
                once__event_name(s->event->kind), s->event->claim.epoch,
                s->before.head.claim.epoch);
    } else if (s->state == ONCE_STATE_COMPLETED && s->event->kind != ONCE__PURGE) {
        VIOLATE(s, UNDONE, "%s changed a completed record", once__event_name(s->event->kind));
    } else if (s->state == ONCE_STATE_FAILED && s->event->kind != ONCE__PURGE) {
        VIOLATE(s, STALE, "%s changed a failed record", once__event_name(s->event->kind));
    } else if (removed && s->event->kind != ONCE__PURGE) {
        VIOLATE(s, TOO_EARLY, "%s removed the record", once__event_name(s->event->kind));
    } else if (removed && sight_is_open(s->state) && !s->event->force) {
        VIOLATE(s, TOO_EARLY, "purge without force removed what may have taken effect");
    } else if ((s->event->kind == ONCE__SETTLE_COMPLETED ||
                s->event->kind == ONCE__SETTLE_FAILED) &&
               s->live && !s->event->force) {
        VIOLATE(s, ONE, "settle without force under a live lease");
    } else if (s->event->kind == ONCE__RELEASE && s->key->life->tainted &&
               s->after.head.state == ONCE_STATE_FAILED) {
        VIOLATE(s, HIDDEN, "release of epoch %u: an earlier one ended in doubt or by lease",
                s->event->claim.epoch);
    } else if (s->after.head.state == ONCE_STATE_FAILED && s->key->life->effects > 0 &&
               s->event->kind == ONCE__RELEASE &&
               s->after.head.expires < s->now + s->after.head.ttl_ms) {
        VIOLATE(s, TWO, "it took effect, and its key is soon free for another body");
    }
}

/* A record is gone although its removal was not asked for. */
void contract_check_removal(world_t *world, const sim_key_t *key, uint64_t clock)
{
    const once__head_t *head = &key->seen.head;
    uint64_t now = head->changed > clock ? head->changed : clock;

    if (sight_is_over(&key->seen, now)) {
        return;
    }
    if (!sight_is_open((once_state_t)head->state)) {
        world_violate(world, key->number, TOO_EARLY, "a %s record was reaped before its ttl",
                      once_state_name((once_state_t)head->state));
    } else if (head->recover == ONCE_RECOVER_HOLD) {
        world_violate(world, key->number, TOO_EARLY, "a %s record was reaped under hold",
                      once_state_name((once_state_t)head->state));
    } else if (now < head->lease_until + head->ttl_ms) {
        world_violate(world, key->number, TOO_EARLY,
                      "a %s record was reaped before a retention had passed after its lease",
                      once_state_name((once_state_t)head->state));
    }
}

/* ---------------------------------------------------------------------------------------------------------- answers */

static int is_granted(const sight_t *s)
{
    const once__head_t *head = &s->after.head;
    uint32_t epoch = s->state == ONCE_STATE_NONE ? 1 : s->before.head.claim.epoch + 1;

    return s->changed && head->state == ONCE_STATE_PENDING && head->claim.epoch == epoch &&
           memcmp(head->claim.id, s->event->claim.id, ONCE_CLAIM_ID_SIZE) == 0 &&
           head->lease_until == s->now + s->event->lease_ms && head->recover >= s->event->recover &&
           s->after.payload_kind == ONCE__PAYLOAD_NONE && ledger_variant(s->key, s->event) >= 0;
}

/* Does the outcome of a claim say what was so before, and what is so now? */
static int claim_means_it(const sight_t *s)
{
    int same = s->state != ONCE_STATE_NONE && once__fingerprint_known(&s->before.head, s->event) &&
               ledger_variant(s->key, s->event) == s->key->life->variant;
    int by_lease = (s->before.head.flags & ONCE__BY_LEASE) != 0;

    switch (s->op->outcome) {
    case ONCE_OUTCOME_RUN:
        return s->changed ? is_granted(s) && (s->state != ONCE_STATE_FAILED || !s->mine)
                          : s->state == ONCE_STATE_PENDING && s->mine && same;
    case ONCE_OUTCOME_BUSY:
        return !s->changed && same && sight_is_open(s->state) && s->live && !s->mine &&
               !(s->state == ONCE_STATE_UNKNOWN && s->hold);
    case ONCE_OUTCOME_UNKNOWN: /* a store that is full says so of a held record without writing it down */
        return same && (s->hold || s->mine) &&
               (s->after.head.state == ONCE_STATE_UNKNOWN ||
                (!s->changed && s->state == ONCE_STATE_PENDING && !s->live && !s->mine &&
                 s->before.head.recover == ONCE_RECOVER_HOLD));
    case ONCE__MINE:
        return !s->changed && same && s->state == ONCE_STATE_UNKNOWN && s->mine && by_lease;
    case ONCE_OUTCOME_REPLAY:
        return !s->changed && same && s->state == ONCE_STATE_COMPLETED;
    case ONCE_OUTCOME_MISMATCH:
        return !s->changed && s->state != ONCE_STATE_NONE && !same;
    case ONCE_OUTCOME_LOST:
        return !s->changed && s->state == ONCE_STATE_FAILED && s->mine;
    default:
        return 0;
    }
}

/* How long it is kept: two leases or what was asked for, if nothing that may have taken effect was released. */
static uint64_t release_ttl(const sight_t *s)
{
    uint64_t ms = 2 * s->before.head.lease_ms, ttl = s->before.head.ttl_ms;

    ms = s->event->ttl_ms > ms ? s->event->ttl_ms : ms;
    return s->event->ttl_ms == 0 || s->key->life->touched || ttl < ms ? ttl : ms;
}

static int is_ended(const sight_t *s, once_state_t state)
{
    uint64_t ttl = s->event->kind == ONCE__RELEASE ? release_ttl(s)
                   : s->event->ttl_ms != 0         ? s->event->ttl_ms
                                                   : s->before.head.ttl_ms;

    return s->changed && sight_is_open(s->state) && s->after.head.state == state &&
           s->after.head.expires == s->now + ttl && s->after.head.flags == 0;
}

static int is_recorded(const sight_t *s)
{
    return is_ended(s, ONCE_STATE_COMPLETED) && s->after.payload_kind == s->op->payload.kind &&
           s->after.payload_status == s->op->payload.status &&
           s->after.payload_len == s->op->payload.len;
}

static int is_released(const sight_t *s)
{
    if (s->state == ONCE_STATE_FAILED) {
        return !s->changed;
    }
    if (s->key->life->tainted) {
        return s->after.head.state == ONCE_STATE_UNKNOWN && s->after.head.lease_until <= s->now;
    }
    return is_ended(s, ONCE_STATE_FAILED);
}

static int is_doubted(const sight_t *s)
{
    uint64_t lease = s->event->lease_ms != 0 ? s->event->lease_ms : s->before.head.lease_ms;
    int again = s->state == ONCE_STATE_UNKNOWN && !(s->before.head.flags & ONCE__BY_LEASE);

    return s->after.head.state == ONCE_STATE_UNKNOWN &&
           (s->after.head.flags & ONCE__BY_LEASE) == 0 &&
           (again ? !s->changed : s->after.head.lease_until == s->now + lease);
}

static int is_renewed(const sight_t *s)
{
    uint64_t lease = s->event->lease_ms != 0 ? s->event->lease_ms : s->before.head.lease_ms;

    return s->after.head.state == s->before.head.state &&
           s->after.head.lease_until >= s->now + lease &&
           s->after.head.lease_until >= s->before.head.lease_until;
}

static int done_means_it(const sight_t *s)
{
    switch (s->event->kind) {
    case ONCE__COMPLETE:
    case ONCE__SETTLE_COMPLETED:
        return is_recorded(s);
    case ONCE__RELEASE:
        return is_released(s);
    case ONCE__SETTLE_FAILED:
        return s->state == ONCE_STATE_FAILED ? !s->changed : is_ended(s, ONCE_STATE_FAILED);
    case ONCE__DOUBT:
        return is_doubted(s);
    case ONCE__RENEW:
        return is_renewed(s);
    case ONCE__PURGE:
        return !s->after.exists;
    default:
        return 0;
    }
}

/* What the holder, or a caller that names the record's claim, is owed. */
static once_outcome_t owed(const sight_t *s)
{
    int settles = s->event->kind == ONCE__SETTLE_COMPLETED || s->event->kind == ONCE__SETTLE_FAILED;
    once_outcome_t no =
        settles || s->event->kind == ONCE__PURGE ? ONCE_OUTCOME_REFUSED : ONCE_OUTCOME_LOST;

    if (!s->mine) {
        return no;
    }
    if (s->event->kind == ONCE__PURGE) {
        return sight_is_open(s->state) && !s->event->force ? ONCE_OUTCOME_REFUSED
                                                           : ONCE_OUTCOME_DONE;
    }
    if (s->state == ONCE_STATE_COMPLETED) {
        return ONCE_OUTCOME_ALREADY;
    }
    if (s->state == ONCE_STATE_FAILED) {
        return s->event->kind == ONCE__RELEASE || s->event->kind == ONCE__SETTLE_FAILED
                   ? ONCE_OUTCOME_DONE
                   : no;
    }
    return settles && s->live && !s->event->force ? ONCE_OUTCOME_REFUSED : ONCE_OUTCOME_DONE;
}

static void check_write_answer(const sight_t *s)
{
    once_outcome_t right = owed(s);

    if (s->op->outcome != right) {
        VIOLATE(s, right == ONCE_OUTCOME_DONE || right == ONCE_OUTCOME_ALREADY ? REFUSED : MEANING,
                "%s of epoch %u is answered %s, not %s", once__event_name(s->event->kind),
                s->event->claim.epoch, once_outcome_name((once_outcome_t)s->op->outcome),
                once_outcome_name(right));
    } else if (right == ONCE_OUTCOME_DONE ? !done_means_it(s) : s->changed) {
        VIOLATE(s, MEANING, "%s is answered %s", once__event_name(s->event->kind),
                once_outcome_name(right));
    }
}

void contract_check(const sight_t *sight)
{
    int claims = sight->event->kind == ONCE__CLAIM;

    if (sight->changed && (claims || sight->state != ONCE_STATE_NONE)) {
        (claims ? check_claim_harm : check_write_harm)(sight);
    } else if (sight->changed) {
        VIOLATE(sight, STALE, "%s changed a record that does not exist",
                once__event_name(sight->event->kind));
    }
    if (sight->world->harm_only) {
        return;
    }
    if (claims && !claim_means_it(sight)) {
        VIOLATE(sight, MEANING, "claim is answered %s", sight_outcome(sight));
    } else if (!claims) {
        check_write_answer(sight);
    }
}
