/*
 * The client: calls on their way from the journal to the server and back.
 *
 * A call is one intent in this process. Its steps, each begun by the callback of the one before:
 *
 *     keep     the request goes into the journal, if it is to be found there (keep_request)
 *     ask      the intent is claimed in the journal; its answer, if there is one, is the end
 *     send     one attempt
 *     note     the server has said when it forgets the key: the claim is given back with that, and asked for again
 *     pause    before the next attempt, or before asking again while another process has the claim
 *     record   the final answer goes into the journal, or the claim is given back
 *
 * What holds between steps:
 *   C-1  A call has a claim from `ask` to `note` or `record`, and nothing is sent without it.
 *   C-2  At most one of these is outstanding: a call of the journal, a transfer, the timer.
 *   C-3  `key` and `until` are those of the record: the same in every process and attempt.
 *   C-4  What a server has said about its end is on disk before the next attempt.
 */
#ifndef ONCE_CLIENT_INTERNAL_H
#define ONCE_CLIENT_INTERNAL_H

#include <curl/curl.h>

#include <once/client.h>

#include "base/buf.h"
#include "client/budget.h"
#include "http/client.h"
#include "loop/loop.h"

#define ONCE__CLIENT_LEASE "5s" /* how long the next process waits for one that was killed */

typedef struct once__client_call once__client_call_t;

struct once_client {
    once__loop_t *loop;
    once__http_client_t *http;
    once_t *journal;
    once__source_t journal_source;
    once_client_options_t options; /* its texts are owned */
    once__client_call_t *calls;
    once__client_budget_t budget; /* of the retries of all calls */
    int inside;                   /* a dispatch is running */
    int closing;
};

typedef struct once__client_line {
    char *text;      /* "Name: value" */
    size_t name_len; /* of it */
    int is_credential;
} once__client_line_t;

struct once__client_call {
    once__client_call_t *next, **place;
    once_client_t *client;
    once_client_cb cb;
    void *data;

    char *name; /* of the record in the journal */
    int is_key; /* the name is the idempotency key */
    char *method, *url, *target, *what;
    char *body;
    size_t body_len;
    once__client_line_t *lines;
    size_t line_count;
    once_policy_t *policy;
    uint64_t until_ms, keep_ms;
    char until_text[24], keep_text[24]; /* the same, for the journal */
    unsigned attempts_max;
    int keep_request;
    uint64_t give_up; /* monotonic; UINT64_MAX: never */

    once_claim_t *claim;
    char key[ONCE_KEY_TEXT_SIZE];
    uint64_t until;    /* Unix time, milliseconds */
    uint64_t expires;  /* the same: a server forgets the key then; UINT64_MAX: none has said so */
    unsigned attempts; /* of this call */
    unsigned failures; /* in a row: what the pauses grow by */
    int maybe_sent;    /* by this or an earlier attempt */
    int is_reading;    /* the record, under the claim */
    int is_noting;     /* a pause is due when the claim is back: */
    uint64_t asked_ms; /* the Retry-After before it, */
    char why[64];      /* and why */
    once__timer_t timer;
    void (*next_step)(once__client_call_t *call);

    CURL *easy; /* NULL: nothing was sent yet */
    struct curl_slist *list;
    once__buf_t head, answer;
    int is_sending; /* the transfer is under way */
    int status;
    once_header_t *headers;
    size_t header_count;
    int omitted, replayed, is_problem;
    char trouble[CURL_ERROR_SIZE];

    /* How it ends, while the journal is told. */
    once_client_end_t end;
    int error;
    char text[CURL_ERROR_SIZE + 64];
};

/* request.c: checks and copies. Returns ONCE_OK, or an error and `err`; then there is nothing to free. */
int once__client_call_new(once_client_t *client, const once_client_request_t *request,
                          once__client_call_t **call, once_error_t *err);
void once__client_call_free(once__client_call_t *call);

/* call.c */
int once__client_call_start(once__client_call_t *call);
void once__client_call_sent(once__client_call_t *call, CURLcode result);
void once__client_call_abandon(once__client_call_t *call);

/* send.c: adds the transfer. Returns 0, or -1 if memory is short. */
int once__client_send(once__client_call_t *call);

/* The answer's headers out of the lines that came. Returns 0, or -1 if memory is short. */
int once__client_read_headers(once__client_call_t *call);
once_slice_t once__client_header(const once__client_call_t *call, const char *name);

/* journal.c */
const char *once__client_scope(int is_key, int is_request);
once_ask_t once__client_ask(const once__client_call_t *call, int is_request);

/* The request as a response that a store can keep. `headers` has room for 4 + line_count. */
void once__client_pack(const once__client_call_t *call, once_header_t *headers,
                       once_response_t *response);

/*
 * When a server forgets the key, as a part of the note that a claim is given back with; and the earliest such time in the notes of
 * earlier attempts: UINT64_MAX if there is none. `newest`: that of the last attempt.
 */
#define ONCE__CLIENT_NOTE_SIZE 48
void once__client_note(char out[ONCE__CLIENT_NOTE_SIZE], const char *how, uint64_t expires);
uint64_t once__client_noted(const once_record_t *record, uint64_t *newest);

/* The idempotency key of a record that was made for a name: a UUID. */
int once__client_key_of(const once_record_t *record, char out[ONCE_KEY_TEXT_SIZE]);

/* The URL of the journal: of a store, of a directory, or (NULL) of one in the user's state directory, which is made. `out` is the
 * caller's to free. */
int once__client_journal_url(const char *journal, char **out, once_error_t *err);

#endif
