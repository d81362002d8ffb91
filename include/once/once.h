/*
 * once/once.h - libonce: an operation takes effect exactly once.
 *
 * The idea in five lines: ask with a scope, a key and what is to be done (once_begin). The answer is one of
 *     run       you hold the claim: do the work, then once_claim_complete / once_claim_release / once_claim_doubt
 *     replay    it was done before: here is the recorded response
 *     busy      somebody is doing it now
 *     mismatch  the key was used for something else
 *     unknown   it may have been done; the policy says not to try again
 *
 * Threads. A handle is used by one thread at a time, and its callbacks run inside once_dispatch (or inside a blocking call)
 * of that thread. With the option `thread=on` the handle runs a thread of its own that dispatches and renews: then every
 * function may be called from any thread, and callbacks run on the handle's thread.
 * A claim, an answer and a record are still used by one thread at a time.
 *
 * Loops. once_fd() is one descriptor; when it becomes readable, call once_dispatch(). Level- and edge-triggered hosts both
 * work: dispatch drains. Nothing here blocks except the functions that end in _sync, once_wait, once_close with a timeout,
 * and the
 * reading and writing of small files where secrets or keys are in files (once_open, a rotation in once_dispatch).
 *
 * Fork. A handle belongs to the process that opened it. After fork() every call on it in the child answers ONCE_E_FORKED and
 * touches nothing; once_close() in the child frees its memory only.
 *
 * Lost replies. A store call whose reply did not come is repeated with the same claim id until the store answers; nothing is
 * assumed. A call that was accepted (returned ONCE_OK) calls its callback exactly once.
 *
 * Memory. Strings and buffers given to a function are copied before it returns. What a callback is given is valid until it
 * returns, except what is taken by once_answer_take_claim() or kept by once_answer_keep().
 *
 * What must not be done: use a claim after it was given to complete, release or doubt; block inside a callback; copy a store
 * directory under a running handle except as docs/operations.md says.
 */
#ifndef ONCE_ONCE_H
#define ONCE_ONCE_H

#include <stddef.h>
#include <stdint.h>

#include <once/body.h>
#include <once/error.h>
#include <once/key.h>
#include <once/policy.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_VERSION_MAJOR 0
#define ONCE_VERSION_MINOR 1
#define ONCE_VERSION_PATCH 0
#define ONCE_VERSION       "0.1.0"

#define ONCE_ID_SIZE          32  /* bytes of a record id */
#define ONCE_CLAIM_ID_SIZE    16  /* bytes of a claim id */
#define ONCE_SCOPE_HASH_SIZE  16  /* bytes of a scope's keyed hash */
#define ONCE_TOKEN_SIZE       72  /* text of a claim (`Once-Claim`) with its terminator */
#define ONCE_NOTE_MAX         200 /* bytes of the text that a released record keeps */
#define ONCE_BODY_STORE_MAX   (16 * 1024 * 1024) /* bytes of a response body that a record can hold */
#define ONCE_HEADERS_MAX      (256 * 1024)       /* bytes of all its header names and values */
#define ONCE_HEADER_COUNT_MAX 500                /* and how many there can be */

typedef struct once once_t;                 /* a handle */
typedef struct once_options once_options_t; /* how to open one */
typedef struct once_claim once_claim_t;     /* the right to run the operation now */
typedef struct once_answer once_answer_t;   /* what a callback is given */
typedef struct once_record once_record_t;   /* a record as it was when it was read */

/* The version of the library that is running (ONCE_VERSION is the one compiled against). */
ONCE_API const char *once_version(void);

/* ---------------------------------------------------------------------------------------------- opening and closing */

/* Options with their defaults; NULL when out of memory. Copied by once_open: free them any time. */
ONCE_API once_options_t *once_options_new(void);
ONCE_API void once_options_free(once_options_t *options);

/*
 * Sets one option. ONCE_E_CONFIG names it and says what was expected, ONCE_E_INVALID is for NULL; nothing changes then.
 *   ttl, lease, recover, record, release, release_ttl   the default policy (once/policy.h)
 *   store_timeout  5s     how long a store that does not answer is tried again, from its first failure on, before a callback is
 *                         told ONCE_E_UNAVAILABLE; the work on it goes on by itself
 * insist         on     off: a store that cannot even be reached is not tried again before it answered for the first time,
 * and
 *                         the callback is told ONCE_E_UNAVAILABLE at once; for programs that somebody waits for
 *   renew          on     claims are renewed every third of their lease while the handle is dispatched; off: by the caller
 *   reap           1m     how often expired records are removed by this handle; off: never
 *   thread         off    on: a thread of the handle's own dispatches (see Threads above)
 *   secrets        store  where the secrets live: `store`, or `file:PATH` (created 0600 by whoever comes first)
 *   encrypt        off    `file:PATH`: stored responses are encrypted with AES-256-GCM; the file's lines are
 *                         `ID HEX64`, the last is used for new responses, all of them for reading
 *   encrypt_require on    with `encrypt`, a stored response that is not encrypted is not read (ONCE_E_UNSEALED): whoever can
 * write to the store could have made it up. off: for as long as there are responses from before, and where
 *                         backends complete in SQL, which encrypts nothing
 *   compress       1k     responses from this size on are compressed with zstd; off: never
 */
ONCE_API ONCE_MUST_CHECK int once_options_set(once_options_t *options, const char *name,
                                              const char *value, once_error_t *err);

/*
 * Opens a store: `memory:` (private to the handle), `memory:NAME` (shared by all handles of the process that use the name),
 * and, where built in, `local:PATH`, `redis://`, `rediss://`, `redis+sentinel://`, `redis+cluster://`, `postgres://`. Options
 * may
 * also stand in the URL: `memory:?max_records=1000&ttl=1h` (percent-encoded); they win over `options`. `options` may be NULL.
 * all:     max_records            claims of new keys beyond it answer ONCE_E_FULL; what is known goes on
 * (docs/stores.md#bounds).
 * max_bytes              the same for what is stored. memory: has 1000000 and 1g, the others have no bound by default
 *   local:   segment      64m       size of a full-grown file of the log: 64k to 1g
 * durability   full      or `claims-relaxed`: `run` is answered before the claim is on the disk (docs/local-store.md)
 * postgres:// connections 4       to the server, 1 to 8; and every parameter of libpq (docs/postgres.md). A callback that is
 * told
 *                                  ONCE_E_CONFIG: the schema is not installed, or the user may not use it
 * redis://    prefix   once:      of all keys; wait, tls, ca, ... (docs/stores.md). A callback that is told ONCE_E_CONFIG:
 * the
 *                                  server must not be used, once_store_trouble says why
 * Does not wait for the store: what is asked before it is reachable waits, at most store_timeout. A local store is opened at
 * once,
 * and made where there is none.
 * Errors: ONCE_E_CONFIG, ONCE_E_UNSUPPORTED, ONCE_E_SECRET, ONCE_E_NOMEM, ONCE_E_IO; of a local store also ONCE_E_CORRUPT (a
 * part
 * is missing or damaged), ONCE_E_NEWER, ONCE_E_FULL, ONCE_E_CONFLICT (others use it, and its index cannot be used).
 */
ONCE_API ONCE_MUST_CHECK int once_open(const char *url, const once_options_t *options,
                                       once_t **handle, once_error_t *err);

/*
 * Checks a store URL as far as it can be without opening anything: scheme, options and their limits. Touches neither files nor the
 * network, so that a program can check its configuration before it forks or changes its user.
 * Returns ONCE_OK; otherwise ONCE_E_CONFIG, ONCE_E_UNSUPPORTED, ONCE_E_INVALID for NULL, or ONCE_E_NOMEM.
 */
ONCE_API ONCE_MUST_CHECK int once_store_check(const char *url, once_error_t *err);

/* The descriptor to watch for reading. It stays the same until once_close. */
ONCE_API int once_fd(const once_t *once);

/*
 * Why the store cannot be used at the moment, in words: what a server refused, or how it must not be set up; of a local store,
 * that some of it was found damaged when it was opened. Empty when there is nothing to tell. Written to `text`, cut to `size`
 * bytes
 * with the terminator; no credential is in it. Returns its length.
 */
ONCE_API size_t once_store_trouble(once_t *once, char *text, size_t size);

/* Does whatever is due and calls callbacks; never waits. Returns how many callbacks it called, or a negative error. */
ONCE_API int once_dispatch(once_t *once);

/*
 * Waits until there is something to dispatch, at most `timeout_ms` (-1: for ever), and dispatches. ONCE_E_REENTRANT;
 * ONCE_E_UNSUPPORTED with `thread=on`: the thread does that.
 */
ONCE_API int once_wait(once_t *once, int timeout_ms);

typedef void (*once_shutdown_cb)(once_t *once, void *data);

/*
 * Starts a graceful end: new asks are refused with ONCE_E_CLOSED, asks under way are called back with it (a claim that was
 * granted meanwhile is released), submitted completions, releases and doubts go on until the store has them. Then `cb` is
 * called. Claims that the caller still holds may still be completed; they are not waited for: call it again after that.
 * ONCE_E_CLOSED while an earlier callback has not been called yet.
 */
ONCE_API ONCE_MUST_CHECK int once_shutdown(once_t *once, once_shutdown_cb cb, void *data);

/*
 * Ends the handle. First does what once_shutdown does, blocking at most `timeout_ms` (-1: for ever; 0: not at all). Returns
 * ONCE_OK, or ONCE_E_UNAVAILABLE when submitted writes had to be abandoned: then their records stay as the store last had
 * them until their lease is over. Outstanding callbacks are called with ONCE_E_CLOSED. Claims still held are freed.
 * The handle is gone in every case. NULL is fine. Must not be called from a callback (ONCE_E_REENTRANT, nothing happens).
 */
ONCE_API int once_close(once_t *once, int timeout_ms);

/* --------------------------------------------------------------------------------------------------------- answers */

typedef enum once_outcome {
    ONCE_OUTCOME_NONE = 0, /* there was an error: see once_answer_error */
    /* of an ask */
    ONCE_OUTCOME_RUN = 1,
    ONCE_OUTCOME_REPLAY = 2,
    ONCE_OUTCOME_BUSY = 3,
    ONCE_OUTCOME_MISMATCH = 4,
    ONCE_OUTCOME_UNKNOWN = 5,
    /* of a write */
    ONCE_OUTCOME_DONE = 6, /* it is as you asked, now or already from an earlier try */
    ONCE_OUTCOME_ALREADY =
        7, /* this claim completed the record before: here is the stored response */
    ONCE_OUTCOME_LOST =
        8, /* the claim is no longer yours: answer from the record, never with your own */
    ONCE_OUTCOME_REFUSED =
        9, /* settle, purge: the record moved on, is completed, or its lease is live */
} once_outcome_t;

/* "run", "replay", ... Static strings. */
ONCE_API const char *once_outcome_name(once_outcome_t outcome);

typedef void (*once_cb)(once_t *once, once_answer_t *answer, void *data);

ONCE_API int
once_answer_error(const once_answer_t *answer); /* ONCE_OK or why there is no outcome */
ONCE_API once_outcome_t once_answer_outcome(const once_answer_t *answer);

/*
 * The record as it is after the call; NULL when there is none: errors, records that do not exist, and a claim that was lost
 * because its record was forgotten, whatever the key was used for since. Lives with the answer. After a write that is done, and
 * of a busy record, only state, epoch, policy, lease and times are known; key, scope hash and response come with replay,
 * already,
 * lost, once_record_get and once_record_scan.
 */
ONCE_API const once_record_t *once_answer_record(const once_answer_t *answer);

/*
 * With ONCE_OUTCOME_RUN: the claim. Taking it makes it yours until you give it to once_claim_complete, once_claim_release,
 * once_claim_doubt or
 * once_claim_drop. A claim nobody takes is released early when the callback returns. NULL at every other outcome, or when
 * taken.
 */
ONCE_API once_claim_t *once_answer_take_claim(once_answer_t *answer);

/* Busy: when asking again makes sense, in milliseconds from now: what is left of the lease, at least 1. Else 0. */
ONCE_API uint64_t once_answer_retry_after_ms(const once_answer_t *answer);

/*
 * Keeps the answer beyond the callback; give it back with once_answer_free, before once_close. Answers of _sync calls are the
 * caller's to free, likewise.
 */
ONCE_API void once_answer_keep(once_answer_t *answer);
ONCE_API void once_answer_free(once_answer_t *answer);

/* --------------------------------------------------------------------------------------------------- asking to run */

typedef struct once_ask {
    size_t size;                 /* sizeof(once_ask_t): set by ONCE_ASK_INIT */
    once_slice_t scope;          /* whose key it is; may be empty */
    once_slice_t key;            /* 1 to ONCE_KEY_MAX bytes */
    once_slice_t method;         /* of the fingerprint */
    once_slice_t target;         /* of the fingerprint: path with query, or the operation's name */
    const once_body_t *body;     /* a streamed body, or NULL and then: */
    once_slice_t bytes;          /* the whole body, exact */
    const once_policy_t *policy; /* NULL: the handle's */
    /*
     * ONCE_CLAIM_ID_SIZE bytes that never repeat, or NULL: the library makes them. Repeat one only when its reply was lost and
     * nothing was run under it; one that was released answers ONCE_OUTCOME_LOST.
     */
    const uint8_t *claim_id;
} once_ask_t;

#define ONCE_ASK_INIT                                                                              \
    {                                                                                              \
        sizeof(once_ask_t), {0, 0}, {0, 0}, {0, 0}, {0, 0}, 0, {0, 0}, 0, 0                        \
    }

/*
 * Asks whether to run. ONCE_OK: `cb` will be called once, from once_dispatch. Any error: nothing was submitted and `cb` will
 * not
 * be called: ONCE_E_KEY (empty or too long), ONCE_E_TOO_BIG (scope, method or target over 64 KiB), ONCE_E_INVALID (no callback,
 * `size` not set, both body and bytes), ONCE_E_NOMEM, ONCE_E_IO (no randomness), ONCE_E_CLOSED,
 * ONCE_E_FORKED.
 * The callback's errors: ONCE_E_UNAVAILABLE, ONCE_E_FULL, ONCE_E_NOMEM, ONCE_E_SECRET, ONCE_E_NEWER, ONCE_E_CORRUPT, ONCE_E_IO,
 * ONCE_E_CLOSED.
 * At ONCE_OUTCOME_RUN less than half the lease has passed since the claim was granted.
 */
ONCE_API ONCE_MUST_CHECK int once_begin(once_t *once, const once_ask_t *ask, once_cb cb,
                                        void *data);

/* -------------------------------------------------------------------------------------------------------- responses */

typedef struct once_header {
    once_slice_t name;
    once_slice_t value;
} once_header_t;

typedef struct once_response {
    size_t size;      /* sizeof(once_response_t): set by ONCE_RESPONSE_INIT */
    int status;       /* 200 to 599 */
    int body_omitted; /* the body is not stored: its replay has none */
    /* In order; values of any bytes but CR, LF and NUL; names are not empty, without blanks, colons and control characters. */
    const once_header_t *headers;
    size_t header_count;
    once_slice_t body;
    uint64_t retain_ms; /* kept this long from now; 0: the claim's ttl */
} once_response_t;

#define ONCE_RESPONSE_INIT                                                                         \
    {                                                                                              \
        sizeof(once_response_t), 200, 0, 0, 0, {0, 0}, 0                                           \
    }

/* ----------------------------------------------------------------------------------------------------------- claims */

/*
 * The end of a claim. Each takes the claim over when it returns ONCE_OK: the pointer is then gone for the caller. On an error
 * (ONCE_E_INVALID, ONCE_E_HEADER, ONCE_E_TOO_BIG, ONCE_E_NOMEM, ONCE_E_IO, ONCE_E_CLOSED, ONCE_E_FORKED) the claim is still the
 * caller's. All of them are repeated until the store has them, and the claim is renewed meanwhile. When that takes longer than
 * store_timeout the callback is told ONCE_E_UNAVAILABLE, ONCE_E_FULL or ONCE_E_NEWER, and the work goes on without it.
 * ONCE_E_CORRUPT and ONCE_E_UNSUPPORTED are final: the store will never take it. `cb` may be NULL.
 *
 * complete: the operation took effect, this is its response. Outcomes done, already, lost. ONCE_E_HEADER: a gateway writes the
 *           headers out as they are, and a line break would let a value make headers of its own.
 * release:  it may be repeated: the key can be claimed again, for the same request. `status` (or 0) and `note` (at most
 *           ONCE_NOTE_MAX bytes, longer is cut; no personal data) are kept for people.
 * release_early: the same, and it ended before any effect: nothing was sent, or it was refused before it could do anything. The
 *           record is kept for the policy's release_ttl and not for the ttl; then the key is free, for any request. Where an
 * earlier claim of the record may have taken effect it is as release. Say it only if it is true: `hold` depends on it.
 * doubt:    nobody knows.
 */
ONCE_API ONCE_MUST_CHECK int
once_claim_complete(once_claim_t *claim, const once_response_t *response, once_cb cb, void *data);
ONCE_API ONCE_MUST_CHECK int once_claim_release(once_claim_t *claim, int status, once_slice_t note,
                                                once_cb cb, void *data);
ONCE_API ONCE_MUST_CHECK int once_claim_release_early(once_claim_t *claim, int status,
                                                      once_slice_t note, once_cb cb, void *data);
ONCE_API ONCE_MUST_CHECK int once_claim_doubt(once_claim_t *claim, once_cb cb, void *data);

/*
 * Extends the lease now, whatever the option `renew` says. The claim stays the caller's. `cb` may be NULL.
 *
 * This and every call below returns ONCE_E_NOMEM, ONCE_E_CLOSED, ONCE_E_FORKED, and ONCE_E_INVALID for a token, filter or
 * response that is none, and once_record_settle ONCE_E_HEADER and ONCE_E_TOO_BIG as once_claim_complete; then nothing was
 * submitted. Their
 * callbacks can be told ONCE_E_UNAVAILABLE, ONCE_E_FULL, ONCE_E_NEWER, ONCE_E_CORRUPT, ONCE_E_IO, ONCE_E_NOMEM and
 * ONCE_E_CLOSED.
 */
ONCE_API ONCE_MUST_CHECK int once_claim_renew(once_claim_t *claim, once_cb cb, void *data);

/* Forgets the claim without telling the store: as if this process had died. It runs out by its lease. */
ONCE_API void once_claim_drop(once_claim_t *claim);

ONCE_API uint32_t once_claim_epoch(const once_claim_t *claim);

/*
 * What a complete response means for this claim: once_policy_judge by the stricter of `policy` (NULL: the handle's) and the
 * record's. A key that was first used where `hold` rules is not released by a route that would release it.
 */
ONCE_API once_judgement_t once_claim_judge(const once_claim_t *claim, const once_policy_t *policy,
                                           int status, once_verdict_t said);

/* 0 as soon as a renewal has told that the claim is lost: stop the work if it can be stopped. */
ONCE_API int once_claim_alive(const once_claim_t *claim);

/* The claim as opaque text, for the backend (`Once-Claim`) and for once_claim_adopt. Always terminated. */
ONCE_API void once_claim_token(const once_claim_t *claim, char out[ONCE_TOKEN_SIZE]);

/*
 * A claim from its text: for the program that finishes what another began. It is not renewed until once_claim_renew is called
 * on it.
 * Whether it still holds is known only when it is used. `lease_ms` is what a renewal or doubt will ask for; 0: the handle's.
 * ONCE_E_INVALID when the text is not a claim.
 */
ONCE_API ONCE_MUST_CHECK int once_claim_adopt(once_t *once, const char *token, uint64_t lease_ms,
                                              once_claim_t **claim);

/* ---------------------------------------------------------------------------------------------------------- records */

typedef enum once_state {
    ONCE_STATE_NONE = 0,
    ONCE_STATE_PENDING = 1,
    ONCE_STATE_COMPLETED = 2,
    ONCE_STATE_FAILED = 3,
    ONCE_STATE_UNKNOWN = 4,
} once_state_t;

ONCE_API const char *once_state_name(once_state_t state); /* static string */

ONCE_API once_state_t once_record_state(const once_record_t *record);
/* ONCE_ID_SIZE, ONCE_SCOPE_HASH_SIZE and ONCE_CLAIM_ID_SIZE bytes. */
ONCE_API const uint8_t *once_record_id(const once_record_t *record);
ONCE_API const uint8_t *once_record_scope_hash(const once_record_t *record);
ONCE_API const uint8_t *once_record_claim_id(const once_record_t *record);
ONCE_API once_slice_t once_record_key(const once_record_t *record);
ONCE_API uint32_t once_record_epoch(const once_record_t *record);
ONCE_API once_recover_t once_record_recover(const once_record_t *record);
/* Of the response or the failure, 0: none; and why it failed, which may be empty. */
ONCE_API int once_record_status(const once_record_t *record);
ONCE_API once_slice_t once_record_note(const once_record_t *record);
/* Since its first claim, and since its last change. */
ONCE_API uint64_t once_record_age_ms(const once_record_t *record);
ONCE_API uint64_t once_record_idle_ms(const once_record_t *record);
/* What is left of the lease, 0: it is over; and until it is forgotten, 0: never. */
ONCE_API uint64_t once_record_lease_ms(const once_record_t *record);
ONCE_API uint64_t once_record_expires_ms(const once_record_t *record);
/* What its key and response take in the store. */
ONCE_API uint64_t once_record_bytes(const once_record_t *record);
/* The claim that it is under, as text: for once_record_settle and once_record_purge. */
ONCE_API void once_record_token(const once_record_t *record, char out[ONCE_TOKEN_SIZE]);

/*
 * The stored response of a completed record. `response` points into the record and lives as long as it does.
 * ONCE_E_NOT_FOUND when it has none, ONCE_E_SEALED, ONCE_E_UNSEALED, ONCE_E_CORRUPT, ONCE_E_NOMEM.
 */
ONCE_API ONCE_MUST_CHECK int once_record_response(const once_record_t *record,
                                                  once_response_t *response);

/* The id of (scope, key) and the hash of a scope in this store. ONCE_E_KEY; ONCE_E_UNAVAILABLE while the secrets are not there. */
ONCE_API ONCE_MUST_CHECK int once_record_id_of(once_t *once, once_slice_t scope, once_slice_t key,
                                               uint8_t id[ONCE_ID_SIZE]);
ONCE_API ONCE_MUST_CHECK int once_scope_hash_of(once_t *once, once_slice_t scope,
                                                uint8_t hash[ONCE_SCOPE_HASH_SIZE]);

/* Reads one record. ONCE_E_NOT_FOUND when there is none. */
ONCE_API ONCE_MUST_CHECK int once_record_get(once_t *once, const uint8_t id[ONCE_ID_SIZE],
                                             once_cb cb, void *data);

typedef struct once_settle {
    size_t size; /* sizeof(once_settle_t): set by ONCE_SETTLE_INIT */
    const char
        *token; /* the claim that was judged: once_record_token of the record that was read */
    const once_response_t
        *response;     /* it took effect, with this response; NULL: it did not and no longer can */
    once_slice_t note; /* with response NULL: as in once_claim_release */
    int status;        /* likewise */
    int force;         /* although the lease is live */
} once_settle_t;

#define ONCE_SETTLE_INIT                                                                           \
    {                                                                                              \
        sizeof(once_settle_t), 0, 0, {0, 0}, 0, 0                                                  \
    }

/*
 * Settles a record as somebody found out what became of the operation. Refused when the record moved on or is completed, and
 * while the lease is live, unless `force`.
 */
ONCE_API ONCE_MUST_CHECK int once_record_settle(once_t *once, const once_settle_t *settle,
                                                once_cb cb, void *data);

/*
 * Removes a record: the key counts as never used. A completed or failed one is removed as it is; a pending or unknown one
 * only with `force`. In every case the record must still be the one that `token` names, else it is refused.
 */
ONCE_API ONCE_MUST_CHECK int once_record_purge(once_t *once, const char *token, int force,
                                               once_cb cb, void *data);

typedef struct once_filter {
    size_t size;               /* sizeof(once_filter_t): set by ONCE_FILTER_INIT */
    unsigned states;           /* bits 1u << once_state_t; 0: all */
    int stuck;                 /* only pending ones with the lease over, and unknown ones */
    uint64_t older_than_ms;    /* only with at least this age; 0: all */
    uint64_t younger_than_ms;  /* only with less than this age; 0: all */
    const uint8_t *scope_hash; /* only of this scope */
    size_t scope_hash_len;     /* how many of its bytes count: 1 to ONCE_SCOPE_HASH_SIZE */
    uint64_t limit;            /* at most so many; 0: all */
} once_filter_t;

#define ONCE_FILTER_INIT                                                                           \
    {                                                                                              \
        sizeof(once_filter_t), 0, 0, 0, 0, 0, 0, 0                                                 \
    }

/* Called for each record; anything but 0 ends the scan. The record lives until the call returns. */
typedef int (*once_scan_cb)(once_t *once, const once_record_t *record, void *data);

/*
 * Shows every record that existed during the whole scan and passes the filter, in no order; one that comes or goes meanwhile
 * may be shown or not; none is shown twice. Works in steps and holds nothing up. `done` is called at the end. Records that
 * cannot
 * be read are not shown, but counted: whoever needs all of them asks once_answer_damaged.
 */
ONCE_API ONCE_MUST_CHECK int once_record_scan(once_t *once, const once_filter_t *filter,
                                              once_scan_cb each, once_cb done, void *data);
/* Scan: records that were met and cannot be read, whether they would pass the filter or not. */
ONCE_API uint64_t once_answer_damaged(const once_answer_t *answer);

/* Removes expired records, at most `limit` of them (0: all). The answer's count tells how many. */
ONCE_API ONCE_MUST_CHECK int once_store_reap(once_t *once, uint64_t limit, once_cb cb, void *data);
ONCE_API uint64_t once_answer_count(const once_answer_t *answer);

typedef struct once_stats {
    uint64_t pending, completed, failed, unknown;
    uint64_t stuck;       /* pending with the lease over, and unknown */
    uint64_t expired;     /* not yet removed; counted in none of the above */
    uint64_t oldest_ms;   /* age of the oldest record; 0: no record */
    uint64_t bytes;       /* that the store uses for records */
    uint64_t max_records; /* its bound; 0: none */
    uint64_t max_bytes;   /* its bound; 0: none */
    /* of a local store; 0 with others */
    uint64_t segments;      /* files of the log; `bytes` is their size */
    uint64_t index_bytes;   /* on disk, beside them */
    uint64_t spare_bytes;   /* of emptied files that wait to be used again, beside them */
    uint64_t quarantined;   /* damaged ranges that were set aside: see once fsck */
    uint64_t damaged;       /* records that cannot be read; counted in none of the above */
    uint64_t summary_bytes; /* of the summaries of the files of the log, beside them */
} once_stats_t;

ONCE_API ONCE_MUST_CHECK int once_store_stats(once_t *once, once_cb cb, void *data);
ONCE_API const once_stats_t *
once_answer_stats(const once_answer_t *answer); /* NULL: no such answer */

/*
 * How full the store is, as far as the handle knows it at this moment: it does not wait. A postgres:// or redis:// store is
 * looked at only while it has bounds and claims are made, every few seconds; until then, and without bounds, all of it is 0.
 */
typedef struct once_usage {
    size_t size;                   /* sizeof(once_usage_t): set by ONCE_USAGE_INIT */
    uint64_t records, max_records; /* a bound of 0: none */
    uint64_t bytes, max_bytes;
} once_usage_t;

#define ONCE_USAGE_INIT                                                                            \
    {                                                                                              \
        sizeof(once_usage_t), 0, 0, 0, 0                                                           \
    }

ONCE_API ONCE_MUST_CHECK int once_store_usage(once_t *once, once_usage_t *usage);

/*
 * Starts a new fingerprint secret. Earlier ones stay readable; those replaced longer than `keep_ms` ago are forgotten (choose
 * at least the longest ttl and a minute, which is how long other handles may take to notice: a record whose secret is forgotten
 * answers mismatch). The answer's count is the new secret's id.
 * ONCE_E_UNSUPPORTED when the secrets are in a file that this process cannot write, ONCE_E_CONFLICT when another rotation won,
 * ONCE_E_FULL when four secrets would have to be kept, which is the most, ONCE_E_UNAVAILABLE while the secrets are not there
 * yet.
 */
ONCE_API ONCE_MUST_CHECK int once_secret_rotate(once_t *once, uint64_t keep_ms, once_cb cb,
                                                void *data);

/* ----------------------------------------------------------------------------------------------------- blocking calls */

/*
 * The same calls over the same path for programs without a loop: each submits, waits and gives the answer (free it with
 * once_answer_free). They return the answer's error, or why nothing was submitted; `*answer` is NULL on every error.
 * A blocked caller does not dispatch, so nothing is renewed while it works: choose a lease that covers the work, call
 * once_claim_renew_sync in between, or open with `thread=on`. ONCE_E_REENTRANT inside a callback of the same handle.
 * once_claim_complete_sync, once_claim_release_sync, once_claim_release_early_sync and once_claim_doubt_sync take the claim
 * over unless they return
 * ONCE_E_INVALID, ONCE_E_HEADER, ONCE_E_TOO_BIG, ONCE_E_NOMEM, ONCE_E_IO, ONCE_E_FORKED or ONCE_E_REENTRANT. `answer` may be
 * NULL where only the code matters.
 */
ONCE_API ONCE_MUST_CHECK int once_begin_sync(once_t *once, const once_ask_t *ask,
                                             once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_claim_complete_sync(once_claim_t *claim,
                                                      const once_response_t *response,
                                                      once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_claim_release_sync(once_claim_t *claim, int status,
                                                     once_slice_t note, once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_claim_release_early_sync(once_claim_t *claim, int status,
                                                           once_slice_t note,
                                                           once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_claim_doubt_sync(once_claim_t *claim, once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_claim_renew_sync(once_claim_t *claim, once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_get_sync(once_t *once, const uint8_t id[ONCE_ID_SIZE],
                                                  once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_settle_sync(once_t *once, const once_settle_t *settle,
                                                     once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_purge_sync(once_t *once, const char *token, int force,
                                                    once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_scan_sync(once_t *once, const once_filter_t *filter,
                                                   once_scan_cb each, void *data,
                                                   once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_store_reap_sync(once_t *once, uint64_t limit,
                                                  once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_store_stats_sync(once_t *once, once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_secret_rotate_sync(once_t *once, uint64_t keep_ms,
                                                     once_answer_t **answer);

#ifdef __cplusplus
}
#endif
#endif
