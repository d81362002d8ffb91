/*
 * once/client.h - the client's side: send an HTTP request until its outcome is known, with one idempotency key for one intent.
 *
 * An intent is what the caller wants to happen once, for example one payment. It has a name, and the client keeps it in a journal:
 * a store, by default a directory of the user. Before the first byte is sent, the journal has the intent on disk. If the process is
 * killed, a call with the same name goes on with the same key; if the intent has ended, a call with the same name gets the same
 * answer from the journal, and nothing is sent. A different request under the same name is refused.
 *
 * A client is used by one thread at a time, like a handle (once/once.h): watch once_client_fd() for reading and call
 * once_client_dispatch(), or call once_client_wait(). Callbacks run inside these. Several processes can use one journal: if two of
 * them call under one name, one sends and the other waits for its answer.
 *
 * What is sent again, and what is not, is in docs/call.md. All calls of a client share a budget of retries: beyond a fifth of the
 * first attempts and a sixteenth of `connections` each second, retries wait. Redirects are not followed. Certificates are verified.
 *
 * Only in builds with ONCE_WITH_CLIENT, which needs libcurl.
 */
#ifndef ONCE_CLIENT_H
#define ONCE_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include <once/error.h>
#include <once/once.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct once_client once_client_t;

/* Which HTTP is spoken. */
typedef enum once_client_http {
    ONCE_CLIENT_HTTP_ANY = 0, /* HTTP/2 if the server offers it over TLS, else HTTP/1.1 */
    ONCE_CLIENT_HTTP_1 = 1,
    ONCE_CLIENT_HTTP_2 = 2, /* HTTP/2 without asking, also without TLS */
} once_client_http_t;

/* An attempt had no final answer, and the next one comes after a pause. */
typedef struct once_client_pause {
    const char *name;  /* of the intent, or its key */
    unsigned attempts; /* made so far by this call; 0: another process is sending it */
    uint64_t pause_ms;
    const char *text; /* why, one line; valid until the callback returns */
} once_client_pause_t;

typedef struct once_client_options {
    size_t size;          /* set by ONCE_CLIENT_OPTIONS_INIT */
    const char *journal;  /* URL of a store, or a directory; NULL: $XDG_STATE_HOME/once/call */
    unsigned connections; /* at the same time; 0: 64 */
    once_client_http_t http;
    uint64_t timeout_ms;       /* of one attempt; 0: a minute */
    uint64_t connect_ms;       /* until it is connected; 0: 10 seconds */
    uint64_t pause_ms;         /* the first pause between two attempts; 0: half a second */
    uint64_t pause_max_ms;     /* the longest one; 0: a minute */
    const char *ca_file;       /* authorities to trust instead of the system's */
    const char *cert_file;     /* certificate of the client, PEM */
    const char *cert_key_file; /* its private key; NULL: in cert_file */
    const char *proxy;         /* its URL, "" for none; NULL: what the environment says */
    int netrc;                 /* credentials are in ~/.netrc */
    int reserved;              /* 0 */
    void (*pausing)(once_client_t *client, const once_client_pause_t *pause, void *data);
    void *data; /* of `pausing` */
} once_client_options_t;

#define ONCE_CLIENT_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(once_client_options_t), 0, 0, ONCE_CLIENT_HTTP_ANY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   \
            0, 0                                                                                   \
    }

/*
 * Opens a client and its journal. `options` may be NULL. Returns ONCE_OK, ONCE_E_CONFIG (also if there is no home directory), or as
 * once_open. `*client` is NULL on every error.
 */
ONCE_API ONCE_MUST_CHECK int once_client_open(const once_client_options_t *options,
                                              once_client_t **client, once_error_t *err);

/*
 * Closes the client. Calls under way are given up: their callbacks receive ONCE_CLIENT_OPEN, and the next call of that name goes
 * on at once. Inside a callback it does nothing. NULL is fine.
 */
ONCE_API void once_client_close(once_client_t *client);

/* The descriptor to watch for reading. */
ONCE_API int once_client_fd(const once_client_t *client);

/* Does what is due and calls callbacks; never waits. Returns ONCE_OK, or ONCE_E_REENTRANT inside a callback. */
ONCE_API int once_client_dispatch(once_client_t *client);

/* Waits until there is something to do, at most `timeout_ms` (-1: no limit), and does it. */
ONCE_API int once_client_wait(once_client_t *client, int timeout_ms);

/* ------------------------------------------------------------------------------------------------------------- calls */

typedef struct once_client_request {
    size_t size; /* set by ONCE_CLIENT_REQUEST_INIT */
    /*
     * The intent. `name`: what the caller calls it, 1 to ONCE_KEY_MAX bytes; its idempotency key is made by the journal, a UUID.
     * `key`: the idempotency key itself. Not both. Neither: the request is its own name, so that the same request is the same
     * intent for as long as the journal remembers it.
     */
    const char *name;
    const char *key;
    const char *method; /* NULL: POST */
    const char *url;    /* http or https, without user and password */
    once_slice_t body;
    const once_header_t *headers; /* part of the request: a call with others is refused */
    size_t header_count;
    /* Sent, but neither compared nor kept: tokens are renewed while an intent is open. They must be of the same account. */
    const once_header_t *credentials;
    size_t credential_count;
    uint64_t until_ms; /* after the intent was first seen nothing is sent any more; 0: 24 hours */
    uint64_t keep_ms;  /* how long beyond that the journal remembers it; 0: 7 days */
    uint64_t try_ms;   /* this call gives up after that; 0: not before until_ms */
    unsigned attempts; /* this call makes at most so many; 0: no limit */
    int keep_request;  /* the journal has the request, too: once_client_scan_sync finds it */
} once_client_request_t;

#define ONCE_CLIENT_REQUEST_INIT                                                                   \
    {                                                                                              \
        sizeof(once_client_request_t), 0, 0, 0, 0, {0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0               \
    }

typedef enum once_client_end {
    ONCE_CLIENT_ANSWERED = 1, /* there is a final answer. Only this end is remembered */
    /* the server does not know whether it took effect, and does not try again: ask its operator */
    ONCE_CLIENT_UNKNOWN = 2,
    ONCE_CLIENT_DENIED = 3, /* 401, 403 or 407: this attempt did nothing; mend the credentials */
    ONCE_CLIENT_UNSENT = 4, /* no byte was sent, and none will be until something is mended */
    ONCE_CLIENT_OPEN = 5,   /* given up for now; it may have taken effect */
    /* until_ms is over, or the server forgets the key; it may have taken effect */
    ONCE_CLIENT_LATE = 6,
    ONCE_CLIENT_MISMATCH = 7, /* the name belongs to a different request; nothing was sent */
    ONCE_CLIENT_FAILED =
        8, /* the journal cannot be used (`error`); nothing was sent by this call */
    /* 3xx but 303: the server names another URL (header Location), where nothing was sent. An earlier attempt may have acted */
    ONCE_CLIENT_REDIRECTED = 9,
} once_client_end_t;

/* "answered", "unknown", ... Static strings. */
ONCE_API const char *once_client_end_name(once_client_end_t end);

/* What became of a call. Everything it points to is valid until the callback returns. */
typedef struct once_client_outcome {
    once_client_end_t end;
    int error;  /* ONCE_OK; otherwise of the journal, with ANSWERED: it does not have the answer */
    int status; /* of the last answer; 0: there was none */
    int replayed;     /* the server says that it is the answer to an earlier attempt */
    int remembered;   /* it comes from the journal: nothing was sent */
    int reused;       /* the server says that the key belongs to another request */
    int body_omitted; /* the body is over ONCE_BODY_STORE_MAX bytes, or the server does not keep it */
    unsigned attempts; /* made by this call */
    const char *name;  /* of the intent, or its key; the one that was made if it had none */
    const char *key;   /* the idempotency key; "" if it was not needed */
    const char *text;  /* one line: why it ended so; "" after an answer */
    uint64_t until;    /* nothing is sent after this time: milliseconds since 1970 */
    const once_header_t *headers;
    size_t header_count;
    once_slice_t body;
} once_client_outcome_t;

typedef void (*once_client_cb)(once_client_t *client, const once_client_outcome_t *outcome,
                               void *data);

/*
 * Checks a request as once_client_call does, and begins nothing: for a program that has to know before the first of many calls that
 * none will be refused. Returns what once_client_call would return, and `err` says what is wrong.
 */
ONCE_API ONCE_MUST_CHECK int once_client_check(const once_client_request_t *request,
                                               once_error_t *err);

/*
 * Makes a call. If it returns ONCE_OK, `cb` is called once, from once_client_dispatch. On an error nothing was begun:
 * ONCE_E_INVALID, ONCE_E_KEY, ONCE_E_HEADER, ONCE_E_TOO_BIG, ONCE_E_CONFIG (the URL), ONCE_E_NOMEM, and `err` says what is wrong.
 */
ONCE_API ONCE_MUST_CHECK int once_client_call(once_client_t *client,
                                              const once_client_request_t *request,
                                              once_client_cb cb, void *data, once_error_t *err);

/* The same, and waits until `cb` has been called. */
ONCE_API ONCE_MUST_CHECK int once_client_call_sync(once_client_t *client,
                                                   const once_client_request_t *request,
                                                   once_client_cb cb, void *data,
                                                   once_error_t *err);

/* Receives a request, valid until it returns; `credentials` have names, and no values. Any value but 0 ends the scan. */
typedef int (*once_client_scan_cb)(once_client_t *client, const once_client_request_t *request,
                                   void *data);

/*
 * Finds the requests that are in the journal (keep_request) and have not ended: of the intent `name` (a name, or a key), or all of
 * them if it is NULL. `each` may call once_client_call. Returns ONCE_OK, ONCE_E_NOT_FOUND if there is none, or the journal's error.
 */
ONCE_API ONCE_MUST_CHECK int once_client_scan_sync(once_client_t *client, const char *name,
                                                   once_client_scan_cb each, void *data);

#ifdef __cplusplus
}
#endif
#endif
