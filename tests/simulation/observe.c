/*
 * Every step of the table: shown to the contract, then written into the ledger.
 */
#include <string.h>

#include "core/response.h"
#include "sight.h"

/*
 * A claim id is never used again once it was answered run. (Before that it is repeated until there is an answer, and
 * may be granted again when others came and went meanwhile; and a request that comes late or twice repeats it all the same.)
 */
static void check_fresh_id(const sight_t *s)
{
    for (unsigned i = 0; i < s->world->plan.keys; i++) {
        const life_t *life = s->world->ledger->keys[i].life;
        for (; life != NULL; life = life->next) {
            for (const grant_t *g = life->grants; g != NULL; g = g->next) {
                if (memcmp(g->ref.id, s->event->claim.id, ONCE_CLAIM_ID_SIZE) == 0 && g->runs > 0 &&
                    !s->sender->late) {
                    world_violate(s->world, s->key->number, "claim ids never repeat",
                                  "the id of epoch %u is granted again", g->ref.epoch);
                }
            }
        }
    }
}

static void note_grant(const sight_t *s)
{
    grant_t *grant;

    check_fresh_id(s);
    world_count(s->world, COUNT_GRANTS);
    if (s->sender->late) {
        world_count(s->world, COUNT_LATE_GRANTS);
    }
    if (s->state == ONCE_STATE_NONE) {
        if (s->before.exists) {
            world_count(s->world, COUNT_REBORN);
        }
        ledger_begin_life(s->world, s->key, ledger_variant(s->key, s->event));
    } else if (sight_is_open(s->state)) {
        world_count(s->world, COUNT_TAKEOVERS);
        s->key->life->grants->lease_over = 1;
        s->key->life->tainted = 1;
    }
    if (s->after.head.recover > s->event->recover) {
        world_count(s->world, COUNT_STRICTER);
    }
    grant = ledger_add_grant(s->world, s->key, &s->after.head.claim, s->sender->process,
                             s->sender->late);
    grant->held = s->after.head.recover == ONCE_RECOVER_HOLD;
}

static void note_claim(const sight_t *s)
{
    switch (s->op->outcome) {
    case ONCE_OUTCOME_RUN:
        if (s->changed) {
            note_grant(s);
        } else {
            world_count(s->world, COUNT_RUN_AGAIN);
        }
        break;
    case ONCE_OUTCOME_UNKNOWN:
        if (s->changed) {
            world_count(s->world, COUNT_UNKNOWN_BY_LEASE);
            s->key->life->grants->lease_over = 1;
        }
        break;
    case ONCE__MINE:
        world_count(s->world, COUNT_MINE);
        break;
    case ONCE_OUTCOME_MISMATCH:
        if (!once__fingerprint_known(&s->before.head, s->event)) {
            world_count(s->world, COUNT_UNKNOWN_SECRET);
        }
        break;
    default:
        break;
    }
}

static void note_response(const sight_t *s)
{
    const once__payload_t *payload = &s->op->payload;
    life_t *life = s->key->life;
    once__unpacked_t unpacked;
    size_t len;

    if (s->after.payload_hash != sight_hash(payload->data, payload->len) ||
        once__response_unpack(payload, s->key->id, NULL, NULL, &unpacked) != ONCE_OK) {
        world_violate(s->world, s->key->number, "an answer means what it says",
                      "a completed record has no readable response");
        return;
    }
    len = unpacked.response.body.len;
    len = len < sizeof(life->response.body) ? len : sizeof(life->response.body) - 1;
    memset(&life->response, 0, sizeof(life->response));
    life->response.status = unpacked.response.status;
    memcpy(life->response.body, unpacked.response.body.data, len);
    life->completed = 1;
    once__unpacked_free(&unpacked);
}

static void note_done(const sight_t *s)
{
    life_t *life = s->key->life;

    switch (s->event->kind) {
    case ONCE__COMPLETE:
        world_count(s->world, COUNT_COMPLETED);
        if (s->state == ONCE_STATE_UNKNOWN) {
            world_count(s->world, COUNT_UNKNOWN_COMPLETED);
        }
        note_response(s);
        break;
    case ONCE__RELEASE:
        world_count(s->world, life->tainted           ? COUNT_RELEASED_TAINTED
                              : s->event->ttl_ms == 0 ? COUNT_RELEASED
                              : life->touched         ? COUNT_RELEASED_TOUCHED
                                                      : COUNT_RELEASED_EARLY);
        life->touched |= s->event->ttl_ms == 0;
        break;
    case ONCE__DOUBT:
        world_count(s->world, COUNT_DOUBTED);
        life->grants->doubted = 1;
        break;
    case ONCE__RENEW:
        world_count(s->world, s->live ? COUNT_RENEWED : COUNT_REVIVED);
        life->grants->fresh_at = s->world->now;
        break;
    case ONCE__SETTLE_COMPLETED:
        world_count(s->world, COUNT_SETTLED_COMPLETED);
        note_response(s);
        break;
    case ONCE__SETTLE_FAILED:
        world_count(s->world, COUNT_SETTLED_FAILED);
        life->tainted = 0;
        life->touched = 1;
        break;
    case ONCE__PURGE:
        world_count(s->world, sight_is_open(s->state) ? COUNT_PURGE_FORCED : COUNT_PURGED);
        ledger_end_life(s->world, s->key);
        break;
    default:
        break;
    }
    if (s->live && s->event->force && s->event->kind != ONCE__PURGE) {
        world_count(s->world, COUNT_SETTLE_FORCED);
    }
}

static void note_write(const sight_t *s)
{
    switch (s->op->outcome) {
    case ONCE_OUTCOME_DONE:
        /* A renewal may change nothing: when the store's clock was set back, its time stands still. */
        if (s->changed || s->event->kind == ONCE__RENEW) {
            note_done(s);
        }
        break;
    case ONCE_OUTCOME_ALREADY:
        world_count(s->world, COUNT_ALREADY);
        break;
    case ONCE_OUTCOME_LOST:
        world_count(s->world, COUNT_LOST);
        break;
    case ONCE_OUTCOME_REFUSED:
        world_count(s->world,
                    s->event->kind == ONCE__PURGE ? COUNT_PURGE_REFUSED : COUNT_SETTLE_REFUSED);
        break;
    default:
        break;
    }
}

/* -------------------------------------------------------------------------------------------------------- observing */

static void tell(const sight_t *s)
{
    const once__claim_ref_t *claim = &s->after.head.claim;

    if (!s->world->tracing) {
        return;
    }
    world_say(s->world, s->key->number,
              "%s%s: %s [%02x%02x] of epoch %u -> %s; %s epoch %u [%02x%02x]",
              s->sender->process != NULL ? s->sender->process->name : "backend",
              s->sender->late ? " (late)" : "", once__event_name(s->event->kind),
              s->event->claim.id[0], s->event->claim.id[1], s->event->claim.epoch, sight_outcome(s),
              s->after.exists ? once_state_name((once_state_t)s->after.head.state) : "none",
              claim->epoch, claim->id[0], claim->id[1]);
}

void observe_decided(world_t *world, sim_key_t *key, const once__op_t *op, const sender_t *sender,
                     uint64_t clock, const mirror_t *after)
{
    sight_t sight = sight_of(world, key, op, sender, clock, after);

    tell(&sight);
    contract_check(&sight);
    /* A table that does what it must not cannot be followed. */
    if (world->property[0] == '\0') {
        (op->event.kind == ONCE__CLAIM ? note_claim : note_write)(&sight);
    }
    key->seen = sight.after;
}

void observe_reaped(world_t *world, sim_key_t *key, uint64_t clock)
{
    contract_check_removal(world, key, clock);
    world_say(world, key->number, "reaped");
    world_count(world, sight_is_open((once_state_t)key->seen.head.state) ? COUNT_REAPED_ABANDONED
                                                                         : COUNT_REAPED);
    ledger_end_life(world, key);
    memset(&key->seen, 0, sizeof(key->seen));
}

/* A record that the event did not name. */
static void observe_other(world_t *world, sim_key_t *key, uint64_t clock)
{
    mirror_t after = sight_look(world, key);

    if (key->seen.exists && !after.exists) {
        observe_reaped(world, key, clock);
    } else if (!sight_same(&key->seen, &after)) {
        world_violate(world, key->number, "I4 stale claim changed the record",
                      "an operation on another record changed it");
    }
    key->seen = after;
}

void observe(world_t *world, const once__op_t *op, const sender_t *sender, uint64_t clock)
{
    sim_key_t *named = op->kind == ONCE__OP_EVENT ? ledger_find(world, op->id) : NULL;

    if (op->kind == ONCE__OP_SECRETS_LOAD || op->kind == ONCE__OP_SECRETS_SWAP) {
        ledger_secrets(world, op->secrets);
        return;
    }
    if (op->kind == ONCE__OP_EVENT && named == NULL) {
        world_violate(world, -1, "record ids", "%s names a record that no client asked for",
                      once__event_name(op->event.kind));
        return;
    }
    for (unsigned i = 0; i < world->plan.keys && world->ledger->ready; i++) {
        sim_key_t *key = &world->ledger->keys[i];
        if (key == named) {
            mirror_t after = sight_look(world, key);
            observe_decided(world, key, op, sender, clock, &after);
        } else {
            observe_other(world, key, clock);
        }
    }
}
