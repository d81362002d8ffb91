#include "support/situations.h"

#include "support/testing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define HOUR      ((int64_t)3600 * 1000)
#define CASES_MAX 300000

static struct {
    situation_t *cases;
    size_t count;
    uint64_t base;
} made;

static const uint8_t mine[ONCE_CLAIM_ID_SIZE] = "mine...........";
static const uint8_t other[ONCE_CLAIM_ID_SIZE] = "other..........";
static const once__fingerprint_t first_print = {7, 1, "first"};
static const once__fingerprint_t second_print = {9, 1, "second"};

/* ------------------------------------------------------------------------------------------------------- what they say */

#define TEN      "0123456789"
#define ATTEMPT  "\x0b\x43\0\0\0\0\0\1h:1x"
#define LONGEST  "\x57\xa8\0\0\0\0\0\1" TEN TEN TEN TEN TEN TEN TEN TEN
#define ATTEMPTS LONGEST LONGEST ATTEMPT ATTEMPT ATTEMPT ATTEMPT ATTEMPT

static const char why_unknown[] = "because\0" ATTEMPTS, why_other[] = "\0" ATTEMPTS ATTEMPT;
static const once__payload_t response = {ONCE__PAYLOAD_RESPONSE, 200, (const uint8_t *)"old", 3};
static const once__payload_t note = {ONCE__PAYLOAD_NOTE, 503, (const uint8_t *)TEN TEN TEN TEN TEN,
                                     50};

static_assert(sizeof(why_other) - 1 <= ONCE__WHY_MAX, "as many as fit");

once__record_t situation_record(const situation_t *s)
{
    once__record_t record = {
        .head = s->before, .key = "k", .key_len = 1, .about = {"\1\3h:1old", 8}};

    if (s->before.state == ONCE_STATE_FAILED && s->op.id[24] % 3 == 0) {
        return (once__record_t){.head = s->before, .payload = {ONCE__PAYLOAD_ERASED, 503, NULL, 0}};
    }
    record.cause = s->before.state == ONCE_STATE_UNKNOWN
                       ? once__slice(why_unknown, sizeof(why_unknown) - 1)
                       : once__slice(why_other, sizeof(why_other) - 1);
    if (s->before.state == ONCE_STATE_COMPLETED) {
        record.payload = response;
    } else if (s->before.state == ONCE_STATE_FAILED) {
        record.payload = note;
    }
    return record;
}

/* ---------------------------------------------------------------------------------------------------------- situations */

static uint64_t at(int64_t offset)
{
    return (uint64_t)((int64_t)made.base + offset);
}

static situation_t *add(const once__head_t *before, once__event_kind_t kind)
{
    situation_t *s = &made.cases[made.count];

    assert_true(made.count < CASES_MAX);
    made.count++;
    memset(s, 0, sizeof(*s));
    s->before = *before;
    s->op.kind = ONCE__OP_EVENT;
    s->op.event.kind = kind;
    s->op.event.claim.epoch = 3;
    memcpy(s->op.event.claim.id, mine, sizeof(mine));
    s->op.key = "key";
    s->op.key_len = 3;
    if (kind == ONCE__CLAIM) {
        s->op.about = (once_slice_t){"after", 5};
    } else if (kind != ONCE__RENEW && kind != ONCE__REAP && kind != ONCE__PURGE &&
               kind != ONCE__ERASE) {
        s->op.cause = (once_slice_t){"why", 3};
    }
    once__put64(s->op.id, made.count * 0x9e3779b97f4a7c15u);
    once__put64(s->op.id + 24, made.count);
    return s;
}

static void add_claims(const once__head_t *before)
{
    for (int i = 0; i < 3 * 3 * 2; i++) {
        situation_t *s = add(before, ONCE__CLAIM);
        s->op.event.recover = (uint8_t)(i % 3);
        s->op.event.lease_ms = 31000;
        s->op.event.ttl_ms = 7 * (uint64_t)HOUR;
        s->op.event.fingerprint_count = (uint8_t)(i / 3 % 3 == 2 ? 2 : 1);
        s->op.event.fingerprints[0] = i / 3 % 3 == 0 ? first_print : second_print;
        s->op.event.fingerprints[1] = first_print;
        if (i / 9 % 2) {
            memcpy(s->op.event.claim.id, other, sizeof(other));
        }
    }
}

static void give_payload(situation_t *s)
{
    switch (s->op.event.kind) {
    case ONCE__COMPLETE:
    case ONCE__SETTLE_COMPLETED:
        s->op.payload =
            (once__payload_t){ONCE__PAYLOAD_RESPONSE, 201, (const uint8_t *)"response", 8};
        break;
    case ONCE__RELEASE:
    case ONCE__SETTLE_FAILED:
        s->op.payload = (once__payload_t){ONCE__PAYLOAD_NOTE, 0, (const uint8_t *)"note", 4};
        break;
    default:
        break;
    }
}

static void add_writes(const once__head_t *before)
{
    static const once__event_kind_t kinds[] = {
        ONCE__COMPLETE,         ONCE__RELEASE,       ONCE__DOUBT, ONCE__RENEW,
        ONCE__SETTLE_COMPLETED, ONCE__SETTLE_FAILED, ONCE__PURGE, ONCE__ERASE};

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (int i = 0; i < 3 * 2 * 2; i++) {
            situation_t *s = add(before, kinds[k]);
            if (i % 3 == 1) {
                memcpy(s->op.event.claim.id, other, sizeof(other));
            } else if (i % 3 == 2) {
                s->op.event.claim.epoch = 2;
            }
            s->op.event.force = i / 3 % 2;
            s->op.event.lease_ms = i / 6 % 2 ? 12345 : 0;
            s->op.event.ttl_ms = i / 6 % 2 ? 654321 : 0;
            if (kinds[k] == ONCE__RELEASE && i / 6 % 2) { /* below and above its bounds, too */
                s->op.event.ttl_ms = i / 3 % 2 ? 1 : i % 3 == 0 ? 654321 : 2000000;
            }
            give_payload(s);
        }
    }
}

static void add_reap(const once__head_t *before)
{
    situation_t *s = add(before, ONCE__REAP);

    s->op.event.claim.epoch = 0;
}

static void add_events(const once__head_t *before)
{
    add_claims(before);
    add_writes(before);
    if (before->state != ONCE_STATE_NONE) {
        add_reap(before);
    }
}

/*
 * The clock may have gone back: then the time is that of the last change, to the millisecond, and a lease, a ttl or a retention can
 * end in that very moment.
 */
static void add_times(once__head_t head)
{
    static const int64_t leases[] = {-HOUR, 10 * HOUR, 5 * HOUR, 5 * HOUR - HOUR / 3};
    static const int64_t expiries[] = {0, -HOUR / 2, 20 * HOUR, 0, 5 * HOUR};
    int is_ended = head.state == ONCE_STATE_COMPLETED || head.state == ONCE_STATE_FAILED;

    for (int back = 0; back < 2; back++) {
        int lease_count = back && !is_ended ? 4 : 2, expiry_count = !is_ended ? 1 : back ? 5 : 4;
        for (int i = 0; i < 2 * lease_count * expiry_count; i++) {
            head.changed = at(back ? 5 * HOUR : -2 * HOUR);
            head.ttl_ms = (uint64_t)(i % 2 ? HOUR / 3 : 30 * 24 * HOUR);
            head.lease_until = at(leases[i / 2 % lease_count]);
            head.expires = i / 2 / lease_count == 0 ? 0 : at(expiries[i / 2 / lease_count]);
            if (i / 2 / lease_count == 3) { /* exactly its ttl: nothing that is kept briefly */
                head.expires = head.changed + head.ttl_ms;
            }
            add_events(&head);
        }
    }
}

static void add_all(void)
{
    const once__head_t none = {.state = ONCE_STATE_NONE};

    add_events(&none);
    for (int i = 0; i < 2 * 4 * 3 * 8; i++) {
        once__head_t head = {.schema = (uint8_t)(1 + i % 2),
                             .state = (uint8_t)(1 + i / 2 % 4),
                             .recover = (uint8_t)(i / 8 % 3),
                             .flags = (uint8_t)(i / 24),
                             .claim = {.epoch = 3},
                             .lease_ms = 30000,
                             .created = at(-3 * HOUR),
                             .fingerprint = first_print};
        memcpy(head.claim.id, mine, sizeof(mine));
        if ((head.flags & ONCE__BY_LEASE) && head.state != ONCE_STATE_UNKNOWN) {
            continue;
        }
        /* Only pending and unknown records are touched, and only a release looks at it. */
        if ((head.flags & ONCE__TOUCHED) &&
            (head.state == ONCE_STATE_COMPLETED || head.state == ONCE_STATE_FAILED ||
             head.recover == ONCE_RECOVER_TRANSACTIONAL)) {
            continue;
        }
        add_times(head);
    }
}

situation_t *situations_make(uint64_t base, size_t *count)
{
    made.cases = calloc(CASES_MAX, sizeof(*made.cases));
    assert_non_null(made.cases);
    made.base = base;
    made.count = 0;
    add_all();
    *count = made.count;
    return made.cases;
}

void situation_expect(const situation_t *s, once__step_t *step)
{
    once__step(&once__rules, s->before.state == ONCE_STATE_NONE ? NULL : &s->before, &s->op.event,
               s->op.now, step);
}

int situation_same_head(const once__head_t *a, const once__head_t *b)
{
    if (a->state == ONCE_STATE_NONE || b->state == ONCE_STATE_NONE) {
        return a->state == b->state;
    }
    return a->schema == b->schema && a->state == b->state && a->recover == b->recover &&
           a->flags == b->flags && a->claim.epoch == b->claim.epoch &&
           memcmp(a->claim.id, b->claim.id, ONCE_CLAIM_ID_SIZE) == 0 &&
           a->lease_until == b->lease_until && a->lease_ms == b->lease_ms &&
           a->changed == b->changed && a->expires == b->expires && a->created == b->created &&
           /* Of a newer version's only the envelope is read. */
           (a->schema > ONCE__SCHEMA ||
            (a->ttl_ms == b->ttl_ms && a->fingerprint.secret == b->fingerprint.secret &&
             a->fingerprint.mode == b->fingerprint.mode &&
             memcmp(a->fingerprint.mac, b->fingerprint.mac, 32) == 0));
}

void situation_describe(const situation_t *s, const once__step_t *step, uint64_t base)
{
    print_error(
        "%s: state %u schema %u recover %u flags %u lease %lld changed %lld expires %lld "
        "ttl %llu; epoch %u force %d "
        "recover %u prints %u mine %d -> store: outcome %u state %u, rules \"%s\" outcome %u "
        "state %u\n",
        once__event_name(s->op.event.kind), s->before.state, s->before.schema, s->before.recover,
        s->before.flags, (long long)(s->before.lease_until - base),
        (long long)(s->before.changed - base), (long long)(s->before.expires - base),
        (unsigned long long)s->before.ttl_ms, s->op.event.claim.epoch, s->op.event.force,
        s->op.event.recover, s->op.event.fingerprint_count,
        memcmp(s->op.event.claim.id, mine, sizeof(mine)) == 0, s->op.outcome, s->op.head.state,
        step->rule->name, step->outcome, step->next.state);
}
