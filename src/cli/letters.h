/* Dead letters that `once dlq` and `once ui` list and publish again. */
#ifndef ONCE_CLI_LETTERS_H
#define ONCE_CLI_LETTERS_H

#include "broker/browse.h"
#include "cli/json.h"
#include "cli/operator.h"

#define ONCE__CLI_MARK_SIZE 33

/*
 * A letter's mark: a digest of everything it says and, with Kafka, of where it stands. Two looks at the same letter give the same,
 * and no other letter has it, unless a queue has the same one twice.
 */
typedef struct once__cli_mark {
    char text[ONCE__CLI_MARK_SIZE]; /* "": memory is short */
} once__cli_mark_t;

once__cli_mark_t once__cli_letter_mark(const char *from, const once__broker_browsed_t *letter);

/* The members of `once dlq list --json`. */
void once__cli_letter_json(const once__broker_browsed_t *letter, once__cli_json_t *json);

/*
 * The first `limit` letters with their marks, and with id and state of the record that the store has of each; `*letters` is the
 * caller's. Returns once__cli_exit after saying why not.
 */
int once__cli_letters_json(const char *from, once_t *once, size_t limit, json_t **letters,
                           int *more);

typedef struct once__cli_replay {
    const char *from; /* the URL of the topic or queue */
    const char *to;   /* publish there; NULL: to NAME for letters in NAME.dlq */
    int any;          /* publish each to wherever it says it came from */
    int all;          /* Kafka: also those already replayed */
    int dry_run;      /* publish nothing: say what would become of each */
    once_t *once;     /* has the audit trail, and acts for a person; NULL with a dry run */
    /* Whether this letter is to be replayed. */
    int (*is_chosen)(void *data, const once__broker_browsed_t *letter);
    /* What became of a chosen one: ONCE__CLI_OK, it was (or would be) published to `topic`; else why not was said. May be NULL. */
    void (*became)(void *data, const once__broker_browsed_t *letter, int code, const char *topic);
    void *data;
} once__cli_replay_t;

/* Can it be known where the letters belong? Asks no broker. 0, or -1 after writing why not into `error`. */
int once__cli_replay_check(const once__cli_replay_t *replay, char *error, size_t size);

/*
 * Publishes the chosen letters; each is removed, or passed, when the broker has confirmed it. Returns once__cli_exit of the last
 * trouble, after saying what it was. `count`: how many were published.
 */
int once__cli_replay(const once__cli_replay_t *replay, uint64_t *count);

#endif
