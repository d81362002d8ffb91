#include "script.h"

#include <stdlib.h>
#include <string.h>

enum { LEASE_MS = 30000, TTL_MS = 86400000 };

static void begin(script_t *script, once__rules_t rules)
{
    script->rules = rules;
    script->behaviour = 0;
    script->epochs_only = 0;
    script->clock = 1000000;
    memset(&script->head, 0, sizeof(script->head));
    script->row = "";
    script->effects = 0;
    script->payloads = 0;
}

void script_begin(script_t *script)
{
    begin(script, once__rules);
}

void script_begin_mutant(script_t *script, const char *name)
{
    const mutant_t *mutant = mutant_find(name);

    if (mutant == NULL) {
        abort();
    }
    begin(script, mutant_rules(mutant, &once__rules, script->rows));
    script->behaviour = mutant->behaviour;
}

static uint8_t play(script_t *script, const once__event_t *event)
{
    once__step_t step;

    script->clock += 10;
    once__step(&script->rules, &script->head, event, script->clock, &step);
    if (step.changed) {
        script->head = step.next;
    }
    script->row = step.rule->name;
    return step.outcome;
}

static once__event_t event_of(once__event_kind_t kind, int claim)
{
    once__event_t event = {.kind = kind, .lease_ms = LEASE_MS, .ttl_ms = TTL_MS};

    if (kind == ONCE__RELEASE) {
        event.ttl_ms = 0;
    }
    event.claim.id[0] = (uint8_t)claim;
    return event;
}

uint8_t script_claim(script_t *script, int claim, once_recover_t recover, int fingerprint)
{
    once__event_t event = event_of(ONCE__CLAIM, claim);

    event.recover = (uint8_t)recover;
    event.fingerprint_count = 1;
    event.fingerprints[0].secret = 1;
    event.fingerprints[0].mac[0] = (uint8_t)fingerprint;
    return play(script, &event);
}

uint8_t script_write(script_t *script, once__event_kind_t kind, int claim, uint32_t epoch)
{
    once__event_t event = event_of(kind, claim);

    event.claim.epoch = epoch;
    if (script->epochs_only) {
        memcpy(event.claim.id, script->head.claim.id, sizeof(event.claim.id));
    }
    return play(script, &event);
}

uint8_t script_refuse(script_t *script, int claim, uint32_t epoch)
{
    once__event_t event = event_of(ONCE__RELEASE, claim);

    event.claim.epoch = epoch;
    event.ttl_ms = 1;
    return play(script, &event);
}

uint8_t script_fail(script_t *script, int claim, uint32_t epoch)
{
    return script->behaviour & MUTANT_ALWAYS_EARLY
               ? script_refuse(script, claim, epoch)
               : script_write(script, ONCE__RELEASE, claim, epoch);
}

void script_effect(script_t *script, int fingerprint)
{
    script->effects++;
    script->payloads |= 1 << fingerprint;
}

uint8_t script_transaction(script_t *script, int claim, uint32_t epoch)
{
    uint8_t outcome = script_write(script, ONCE__COMPLETE, claim, epoch);
    int forgiven = outcome == ONCE_OUTCOME_ALREADY && (script->behaviour & MUTANT_IDEMPOTENT_SQL);

    if (outcome == ONCE_OUTCOME_DONE || forgiven) {
        script_effect(script, script->head.fingerprint.mac[0]);
    }
    return outcome;
}

void script_lease_over(script_t *script)
{
    script->clock = script->head.lease_until;
}

void script_two_leases_over(script_t *script)
{
    script->clock += 2 * LEASE_MS;
}

void script_ttl_over(script_t *script)
{
    once__event_t event = event_of(ONCE__REAP, 0);

    script->clock = script->head.expires;
    play(script, &event);
}

uint8_t script_retention_passes(script_t *script)
{
    once__event_t event = event_of(ONCE__REAP, 0);

    script->clock = script->head.lease_until + script->head.ttl_ms;
    return play(script, &event);
}
