/*
 * The rules as the table of docs/record.md, one line for each row, so that the page cannot drift from the code.
 */
#include "run.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
    unsigned bit;
    const char *text;
} word_t;

static const word_t guards[] = {
    {ONCE__G_NEWER, "newer version"},
    {ONCE__G_MINE, "names the record's claim"},
    {ONCE__G_SAME, "same fingerprint"},
    {ONCE__G_LIVE, "lease live"},
    {ONCE__G_HOLD, "hold"},
    {ONCE__G_BY_LEASE, "by lease"},
    {ONCE__G_TAINTED, "tainted"},
    {ONCE__G_FORCE, "force"},
    {ONCE__G_EXPIRED, "ttl over"},
    {ONCE__G_ABANDONED, "abandoned"},
    {ONCE__G_EARLY, "before any effect"},
    {ONCE__G_BRIEF, "kept briefly"},
    {ONCE__G_TOUCHED, "touched"},
};

static const word_t effects[] = {
    {ONCE__E_GRANT, "grant"},
    {ONCE__E_TAINT, "taint"},
    {ONCE__E_TOUCH, "touch"},
    {ONCE__E_EXTEND, "extend the lease"},
    {ONCE__E_DOUBT_LEASE, "new lease"},
    {ONCE__E_END_LEASE, "end the lease"},
    {ONCE__E_BY_LEASE, "note by lease"},
    {ONCE__E_NOT_BY_LEASE, "clear by lease"},
    {ONCE__E_CLEAN, "clear the flags"},
    {ONCE__E_RETAIN, "start the ttl"},
    {ONCE__E_BRIEFLY, "keep it briefly"},
    {ONCE__E_PAYLOAD, "store the payload"},
    {ONCE__E_DROP_PAYLOAD, "drop the payload"},
    {ONCE__E_ERASE, "erase the texts"},
};

typedef struct line {
    char text[512];
    size_t len;
} line_t;

static void add(line_t *line, const char *text)
{
    size_t len = strlen(text);

    if (line->len + len < sizeof(line->text)) {
        memcpy(line->text + line->len, text, len + 1);
        line->len += len;
    }
}

/* Words between commas; `prefix` before each. Returns how many. */
static int add_words(line_t *line, const word_t *words, size_t count, unsigned bits,
                     const char *prefix, int before)
{
    for (size_t i = 0; i < count; i++) {
        if (bits & words[i].bit) {
            add(line, before++ ? ", " : "");
            add(line, prefix);
            add(line, words[i].text);
        }
    }
    return before;
}

static void add_states(line_t *line, unsigned states)
{
    int before = 0;

    if (states == (2u << ONCE_STATE_UNKNOWN) - 1) {
        add(line, "any");
        return;
    }
    for (unsigned state = ONCE_STATE_NONE; state <= ONCE_STATE_UNKNOWN; state++) {
        if (states & 1u << state) {
            add(line, before++ ? ", " : "");
            add(line, once_state_name((once_state_t)state));
        }
    }
}

static void render(line_t *line, const once__rule_t *rule)
{
    const size_t guard_count = sizeof(guards) / sizeof(guards[0]);
    int words;

    line->len = 0;
    add(line, "| ");
    add(line, rule->name);
    add(line, " | ");
    add_states(line, rule->from);
    add(line, " | ");
    words = add_words(line, guards, guard_count, rule->need, "", 0);
    words = add_words(line, guards, guard_count, rule->forbid, "not ", words);
    add(line, words ? " | " : "| ");
    add(line, rule->to == ONCE__KEEP_STATE ? "stays" : once_state_name((once_state_t)rule->to));
    add(line, " | ");
    add(line,
        rule->outcome == ONCE__MINE ? "mine" : once_outcome_name((once_outcome_t)rule->outcome));
    add(line, " | ");
    words = add_words(line, effects, sizeof(effects) / sizeof(effects[0]), rule->effects, "", 0);
    add(line, words ? " |\n" : "|\n");
}

/* The whole file, or NULL. Free it. */
static char *read_all(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    size_t len;

    if (file == NULL || text == NULL) {
        free(text);
        text = NULL;
    } else {
        len = fread(text, 1, (1 << 20) - 1, file);
        text[len] = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

/* Every line, in the table's order. */
static int compare(const char *path)
{
    char *text = read_all(path);
    const char *at = text;
    line_t line;
    int missing = 0;

    if (text == NULL) {
        fprintf(stderr, "model_check: cannot read %s\n", path);
        return 1;
    }
    for (size_t i = 0; i < once__rules.count; i++) {
        const char *found;
        render(&line, &once__rules.rows[i]);
        found = strstr(at, line.text);
        if (found == NULL) {
            printf("%s lacks, or has elsewhere:\n%s", path, line.text);
            missing++;
        } else {
            at = found + line.len;
        }
    }
    free(text);
    printf("%zu rows, %d not in %s\n", once__rules.count, missing, path);
    return missing != 0;
}

int run_table(const run_options_t *options)
{
    line_t line;

    if (options->name_count > 0) {
        return compare(options->names[0]);
    }
    for (size_t i = 0; i < once__rules.count; i++) {
        render(&line, &once__rules.rows[i]);
        fputs(line.text, stdout);
    }
    return 0;
}
