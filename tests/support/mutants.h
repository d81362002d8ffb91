/*
 * Mutants: copies of the rules with one rule broken, and gateways or backends that break one of theirs.
 *
 * A test that claims to guard the rules must notice each of them. The model checker and the simulation share this list.
 */
#ifndef TESTS_SUPPORT_MUTANTS_H
#define TESTS_SUPPORT_MUTANTS_H

#include "core/rules.h"

/* Rules that are not in the table but in its users. A simulated gateway or backend asks for these. */
enum {
    /* once.complete that was answered `already` commits the transaction */
    MUTANT_IDEMPOTENT_SQL = 1 << 0,
    MUTANT_OWN_ANSWER = 1 << 1, /* a gateway whose complete was `lost` sends its own response */
    MUTANT_FAILED_WRITE_RELEASES = 1
                                   << 2, /* a complete without a reply is given up with a release */
    MUTANT_ALWAYS_EARLY = 1 << 3, /* every release says "before any effect", that of a 5xx too */
};

typedef enum mutant_op {
    MUTANT_NO_EDIT,
    MUTANT_DROP_ROW,
    MUTANT_DROP_NEED,   /* value: guards */
    MUTANT_ADD_NEED,    /* value: guards */
    MUTANT_DROP_FORBID, /* value: guards */
    MUTANT_ADD_FORBID,  /* value: guards */
    MUTANT_ADD_FROM,    /* value: bits of states */
    MUTANT_DROP_FROM,   /* value: bits of states */
    MUTANT_SET_TO,      /* value: state */
    MUTANT_SET_OUTCOME, /* value: outcome */
    MUTANT_ADD_EFFECT,  /* value: effects */
    MUTANT_DROP_EFFECT, /* value: effects */
    MUTANT_MOVE_BEHIND, /* `behind`: another row */
    MUTANT_MOVE_FIRST,
} mutant_op_t;

typedef struct mutant_edit {
    const char *row;
    mutant_op_t op;
    unsigned value;
    const char *behind;
} mutant_edit_t;

typedef struct mutant {
    const char *name;
    const char *what;   /* what it does, in words */
    unsigned behaviour; /* MUTANT_IDEMPOTENT_SQL... or 0 */
    mutant_edit_t edits[3];
} mutant_t;

extern const mutant_t mutants[];
extern const size_t mutant_count;

#define MUTANT_ROWS_MAX 128

/* NULL when there is none of that name. */
const mutant_t *mutant_find(const char *name);

/* Writes the broken copy of `rules` into `rows` (room for MUTANT_ROWS_MAX). Dies when a row that it edits does not exist. */
once__rules_t mutant_rules(const mutant_t *mutant, const once__rules_t *rules, once__rule_t *rows);

/* One edit on a copy. 0, or -1 when there is no such row. */
int mutant_edit(once__rule_t *rows, size_t count, const mutant_edit_t *edit);

#endif
