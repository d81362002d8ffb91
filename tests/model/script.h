/*
 * Scripted schedules: one record, real times, and a hand that makes each thing happen in the order that a trace gives.
 *
 * Nobody here decides anything but once__step; the script only keeps count of what the world would have suffered.
 */
#ifndef TESTS_MODEL_SCRIPT_H
#define TESTS_MODEL_SCRIPT_H

#include "core/rules.h"
#include "support/mutants.h"

/* Who asks: each with a claim id of its own. */
enum { CLAIM_A = 1, CLAIM_B, CLAIM_C };

typedef struct script {
    once__rule_t rows[MUTANT_ROWS_MAX];
    once__rules_t rules;
    unsigned behaviour;
    int epochs_only; /* writes name the record's claim id, whatever their sender: what is left to compare is the epoch */
    uint64_t clock;
    once__head_t head; /* state NONE: there is no record */
    const char *row;   /* the row that decided last */
    int effects;
    int payloads; /* mask of fingerprints that took effect */
} script_t;

/* With the rules as they are, or with a mutant of support/mutants.h. */
void script_begin(script_t *script);
void script_begin_mutant(script_t *script, const char *mutant);

/* A claim: the policy and which of two fingerprints. */
uint8_t script_claim(script_t *script, int claim, once_recover_t recover, int fingerprint);

/* The gateway's writes; settle by name of the claim that was judged. */
uint8_t script_write(script_t *script, once__event_kind_t kind, int claim, uint32_t epoch);

/* Releases: before any effect (a 401), and of a complete 5xx, which a mutant may take for one. */
uint8_t script_refuse(script_t *script, int claim, uint32_t epoch);
uint8_t script_fail(script_t *script, int claim, uint32_t epoch);

/* Plain door: the backend acts. Transactional door: its transaction calls once.complete, and commits or rolls back. */
void script_effect(script_t *script, int fingerprint);
uint8_t script_transaction(script_t *script, int claim, uint32_t epoch);

/* Time. */
void script_lease_over(script_t *script);
void script_two_leases_over(script_t *script); /* from now on */
void script_ttl_over(script_t *script); /* of a completed or failed record; it is reaped, too */
uint8_t script_retention_passes(script_t *script); /* after the lease; the answer of the reaping */

#endif
