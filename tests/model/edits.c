/*
 * Every single edit of every row: each guard dropped, each effect dropped, each answer and each state exchanged, each row
 * dropped or swapped with the next. Not to be caught means that the row's detail decides nothing that the model can see: the
 * table is then stricter than it must be, or the model sees too little.
 */
#include "run.h"

#include <string.h>

/* Edits that cannot be seen, because what they differ in never comes to pass. */
typedef struct unseen {
    const char *row;
    mutant_op_t op;
    unsigned value;
} unseen_t;

static const unseen_t unseen[] = {
    /* Only unknown records are by lease: there is nothing to clear. */
    {"claim: new", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE},
    {"claim: refused before", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE},
    {"claim: failed", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE},
    {"claim: lease over", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE},
    {"doubt", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE},
    /* A pending record has no payload. */
    {"claim: lease over", MUTANT_DROP_EFFECT, ONCE__E_DROP_PAYLOAD},
    /* Completed and failed records have no flags. */
    {"claim: mine, unknown by lease", MUTANT_ADD_FROM, 1 << ONCE_STATE_COMPLETED},
    {"release: earlier doubt", MUTANT_ADD_FROM, 1 << ONCE_STATE_COMPLETED},
    {"release: earlier doubt", MUTANT_ADD_FROM, 1 << ONCE_STATE_FAILED},
    {"doubt: unknown by lease", MUTANT_ADD_FROM, 1 << ONCE_STATE_COMPLETED},
    {"doubt: unknown by lease", MUTANT_ADD_FROM, 1 << ONCE_STATE_FAILED},
    /* Only failed records are kept briefly. */
    {"claim: refused before", MUTANT_ADD_FROM, 1 << ONCE_STATE_PENDING},
    {"claim: refused before", MUTANT_ADD_FROM, 1 << ONCE_STATE_COMPLETED},
    {"claim: refused before", MUTANT_ADD_FROM, 1 << ONCE_STATE_UNKNOWN},
    /* Only they expire, and only the others are abandoned. */
    {"reap: expired", MUTANT_ADD_FROM, 1 << ONCE_STATE_PENDING},
    {"reap: expired", MUTANT_ADD_FROM, 1 << ONCE_STATE_UNKNOWN},
    {"reap: abandoned", MUTANT_ADD_FROM, 1 << ONCE_STATE_COMPLETED},
    {"reap: abandoned", MUTANT_ADD_FROM, 1 << ONCE_STATE_FAILED},
};

typedef struct tally {
    size_t limit;
    int deep; /* also try the unseen ones */
    int edits, same, caught, unseen, wrong;
} tally_t;

static int is_unseen(const char *row, mutant_op_t op, unsigned value)
{
    for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++) {
        if (strcmp(unseen[i].row, row) == 0 && unseen[i].op == op && unseen[i].value == value) {
            return 1;
        }
    }
    return 0;
}

/* The row that would decide; NULL when there is none. As the library does it, but for any guards at all. */
static const once__rule_t *decide(const once__rules_t *rules, unsigned event, unsigned state,
                                  unsigned guards)
{
    for (size_t i = 0; i < rules->count; i++) {
        const once__rule_t *rule = &rules->rows[i];
        if (rule->event == event && (rule->from & 1u << state) &&
            (guards & rule->need) == rule->need && !(guards & rule->forbid)) {
            return rule;
        }
    }
    return NULL;
}

/* 1: the tables decide alike whatever the guards; 0: not; -1: the edited one has a hole. */
static int compare(const once__rules_t *edited, unsigned event)
{
    int same = 1;

    for (unsigned state = ONCE_STATE_NONE; state <= ONCE_STATE_UNKNOWN; state++) {
        unsigned combinations = state == ONCE_STATE_NONE ? 1 : ONCE__G_END;
        for (unsigned guards = 0; guards < combinations; guards++) {
            const once__rule_t *is = decide(edited, event, state, guards);
            const once__rule_t *was = decide(&once__rules, event, state, guards);
            if (is == NULL) {
                return -1;
            }
            same &= is->to == was->to && is->effects == was->effects && is->outcome == was->outcome;
        }
    }
    return same;
}

static void try_edit(tally_t *tally, const once__rules_t *edited, const mutant_edit_t *edit,
                     const char *what, unsigned event)
{
    search_result_t result;
    const model_scenario_t *by = NULL;
    int expected = !is_unseen(edit->row, edit->op, edit->value);
    int caught;

    tally->edits++;
    if (compare(edited, event) != 0) {
        tally->same++;
        return;
    }
    if (!expected && !tally->deep) {
        tally->unseen++;
        return;
    }
    caught = run_catch(edited, 0, 0, tally->limit, &result, &by) > 0;
    if (caught) {
        search_free(&result);
    }
    tally->caught += caught;
    tally->unseen += !caught;
    if (caught != expected) {
        printf("%s: \"%s\": %s 0x%x\n", caught ? "caught after all" : "NOT CAUGHT", edit->row, what,
               edit->value);
        fflush(stdout);
        tally->wrong++;
    }
}

static void try_value(tally_t *tally, size_t at, mutant_op_t op, unsigned value, const char *what)
{
    once__rule_t rows[MUTANT_ROWS_MAX];
    once__rules_t edited = {rows, once__rules.count};
    const once__rule_t *rule = &once__rules.rows[at];
    mutant_edit_t edit = {.row = rule->name, .op = op, .value = value};

    memcpy(rows, once__rules.rows, once__rules.count * sizeof(*rows));
    mutant_edit(rows, once__rules.count, &edit);
    try_edit(tally, &edited, &edit, what, rule->event);
}

static void try_swap(tally_t *tally, size_t at)
{
    if (at + 1 < once__rules.count &&
        once__rules.rows[at].event == once__rules.rows[at + 1].event) {
        once__rule_t rows[MUTANT_ROWS_MAX];
        once__rules_t edited = {rows, once__rules.count};
        mutant_edit_t edit = {.row = once__rules.rows[at].name,
                              .op = MUTANT_MOVE_BEHIND,
                              .behind = once__rules.rows[at + 1].name};
        memcpy(rows, once__rules.rows, once__rules.count * sizeof(*rows));
        mutant_edit(rows, once__rules.count, &edit);
        try_edit(tally, &edited, &edit, "swap with the next", once__rules.rows[at].event);
    }
}

static void try_row(tally_t *tally, size_t at)
{
    const once__rule_t *rule = &once__rules.rows[at];

    try_value(tally, at, MUTANT_DROP_ROW, 0, "drop the row");
    try_swap(tally, at);
    for (unsigned bit = 1; bit < ONCE__G_END; bit <<= 1) {
        if (rule->need & bit) {
            try_value(tally, at, MUTANT_DROP_NEED, bit, "drop the need");
        }
        if (rule->forbid & bit && bit != ONCE__G_NEWER) {
            try_value(tally, at, MUTANT_DROP_FORBID, bit, "drop the forbid");
        }
    }
    for (unsigned bit = 1; bit < ONCE__E_END; bit <<= 1) {
        if (rule->effects & bit) {
            try_value(tally, at, MUTANT_DROP_EFFECT, bit, "drop the effect");
        }
    }
    for (unsigned outcome = ONCE_OUTCOME_RUN; outcome <= ONCE_OUTCOME_REFUSED; outcome++) {
        try_value(tally, at, MUTANT_SET_OUTCOME, outcome, "answer");
    }
    for (unsigned state = ONCE_STATE_NONE; state <= ONCE_STATE_UNKNOWN; state++) {
        if (rule->from != 1u << state || rule->to != ONCE__KEEP_STATE) {
            try_value(tally, at, MUTANT_SET_TO, state, "go to");
        }
        try_value(tally, at, rule->from & 1u << state ? MUTANT_DROP_FROM : MUTANT_ADD_FROM,
                  1u << state, rule->from & 1u << state ? "drop from" : "add from");
    }
}

int run_edits(const run_options_t *options)
{
    tally_t tally = {.limit = options->limit != 0 ? options->limit : 130000, .deep = options->deep};

    for (size_t i = 0; i < once__rules.count; i++) {
        /* Records of a newer version are not in the model; unit tests look at them. */
        if (!(once__rules.rows[i].need & ONCE__G_NEWER) &&
            run_is_named(options, once__rules.rows[i].name)) {
            try_row(&tally, i);
        }
    }
    printf("%d edits: %d decide alike or leave a hole, %d cannot be seen, %d caught, %d not as "
           "they should be\n",
           tally.edits, tally.same, tally.unseen, tally.caught, tally.wrong);
    return tally.wrong != 0 || tally.edits == 0;
}
