#include "ledger.h"

#include <string.h>

#include "base/bytes.h"
#include "core/identity.h"

/* Two scopes use the same key text, and two keys stand in one scope: neither may meet. */
static const struct {
    const char *scope, *key;
} names[PLAN_KEYS_MAX] = {
    {"alice", "order-1"},
    {"bob", "order-1"},
    {"alice", "order-2"},
    {"", "order-3"},
};

void ledger_open(world_t *world)
{
    ledger_t *ledger = world_alloc(world, sizeof(*ledger));

    world->ledger = ledger;
    for (unsigned i = 0; i < world->plan.keys; i++) {
        sim_key_t *key = &ledger->keys[i];
        key->number = (int)i;
        key->scope = names[i].scope;
        key->key = names[i].key;
        key->recover = (once_recover_t)world->plan.recover[i];
        key->policy = world->policies[key->recover];
    }
}

const char *ledger_body(int variant)
{
    return variant == 0 ? "pay 10 EUR" : "pay 20 EUR";
}

void ledger_secrets(world_t *world, const char *text)
{
    once__secrets_t secrets;

    if (once__secrets_parse(&secrets, text, strlen(text), NULL) != ONCE_OK) {
        world_violate(world, -1, "secrets", "the store was given secrets that cannot be read");
        return;
    }
    for (unsigned i = 0; i < world->plan.keys; i++) {
        sim_key_t *key = &world->ledger->keys[i];
        once__request_t request = {
            .scope = once__slice(key->scope, strlen(key->scope)),
            .method = once__slice("POST", 4),
            .target = once__slice("/payments", 9),
        };
        once__record_id(&secrets, request.scope, once__slice(key->key, strlen(key->key)), key->id);
        for (int variant = 0; variant < 2; variant++) {
            const char *body = ledger_body(variant);
            once__bytes_digest(once__slice(body, strlen(body)), &request.body);
            key->fingerprint_count =
                once__fingerprints(&secrets, &request, key->fingerprints[variant]);
        }
    }
    world->ledger->ready = 1;
    once__secrets_wipe(&secrets);
}

sim_key_t *ledger_find(world_t *world, const uint8_t id[ONCE_ID_SIZE])
{
    for (unsigned i = 0; i < world->plan.keys && world->ledger->ready; i++) {
        if (memcmp(world->ledger->keys[i].id, id, ONCE_ID_SIZE) == 0) {
            return &world->ledger->keys[i];
        }
    }
    return NULL;
}

int ledger_variant(const sim_key_t *key, const once__event_t *event)
{
    for (int variant = 0; variant < 2; variant++) {
        for (unsigned i = 0; i < key->fingerprint_count; i++) {
            const once__fingerprint_t *known = &key->fingerprints[variant][i];
            for (unsigned j = 0; j < event->fingerprint_count; j++) {
                const once__fingerprint_t *asked = &event->fingerprints[j];
                if (asked->secret == known->secret &&
                    memcmp(asked->mac, known->mac, sizeof(known->mac)) == 0) {
                    return variant;
                }
            }
        }
    }
    return -1;
}

life_t *ledger_life(const sim_key_t *key)
{
    return key->life != NULL && key->life->ended == UINT64_MAX ? key->life : NULL;
}

grant_t *ledger_grant(const sim_key_t *key, const once__claim_ref_t *ref)
{
    for (life_t *life = key->life; life != NULL; life = life->next) {
        for (grant_t *grant = life->grants; grant != NULL; grant = grant->next) {
            if (grant->ref.epoch == ref->epoch &&
                memcmp(grant->ref.id, ref->id, ONCE_CLAIM_ID_SIZE) == 0) {
                return grant;
            }
        }
    }
    return NULL;
}

void ledger_begin_life(world_t *world, sim_key_t *key, int variant)
{
    life_t *life = world_alloc(world, sizeof(*life));

    ledger_end_life(world, key);
    life->next = key->life;
    life->key = key;
    life->began = world->now;
    life->ended = UINT64_MAX;
    life->variant = variant;
    key->life = life;
}

void ledger_end_life(world_t *world, sim_key_t *key)
{
    if (ledger_life(key) != NULL) {
        key->life->ended = world->now;
    }
}

grant_t *ledger_add_grant(world_t *world, sim_key_t *key, const once__claim_ref_t *ref,
                          process_t *process, int late)
{
    grant_t *grant = world_alloc(world, sizeof(*grant));

    grant->next = key->life->grants;
    grant->life = key->life;
    grant->ref = *ref;
    grant->process = process;
    grant->late = late;
    grant->fresh_at = world->now;
    key->life->grants = grant;
    return grant;
}

/*
 * May it still be forwarded? If run was answered and its holder lives: yes. If it was not answered yet: only while the record
 * is pending, because the owner of a record that is unknown by lease is answered `mine`, and never run.
 */
static int may_forward(const sim_key_t *key, const grant_t *grant)
{
    const process_t *process = grant->process;

    if (process == NULL || !process->alive || process->asking[key->number] == 0 ||
        grant->forwards > 0) {
        return 0;
    }
    return grant->runs > 0 || key->seen.head.state == ONCE_STATE_PENDING;
}

truth_t ledger_truth(const sim_key_t *key, response_t *response)
{
    const life_t *life = ledger_life(key);
    truth_t truth = TRUTH_NEVER;

    for (const grant_t *grant = life != NULL ? life->grants : NULL; grant != NULL;
         grant = grant->next) {
        if (grant->effects > 0) {
            *response = grant->effect;
            return TRUTH_HAPPENED;
        }
        if (grant->open > 0 || may_forward(key, grant)) {
            truth = TRUTH_OPEN;
        }
    }
    return truth;
}
