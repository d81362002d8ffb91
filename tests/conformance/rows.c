/*
 * Is every cell of the record table tried? Each row is broken in every small way there is (left out, one state, guard or
 * effect less, another state or answer), and each time the suite must notice. What no caller can see is left out, with the
 * reason.
 *
 *   rows [TEXT]   all changes, or those whose name contains the text
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/broken.h"
#include "conformance/conformance.h"
#include "support/mutants.h"

#define ANY    0xffffu
#define TRIALS 8 /* at a time: they mostly wait */

/* Tests that step through the table. The others need not be asked, and take time. */
static const char stepping[] =
    "claim-*,complete-*,end-*,release-*,doubt-*,renew-*,stale-*,table-*,settle-*,purge-*,erase-*,"
    "mismatch-*,expiry-*,reap-*";

typedef struct unseen {
    const char *row;
    mutant_op_t op;
    unsigned values; /* bits; ANY: all */
    const char *why;
} unseen_t;

static const unseen_t unseen[] = {
    {"claim: new", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE | ONCE__E_DROP_PAYLOAD,
     "there was no record: nothing to forget"},
    {"claim: failed", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE, "a failed record has no flags"},
    {"claim: refused before", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE, "the same"},
    {"claim: lease over", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE | ONCE__E_DROP_PAYLOAD,
     "a pending record has neither"},
    {"claim: unknown, lease over", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE,
     "it is not read in a pending record, and whatever makes it unknown sets it again"},
    {"claim: mine, unknown by lease", MUTANT_SET_TO, ANY, "the library releases it at once"},
    {"complete", MUTANT_DROP_EFFECT, ONCE__E_CLEAN, "flags of a completed record are not read"},
    {"settle completed", MUTANT_DROP_EFFECT, ONCE__E_CLEAN, "the same"},
    {"settle completed: forced", MUTANT_DROP_EFFECT, ONCE__E_CLEAN, "the same"},
    {"release", MUTANT_DROP_EFFECT, ONCE__E_CLEAN, "the next claim forgets it"},
    {"release: before any effect", MUTANT_DROP_EFFECT, ONCE__E_CLEAN, "the same"},
    {"doubt", MUTANT_DROP_EFFECT, ONCE__E_NOT_BY_LEASE, "a pending record is not unknown by lease"},
    {"reap: expired", MUTANT_SET_TO, ANY, "a store asks only whether it may remove the record"},
    {"reap: abandoned", MUTANT_SET_TO, ANY, "the same"},
    {"reap: kept", MUTANT_SET_TO, ANY, "the same"},
    {"reap: kept", MUTANT_DROP_FROM, 1 << ONCE_STATE_NONE, "there is no record to ask about"},
};

static unsigned caught, missed;
static const char *chosen;

static int cannot_be_seen(const once__rule_t *row, const mutant_edit_t *edit)
{
    /* A record of a newer version cannot be made through the API. */
    if ((row->need & ONCE__G_NEWER) ||
        (edit->op == MUTANT_DROP_FORBID && edit->value == ONCE__G_NEWER)) {
        return 1;
    }
    /* To stay is to become the same. Where nothing else is written, the time of the last change tells. */
    if (edit->op == MUTANT_SET_TO && row->to == ONCE__KEEP_STATE && row->effects != 0 &&
        row->from == 1 << edit->value) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++) {
        if (strcmp(unseen[i].row, row->name) == 0 && unseen[i].op == edit->op &&
            (unseen[i].values == ANY || (unseen[i].values & edit->value))) {
            return 1;
        }
    }
    return 0;
}

static int run_suite(const once__rules_t *rules)
{
    once_conformance_options_t options = ONCE_CONFORMANCE_INIT;
    broken_t *broken = broken_new(rules, BROKEN_NOTHING);
    int result;

    if (broken == NULL) {
        return -1;
    }
    options.filter = stepping;
    options.stop = 1;
    options.exclusive = 1;
    options.open = broken_open;
    options.wait = broken_wait;
    options.data = broken;
    result = once_conformance_run("broken:", &options);
    broken_free(broken);
    return result;
}

/* The changes that are being tried, each in a process of its own: a table without an answer ends in an assertion. */
static struct {
    pid_t pid; /* 0: free */
    char name[160];
} trials[TRIALS];

/* In the child: ends with 0 if the suite has not noticed the change. */
static void try_rules(const mutant_edit_t *edit)
{
    once__rule_t rows[MUTANT_ROWS_MAX];
    once__rules_t rules = {rows, once__rules.count};

    memcpy(rows, once__rules.rows, once__rules.count * sizeof(*rows));
    if (mutant_edit(rows, rules.count, edit) != 0 || freopen("/dev/null", "w", stderr) == NULL) {
        _exit(0);
    }
    _exit(run_suite(&rules) != 0);
}

/* Waits for one of them to end, if any runs. Returns its place, which is free then; TRIALS: none runs. */
static size_t end_one(void)
{
    int status = 0;
    pid_t pid = wait(&status);

    for (size_t i = 0; pid > 0 && i < TRIALS; i++) {
        if (trials[i].pid == pid) {
            trials[i].pid = 0;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
                missed++;
                printf("FAILED  %s: not caught\n", trials[i].name);
            } else {
                caught++;
            }
            return i;
        }
    }
    return TRIALS;
}

static size_t free_place(void)
{
    for (size_t i = 0; i < TRIALS; i++) {
        if (trials[i].pid == 0) {
            return i;
        }
    }
    return end_one();
}

static void try_edit(const once__rule_t *row, mutant_op_t op, unsigned value, const char *what)
{
    mutant_edit_t edit = {row->name, op, value, NULL};
    char name[160];
    size_t place;

    (void)snprintf(name, sizeof(name), "%s: %s %x", row->name, what, value);
    if (cannot_be_seen(row, &edit) || (chosen != NULL && strstr(name, chosen) == NULL)) {
        return;
    }
    place = free_place();
    memcpy(trials[place].name, name, sizeof(name));
    (void)fflush(stdout);
    trials[place].pid = fork();
    if (trials[place].pid == 0) {
        try_rules(&edit);
    }
    if (trials[place].pid < 0) {
        trials[place].pid = 0;
        missed++;
    }
}

/* The answer that does most harm when it is wrong. */
static unsigned worst_answer(const once__rule_t *row)
{
    unsigned good = row->event == ONCE__CLAIM ? ONCE_OUTCOME_RUN : ONCE_OUTCOME_DONE;
    unsigned bad = row->event == ONCE__CLAIM ? ONCE_OUTCOME_BUSY : ONCE_OUTCOME_LOST;

    return row->outcome == good ? bad : good;
}

static void try_row(const once__rule_t *row)
{
    try_edit(row, MUTANT_DROP_ROW, 0, "left out");
    for (unsigned bit = 1; bit < 1u << 16; bit <<= 1) {
        if (row->from & bit) {
            try_edit(row, MUTANT_DROP_FROM, bit, "not from state");
        }
        if (row->need & bit) {
            try_edit(row, MUTANT_DROP_NEED, bit, "does not need");
        }
        if (row->forbid & bit) {
            try_edit(row, MUTANT_DROP_FORBID, bit, "does not forbid");
        }
        if (row->effects & bit) {
            try_edit(row, MUTANT_DROP_EFFECT, bit, "without effect");
        }
    }
    for (unsigned state = ONCE_STATE_PENDING; state <= ONCE_STATE_UNKNOWN; state++) {
        if (row->to != state) {
            try_edit(row, MUTANT_SET_TO, state, "becomes");
        }
    }
    try_edit(row, MUTANT_SET_OUTCOME, worst_answer(row), "answers");
}

int main(int argc, char **argv)
{
    chosen = argc > 1 ? argv[1] : NULL;
    if (run_suite(&once__rules) != 0) {
        printf("FAILED  the suite finds fault with the rules themselves\n");
        return 1;
    }
    for (size_t i = 0; i < once__rules.count; i++) {
        try_row(&once__rules.rows[i]);
    }
    while (end_one() < TRIALS) {
    }
    printf("%u passed, %u failed\n", caught, missed);
    return missed > 0 || caught == 0;
}
