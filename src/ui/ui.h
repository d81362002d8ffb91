/*
 * once ui: the page, and what it asks for. docs/ui.md is the specification.
 *
 * libmicrohttpd has a few threads of its own. A request is answered by one of them, blocking: store calls go through one handle
 * with a thread (`thread=on`), decisions one at a time (`deciding`). What may take long in a large store (counting) or at a slow
 * peer (scraping) is done by threads of watch.c, and requests get what was found last.
 *
 * Invariants:
 *   1. A handler runs only for a session whose role is at least the one that its route needs.
 *   2. A POST is looked at only if its Origin is ours and it carries the secret of its session.
 *   3. No answer has a body, a header value or a claim that its session may not see.
 *   4. A view looks at a bounded number of records.
 */
#ifndef ONCE_UI_UI_H
#define ONCE_UI_UI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <microhttpd.h>
#include <once/audit.h>

#include "cli/cli.h"
#include "cli/operator.h"

typedef enum once__ui_role {
    ONCE__UI_NOBODY,
    ONCE__UI_VIEW,
    ONCE__UI_OPERATE,
} once__ui_role_t;

#define ONCE__UI_SECRET_SIZE                                                                       \
    33 /* of a token, a session or its secret: 32 characters and the terminator */

/* Somebody whose browser has shown a token, or whom the proxy has named. */
typedef struct once__ui_session {
    once__ui_role_t role; /* ONCE__UI_NOBODY: the place is free */
    char id[ONCE__UI_SECRET_SIZE];
    char csrf[ONCE__UI_SECRET_SIZE];
    char name[ONCE_AUDIT_BY_MAX + 1]; /* for the audit trail */
    uint64_t line;                    /* the number of its line in a token file; 0: of no file */
    uint64_t used_ms;
} once__ui_session_t;

typedef struct once__ui_settings {
    const char *config;
    const char *listen;
    const char *token_file;
    const char *trust_header;
    const char *role;
    const char *prefix;
    once__cli_list_t origins, gates, relays, consumers;
    once__cli_list_t letters; /* topics and queues of dead letters */
} once__ui_settings_t;

typedef struct once__ui_sessions once__ui_sessions_t;
typedef struct once__ui_watch once__ui_watch_t;
typedef struct once__ui_server once__ui_server_t;

typedef struct once__ui {
    const once__ui_settings_t *set;
    const char *url;
    char prefix[200]; /* "" or /PATH, without a slash at the end */
    once_t *once;
    pthread_mutex_t deciding; /* a handle acts for one person at a time */
    once_t *replaying;        /* for letters: a broker that hangs must not keep decisions waiting */
    pthread_mutex_t asking;   /* a broker: one look, or one replay, at a time */
    once__ui_sessions_t *sessions;
    once__ui_watch_t *watch;
} once__ui_t;

/* One request that may be answered. A handler returns what it answers, or NULL after setting `status` and `why`. */
typedef struct once__ui_request {
    once__ui_t *ui;
    struct MHD_Connection *connection;
    once__ui_session_t who;
    json_t *body; /* of a POST: an object */
    unsigned status;
    char why[700];
} once__ui_request_t;

typedef json_t *once__ui_handler_t(once__ui_request_t *request);

/* Sets both, and returns NULL. */
json_t *once__ui_refuse(once__ui_request_t *request, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for an exit code of cli/: what was said is in `why` already. */
json_t *once__ui_failed(once__ui_request_t *request, int code);

/* A parameter of the address; NULL: none. */
const char *once__ui_parameter(const once__ui_request_t *request, const char *name);

/* Milliseconds of a clock that only goes forward. */
uint64_t once__ui_now(void);

/* -------------------------------------------------------------------------------------------------- session.c: who it is */

once__ui_sessions_t *once__ui_sessions_new(const once__ui_settings_t *set);
void once__ui_sessions_free(once__ui_sessions_t *sessions);

/* Reads the token file again, or makes a new token. `token` is "" if there is a file. Returns once__cli_exit. */
int once__ui_sessions_load(once__ui_sessions_t *sessions, char token[ONCE__UI_SECRET_SIZE]);

/* Begins a session for a token, which is used up if it was a printed one. 0; -1: it is not known; 1: too many are signed in. */
int once__ui_login(once__ui_sessions_t *sessions, const char *token, once__ui_session_t *session);

/* Begins a session, or goes on with one, of a person whom a trusted proxy names. 0; -1: it is not a name; 1: as above. */
int once__ui_login_trusted(once__ui_sessions_t *sessions, const char *name, const char *id,
                           once__ui_session_t *session);

/* The session of a cookie. 0 or -1. */
int once__ui_session_find(once__ui_sessions_t *sessions, const char *id,
                          once__ui_session_t *session);
void once__ui_logout(once__ui_sessions_t *sessions, const char *id);

/* ------------------------------------------------------------------------------------------------- server.c: requests */

/* Listens. NULL after saying why not; `port` is where. */
once__ui_server_t *once__ui_server_start(once__ui_t *ui, unsigned *port);

/* Ends connections that have taken too long. Called every second or so. */
void once__ui_server_tick(once__ui_server_t *server);
void once__ui_server_stop(once__ui_server_t *server);

/* ------------------------------------------------------------------------------------------------ what is asked for */

once__ui_handler_t once__ui_records, once__ui_record, once__ui_response,
    once__ui_audit; /* records.c */
once__ui_handler_t once__ui_settle, once__ui_erase, once__ui_outbox, once__ui_retry,
    once__ui_drop;                                    /* decide.c */
once__ui_handler_t once__ui_letters, once__ui_replay; /* letters.c */
once__ui_handler_t once__ui_stats, once__ui_metrics;  /* watch.c */

/* decide.c: in whose name, and why. 0, or -1 after refusing. */
int once__ui_operator(once__ui_request_t *request, once__cli_operator_t *operator);

/* `once` is a handle of its own: a count must not keep views waiting. */
once__ui_watch_t *once__ui_watch_start(once__ui_t *ui, once_t *once);
void once__ui_watch_stop(once__ui_watch_t *watch);

/* Counts are out of date: something was decided. */
void once__ui_watch_stale(once__ui_watch_t *watch);

/* scrape.c: the samples of Prometheus's text format, [{name, labels, value}]; at most some thousands. NULL: memory is short. */
json_t *once__ui_samples(const char *text);

/* The files of page/. */
typedef struct once__ui_file {
    const char *name;
    const char *text;
} once__ui_file_t;

extern const once__ui_file_t once__ui_files[];
extern const size_t once__ui_files_count;

#endif
