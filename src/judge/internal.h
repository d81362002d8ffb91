/*
 * Inside the judge. A run (judge.c) goes through the checks one by one. A check sends requests (send.c), looks at the answers
 * (answer.c) and at the number of effects (effect.c), and ends with a verdict; report.c writes what it saw, in three forms.
 */
#ifndef ONCE_JUDGE_INTERNAL_H
#define ONCE_JUDGE_INTERNAL_H

#include <curl/curl.h>
#include <stdint.h>
#include <stdio.h>

#include <once/key.h>

#include "base/buf.h"
#include "judge/judge.h"

#define ONCE__JUDGE_KEY_SIZE    400
#define ONCE__JUDGE_KEEP        64      /* exchanges of one check */
#define ONCE__JUDGE_ANSWER_MAX  8388608 /* bytes of a body */
#define ONCE__JUDGE_HEAD_MAX    65536
#define ONCE__JUDGE_TRIES       10 /* of a request that is answered "not now" */
#define ONCE__JUDGE_SECRETS_MAX (4 * ONCE__CLI_LIST_MAX + 2)

/* ------------------------------------------------------------------------------------------------------- requests */

typedef enum once__judge_cut {
    ONCE__JUDGE_WHOLE,
    ONCE__JUDGE_CUT_ANSWER,  /* the connection is closed when all of the request is sent */
    ONCE__JUDGE_CUT_REQUEST, /* ... when half of its body is */
} once__judge_cut_t;

/* One request. All texts are borrowed until the check is over. */
typedef struct once__judge_request {
    const char *key;       /* the value of the header; NULL: none */
    const char *key_again; /* a second header of that name; NULL: none */
    once_slice_t body;
    const char *type; /* NULL: that of the body of the command line */
    int other;        /* with the second credential */
    once__judge_cut_t cut;
} once__judge_request_t;

typedef struct once__judge_answer {
    int status;       /* 0: none; `trouble` says why */
    once__buf_t head; /* lines of headers, without the status line, as they came */
    once__buf_t body;
    char trouble[CURL_ERROR_SIZE];
    uint64_t sent_ms, ended_ms; /* since the beginning of the run */
} once__judge_answer_t;

typedef struct once__judge_exchange {
    once__judge_request_t request;
    char key[ONCE__JUDGE_KEY_SIZE],
        key_again[ONCE__JUDGE_KEY_SIZE]; /* what request's texts point to */
    once__judge_answer_t answer;
} once__judge_exchange_t;

/* -------------------------------------------------------------------------------------------------------- profiles */

#define ONCE__JUDGE_STATUSES 4

/* What an API is measured by where the rules of APIs differ. Lists of statuses end with 0. */
typedef struct once__judge_profile {
    const char *name, *what;
    int quoted;                          /* keys are sent as a string of structured fields */
    int malformed_refused;               /* a value that is no such string is an error */
    int missing_refused;                 /* 0: the key is optional */
    size_t key_max;                      /* longer keys are refused; 0: it does not say */
    int reused[ONCE__JUDGE_STATUSES];    /* answers to a key with another body */
    int in_flight[ONCE__JUDGE_STATUSES]; /* answers while the first one is being processed */
    int failures_stored;                 /* a 5xx is the result, too */
    int mark_required;                   /* a replay says that it is one */
    const char *error_member;            /* in the JSON of an error; NULL: problem+json or a Link */
} once__judge_profile_t;

const once__judge_profile_t *once__judge_profile_find(const char *name);

/* "draft07, stripe" */
const char *once__judge_profile_names(void);

int once__judge_has_status(const int list[ONCE__JUDGE_STATUSES], int status);

/* "422" or "400 or 409" */
const char *once__judge_status_text(const int list[ONCE__JUDGE_STATUSES], char text[64]);

/* ---------------------------------------------------------------------------------------------------------- checks */

typedef enum once__judge_verdict {
    ONCE__JUDGE_PASS,
    ONCE__JUDGE_FAIL,
    ONCE__JUDGE_NOT_JUDGED,
} once__judge_verdict_t;

typedef struct once__judge once__judge_t;

typedef enum once__judge_need {
    ONCE__JUDGE_NEEDS_BODY = 1,
    ONCE__JUDGE_NEEDS_OTHER_BODY = 2,
    ONCE__JUDGE_NEEDS_REFUSED_BODY = 4,
    ONCE__JUDGE_NEEDS_FAILING_BODY = 8,
    ONCE__JUDGE_NEEDS_CALLER = 16,
    ONCE__JUDGE_NEEDS_LARGE_BODY = 32,
    ONCE__JUDGE_NEEDS_BINARY = 64,
} once__judge_need_t;

typedef struct once__judge_check {
    const char *name;
    const char *
        level; /* MUST, SHOULD: the draft's word. rule: not in the draft, but clients lose money without it */
    const char *section; /* of draft-ietf-httpapi-idempotency-key-header-07; "" if there is none */
    const char *what;    /* the rule */
    const char *sends;   /* for --plan */
    unsigned requests;   /* at most; one more for each that takes part in a race if `raced` */
    unsigned raced;      /* races */
    unsigned
        needs; /* of the command line, without which nothing is sent; bits of once__judge_need_t */
    once__judge_verdict_t (*run)(once__judge_t *judge);
} once__judge_check_t;

/* Tables, each ended by a nameless row. */
extern const once__judge_check_t once__judge_checks_key[], once__judge_checks_replay[],
    once__judge_checks_race[], once__judge_checks_failure[], once__judge_checks_body[];

typedef struct once__judge_result {
    const once__judge_check_t *check;
    once__judge_verdict_t verdict;
    char why[512];
    once__judge_exchange_t *exchanges;
    size_t exchange_count;
    int64_t effects; /* -1: not counted */
    uint64_t took_ms;
} once__judge_result_t;

/* What of its needs is missing, as a sentence; NULL: nothing. */
const char *once__judge_lacks(const once__judge_t *judge, const once__judge_check_t *check);

/* ------------------------------------------------------------------------------------------------------------- run */

#define ONCE__JUDGE_AT_ONCE_MAX 16

typedef struct once__judge_bytes {
    char *data; /* owned */
    size_t len;
} once__judge_bytes_t;

struct once__judge {
    const once__judge_options_t *options;
    const once__judge_profile_t *profile;
    const char *url; /* with credentials */
    char *shown_url; /* without, and without its query */
    char *password;  /* of the URL; curl_free */
    const char *method, *key_header;
    const char *type;      /* of the body, if no header says it */
    char *effect_url;      /* whole; NULL: effects are not counted */
    int effect_is_foreign; /* another origin: it gets no headers of ours */

    once__judge_bytes_t body, other_body, refused_body, failing_body, slow_body, large_body,
        large_other_body;
    char **header_lines,
        **other_lines; /* of --header and --other-header, files read; end with NULL */
    const char *secrets[ONCE__JUDGE_SECRETS_MAX]; /* never printed */
    size_t secret_count;

    unsigned at_once;
    uint64_t timeout_ms, patience_ms, deadline_ms, requests_max;
    uint64_t began_ms;
    char prefix[32]; /* of all keys of this run */
    unsigned keys;

    CURLM *multi;
    uint64_t requests;
    int64_t effects_before; /* of this check */
    int64_t effects_first;  /* of the run */
    int distinct; /* answers to two operations differ: a second execution shows in the answer */
    int counted;  /* the effects are */
    int broken;   /* out of memory, or libcurl cannot go on: the run ends */

    once__judge_result_t *now; /* of the check that is running */
};

/*
 * Reads the command line and the files that it names (setup.c). Returns ONCE__CLI_OK, or an exit code after an error message;
 * free it in either case.
 */
int once__judge_set_up(once__judge_t *judge, const once__cli_command_t *command, const char *url,
                       const once__judge_options_t *options);
void once__judge_free(once__judge_t *judge);

uint64_t once__judge_clock(const once__judge_t *judge); /* ms since the beginning of the run */
void once__judge_wait(const once__judge_t *judge, uint64_t ms);

/* Ends a check: `return once__judge_say(judge, ONCE__JUDGE_FAIL, "...")`. */
once__judge_verdict_t once__judge_say(once__judge_t *judge, once__judge_verdict_t verdict,
                                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define PASS(...)       once__judge_say(judge, ONCE__JUDGE_PASS, __VA_ARGS__)
#define FAIL(...)       once__judge_say(judge, ONCE__JUDGE_FAIL, __VA_ARGS__)
#define NOT_JUDGED(...) once__judge_say(judge, ONCE__JUDGE_NOT_JUDGED, __VA_ARGS__)

/* A new key of this run, bare, and in the form that the profile sends. */
void once__judge_new_key(once__judge_t *judge, char key[ONCE__JUDGE_KEY_SIZE]);
void once__judge_new_bare_key(once__judge_t *judge, char key[ONCE__JUDGE_KEY_SIZE]);

/* The request of the command line with that key. */
once__judge_request_t once__judge_order(const once__judge_t *judge, const char *key);

/* ------------------------------------------------------------------------------------------------------------ send */

/*
 * Sends requests at the same time, each on a connection of its own, and waits for all answers. The exchanges belong to the
 * check's result. `made` may be NULL. Returns 0, or -1 if the run is broken.
 */
int once__judge_send_all(once__judge_t *judge, const once__judge_request_t *requests, size_t count,
                         const once__judge_exchange_t **made);

/* One of them. Never NULL: where the run is broken, an exchange without an answer. */
const once__judge_exchange_t *once__judge_send(once__judge_t *judge,
                                               const once__judge_request_t *request);

/* Repeats it while it is answered "not now", with pauses, at most ONCE__JUDGE_TRIES times and as long as --patience says. */
const once__judge_exchange_t *once__judge_send_until(once__judge_t *judge,
                                                     const once__judge_request_t *request);

/* GET, for effects: the body, which the caller frees; NULL: `why` says why. Not an exchange of the check. */
char *once__judge_get(once__judge_t *judge, const char *url, int foreign, char *why, size_t size);

/* Whether a line of a header names `name`. */
int once__judge_line_is(const char *line, const char *name);

/* -------------------------------------------------------------------------------------------------------- answers */

/* The value of a header of an answer, without space around it; len 0 and data NULL: none. */
once_slice_t once__judge_header(const once__judge_answer_t *answer, const char *name);

int once__judge_is_success(const once__judge_answer_t *answer); /* 2xx, 3xx */
int once__judge_is_refusal(const once__judge_answer_t *answer); /* 4xx */

/* The operation has no result yet: 409, 425, 429, 503, or no answer. */
int once__judge_is_not_now(const once__judge_answer_t *answer);

/* The same status and body. */
int once__judge_is_same(const once__judge_answer_t *a, const once__judge_answer_t *b);

/* The name of the header that marks it as a replay; NULL: none does. */
const char *once__judge_mark(const once__judge_answer_t *answer);

/* The first header that two answers differ in, of those that a replay keeps. Returns 0: none; or 1, and what is wrong. */
int once__judge_headers_differ(const once__judge_t *judge, const once__judge_answer_t *a,
                               const once__judge_answer_t *b, char *why, size_t size);

/* "201", or "no answer (...)"; valid until the fourth call from now. */
const char *once__judge_status(const once__judge_answer_t *answer);

/* --------------------------------------------------------------------------------------------------------- effects */

/* The number of effects now; -1: it could not be read, `why` says why. */
int64_t once__judge_count(once__judge_t *judge, char *why, size_t size);

/* Effects since the check began, when at least `wanted` are there or some time has passed. -1: not counted. */
int64_t once__judge_effects(once__judge_t *judge, int64_t wanted);

/*
 * Were these exchanges, all of one key and one request, one operation: one result for all that got one, and `wanted` effects?
 * PASS, FAIL after saying why, or NOT_JUDGED after saying that an execution cannot be seen.
 */
once__judge_verdict_t once__judge_one_operation(once__judge_t *judge,
                                                const once__judge_exchange_t *const *exchanges,
                                                size_t count, int64_t wanted);

/* ---------------------------------------------------------------------------------------------------------- report */

/* Secrets replaced and control bytes escaped; what does not fit ends in "...". The caller frees it; NULL: out of memory. */
char *once__judge_shown(const once__judge_t *judge, once_slice_t bytes, size_t max);

void once__judge_print_result(const once__judge_t *judge, const once__judge_result_t *result);

/* The whole run. They return 0, or -1 after an error message. */
int once__judge_print_json(const once__judge_t *judge, const once__judge_result_t *results,
                           size_t count);
int once__judge_write_junit(const once__judge_t *judge, const once__judge_result_t *results,
                            size_t count, const char *path);

extern const char *const once__judge_verdict_names[];

#endif
