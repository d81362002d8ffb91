#include "sight.h"

#include <string.h>

uint64_t sight_hash(const uint8_t *data, size_t len)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ data[i]) * 1099511628211u;
    }
    return hash;
}

mirror_t sight_look(const world_t *world, const sim_key_t *key)
{
    const once__record_t *record = once__table_peek(world->table, key->id);
    mirror_t mirror;

    memset(&mirror, 0, sizeof(mirror));
    if (record != NULL) {
        mirror.exists = 1;
        mirror.head = record->head;
        mirror.payload_kind = record->payload.kind;
        mirror.payload_status = record->payload.status;
        mirror.payload_len = record->payload.len;
        mirror.payload_hash = sight_hash(record->payload.data, record->payload.len);
    }
    return mirror;
}

static int same_claim(const once__claim_ref_t *a, const once__claim_ref_t *b)
{
    return a->epoch == b->epoch && memcmp(a->id, b->id, ONCE_CLAIM_ID_SIZE) == 0;
}

static int same_head(const once__head_t *a, const once__head_t *b)
{
    return a->state == b->state && a->recover == b->recover && a->flags == b->flags &&
           same_claim(&a->claim, &b->claim) && a->lease_until == b->lease_until &&
           a->changed == b->changed && a->expires == b->expires && a->ttl_ms == b->ttl_ms &&
           a->created == b->created && a->fingerprint.secret == b->fingerprint.secret &&
           memcmp(a->fingerprint.mac, b->fingerprint.mac, sizeof(a->fingerprint.mac)) == 0;
}

int sight_same(const mirror_t *a, const mirror_t *b)
{
    return a->exists == b->exists && a->payload_kind == b->payload_kind &&
           a->payload_status == b->payload_status && a->payload_len == b->payload_len &&
           a->payload_hash == b->payload_hash && same_head(&a->head, &b->head);
}

int sight_is_over(const mirror_t *mirror, uint64_t now)
{
    const once__head_t *head = &mirror->head;

    return mirror->exists &&
           (head->state == ONCE_STATE_COMPLETED || head->state == ONCE_STATE_FAILED) &&
           head->expires != 0 && now >= head->expires;
}

int sight_is_open(once_state_t state)
{
    return state == ONCE_STATE_PENDING || state == ONCE_STATE_UNKNOWN;
}

sight_t sight_of(world_t *world, sim_key_t *key, const once__op_t *op, const sender_t *sender,
                 uint64_t clock, const mirror_t *after)
{
    sight_t sight = {.world = world, .key = key, .op = op, .event = &op->event, .sender = sender};
    const once__head_t *head = &key->seen.head;
    int claims = op->event.kind == ONCE__CLAIM;

    sight.before = key->seen;
    sight.after = *after;
    sight.changed = !sight_same(&sight.before, &sight.after);
    sight.now = sight.before.exists && head->changed > clock ? head->changed : clock;
    sight.state = sight.before.exists && !sight_is_over(&sight.before, sight.now)
                      ? (once_state_t)head->state
                      : ONCE_STATE_NONE;
    if (sight.state != ONCE_STATE_NONE) {
        sight.mine = claims ? memcmp(head->claim.id, op->event.claim.id, ONCE_CLAIM_ID_SIZE) == 0
                            : same_claim(&head->claim, &op->event.claim);
        sight.live = sight.now < head->lease_until;
        sight.hold = head->recover == ONCE_RECOVER_HOLD ||
                     (claims && op->event.recover == ONCE_RECOVER_HOLD);
    }
    return sight;
}

const char *sight_outcome(const sight_t *sight)
{
    return sight->op->outcome == ONCE__MINE ? "mine"
                                            : once_outcome_name((once_outcome_t)sight->op->outcome);
}
