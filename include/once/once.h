/*
 * once/once.h - libonce: make an operation take effect exactly once.
 *
 * A program asks with a scope, a key and a description of the work (once_begin). The answer is one of
 *     run       you hold the claim: do the work, then call once_claim_complete, once_claim_release or once_claim_doubt
 *     replay    the work was done before: here is the recorded response
 *     busy      another process is doing it now
 *     mismatch  the key was used for a different request
 *     unknown   the work may have been done, and the policy says not to try again
 *
 * Threads. A handle is used by one thread at a time. Callbacks run on that thread, inside once_dispatch or a blocking call. With
 * the option `thread=on` the handle starts a thread of its own, which dispatches and renews claims: then any thread may call any
 * function, and callbacks run on the handle's thread. A claim, an answer and a record are used by one thread at a time in
 * either case.
 *
 * Event loops. once_fd() returns one descriptor. Call once_dispatch() whenever it is readable; level-triggered and edge-triggered
 * loops both work. No function blocks except those whose names end in _sync, once_wait, once_close with a timeout, and, if secrets
 * or keys are in files, once_open and a rotation inside once_dispatch, which read and write these small files.
 *
 * fork(). A handle belongs to the process that opened it. In a child every call on it returns ONCE_E_FORKED and changes nothing;
 * once_close() in the child frees the child's memory and nothing else.
 *
 * Lost replies. A store call without a reply is repeated with the same claim id until the store answers. If a function returned
 * ONCE_OK, its callback is called exactly once.
 *
 * Memory. Strings and buffers passed to a function are copied before it returns. What a callback receives is valid until the
 * callback returns, except a claim taken with once_answer_take_claim() and an answer kept with once_answer_keep().
 *
 * Structs with a `size` are set up with their ONCE_..._INIT. They can grow at the end in later versions without breaking compiled
 * programs. A size smaller than the struct had in 0.2 is ONCE_E_INVALID. Structs without a `size` that the caller fills in or
 * stores (once_slice_t, once_header_t, once_key_t, once_error_t) never change; those that only the library creates can grow.
 *
 * Do not use a claim after passing it to complete, release or doubt. Do not block inside a callback. Do not copy the directory of
 * a local store while it is in use, except with once_local_backup (once/local.h).
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
#define ONCE_VERSION_MINOR 2
#define ONCE_VERSION_PATCH 0
#define ONCE_VERSION       "0.2.0"
/* One number that grows from version to version: 0xMMmmpp. */
#define ONCE_VERSION_NUMBER                                                                        \
    ((ONCE_VERSION_MAJOR << 16) | (ONCE_VERSION_MINOR << 8) | ONCE_VERSION_PATCH)

#define ONCE_ID_SIZE          32  /* bytes of a record id */
#define ONCE_CLAIM_ID_SIZE    16  /* bytes of a claim id */
#define ONCE_SCOPE_HASH_SIZE  16  /* bytes of the keyed hash of a scope */
#define ONCE_TOKEN_SIZE       72  /* a claim as text (`Once-Claim`), with its terminator */
#define ONCE_SUBJECT_SIZE     16  /* bytes of the keyed hash of a subject */
#define ONCE_NOTE_MAX         200 /* bytes of the note in a released record */
#define ONCE_DESCRIPTION_MAX  256 /* bytes of what a record says it was */
#define ONCE_CAUSE_MAX        160 /* bytes of why it is in its state */
#define ONCE_BODY_STORE_MAX   (16 * 1024 * 1024) /* bytes of a response body in a record */
#define ONCE_HEADERS_MAX      (256 * 1024) /* bytes of all header names and values of a response */
#define ONCE_HEADER_COUNT_MAX 500          /* headers of a response */

typedef struct once once_t;                 /* a handle */
typedef struct once_options once_options_t; /* how to open one */
typedef struct once_claim once_claim_t;     /* the right to do the work now */
typedef struct once_answer once_answer_t;   /* what a callback receives */
typedef struct once_record once_record_t;   /* a record as it was when it was read */

/* ---------------------------------------------------------------------------------------------------------- version */

/* The version of the library that is running; ONCE_VERSION and ONCE_VERSION_NUMBER are those compiled against. */
ONCE_API const char *once_version(void);
ONCE_API unsigned once_version_number(void);

/* ---------------------------------------------------------------------------------------------------------- options */

/* Creates options with their defaults; NULL if out of memory. once_open copies them: free them any time. */
ONCE_API once_options_t *once_options_new(void);
ONCE_API void once_options_free(once_options_t *options); /* NULL is fine */

/*
 * Sets one option. Returns ONCE_E_CONFIG if there is no such option or the value is wrong (`err` names the option and what is
 * expected) and ONCE_E_INVALID for a NULL argument; nothing is changed then.
 *   ttl, lease, recover, record, release, release_ttl   the default policy (once/policy.h)
 *   store_timeout   5s     how long a store that does not answer is tried again, counted from its first failure, before the
 *                          callback receives ONCE_E_UNAVAILABLE. Writes are repeated beyond that, without the caller
 *   insist          on     off: a store that has never been reached is not tried again; the callback receives
 *                          ONCE_E_UNAVAILABLE at once. For interactive programs
 *   renew           on     claims are renewed every third of their lease while the handle is dispatched. off: the caller does it
 *   reap            1m     how often this handle removes expired records; a postgres:// store has it come sooner while many
 *                          expire. off: never
 *   thread          off    on: the handle dispatches on a thread of its own (see Threads above)
 *   secrets         store  where the secrets are: `store`, or `file:PATH`, which is created with mode 0600 if it does not exist
 *   encrypt         off    `file:PATH`: stored responses are encrypted with AES-256-GCM. Each line of the file is `ID HEX64`;
 *                          the last one encrypts new responses, all of them decrypt
 *   encrypt_require on     with `encrypt`: stored responses that are not encrypted are not read (ONCE_E_UNSEALED), because anyone
 *                          who can write to the store could have made them up. Use off while there are responses from before
 *                          encryption, and where backends complete in SQL, which does not encrypt
 *   compress        1k     responses of at least this size are compressed with zstd. off: never
 */
ONCE_API ONCE_MUST_CHECK int once_options_set(once_options_t *options, const char *name,
                                              const char *value, once_error_t *err);

typedef enum once_log_level {
    ONCE_LOG_ERROR = 1,   /* needs attention: work was abandoned */
    ONCE_LOG_WARNING = 2, /* needs attention if it lasts: store or secrets cannot be used */
    ONCE_LOG_NOTICE = 3,  /* good to know: the store works again, a claim was lost */
} once_log_level_t;

typedef void (*once_log_cb)(once_log_level_t level, const char *message, void *data);

/*
 * Has the handle report what no return value can: `cb` is called with every message up to `level`. A message is one line without
 * a line break, and never contains a credential, a body, a scope or a key; it is valid until `cb` returns. `cb` is called by
 * whichever thread is inside the handle and must not call functions of that handle. NULL, the default: no messages.
 */
ONCE_API void once_options_set_log(once_options_t *options, once_log_level_t level, once_log_cb cb,
                                   void *data);

/* ---------------------------------------------------------------------------------------------- opening and closing */

/*
 * Opens a store: `memory:` (private to the handle), `memory:NAME` (shared by all handles of the process that use the name),
 * `local:PATH`, and, if built in, `postgres://`, `redis://`, `rediss://`, `redis+sentinel://`, `redis+cluster://`. Options can also
 * be part of the URL, percent-encoded: `memory:?max_records=1000&ttl=1h`. These win over `options`, which may be NULL.
 *   all:         max_records  the store is full with this many: claims of new keys receive ONCE_E_FULL, known keys go on as before
 *                             (docs/stores.md#bounds). memory: 1000000, others unbounded
 *                max_bytes    likewise for the bytes stored. memory: 1g, others unbounded
 *   local:       segment      size of a full file of the log, 64k to 1g. Default 64m
 *                durability   full, or `claims-relaxed`: `run` is answered before the claim is on disk (docs/local-store.md)
 *   postgres://  connections  connections to the server, 1 to 8. Default 4. Every parameter of libpq works too (docs/postgres.md).
 *                             A callback receives ONCE_E_CONFIG if the schema is not installed or the user may not use it
 *   redis://     prefix       of all keys. Default `once:`. For wait, tls, ca and others see docs/stores.md. A callback receives
 *                             ONCE_E_CONFIG if the server must not be used; once_store_trouble says why
 *
 * Does not wait for a server: calls made before it is reachable wait for it, at most store_timeout. A local store is opened at
 * once, and created if it does not exist.
 *
 * Returns ONCE_OK, ONCE_E_CONFIG, ONCE_E_UNSUPPORTED (no such store in this build), ONCE_E_SECRET, ONCE_E_NOMEM or ONCE_E_IO; for a
 * local store also ONCE_E_CORRUPT (a part is missing or damaged), ONCE_E_NEWER, ONCE_E_FULL, and ONCE_E_CONFLICT (other programs
 * are using it, and its index cannot be used). `*handle` is NULL on every error.
 */
ONCE_API ONCE_MUST_CHECK int once_open(const char *url, const once_options_t *options,
                                       once_t **handle, once_error_t *err);

/*
 * Checks a store URL as far as it can be without opening anything: scheme, options and their limits. Touches neither files nor the
 * network, so that a program can check its configuration before it forks or changes its user.
 * Returns ONCE_OK; otherwise ONCE_E_CONFIG, ONCE_E_UNSUPPORTED, ONCE_E_INVALID for NULL, or ONCE_E_NOMEM.
 */
ONCE_API ONCE_MUST_CHECK int once_store_check(const char *url, once_error_t *err);

/*
 * Reads one option of a store URL, decoded, without opening anything: for programs that take some options from elsewhere, or must
 * not be used with others. `value` receives at most `size` bytes including the terminator; NULL only asks whether it is there.
 * Returns ONCE_OK; ONCE_E_NOT_FOUND if the URL does not have the option; ONCE_E_TOO_BIG if the value does not fit; ONCE_E_CONFIG if
 * the URL cannot be read (once_store_check says why); ONCE_E_INVALID for NULL; ONCE_E_NOMEM. On an error nothing is written.
 */
ONCE_API ONCE_MUST_CHECK int once_store_option(const char *url, const char *name, char *value,
                                               size_t size);

/* 1 if this build can open URLs of the scheme ("memory", "local", "postgres", "redis", "rediss", ...), 0 if not. */
ONCE_API int once_store_is_built_in(const char *scheme);

/* The descriptor to watch for reading. It stays the same until once_close. */
ONCE_API int once_fd(const once_t *once);

/*
 * Explains in words why the store cannot be used at the moment: what a server refused, or which of its settings is wrong; for a
 * local store, that damage was found when it was opened. The text is empty if there is nothing to report. It is written to `text`
 * and cut to `size` bytes including the terminator; it contains no credential. Returns its length.
 */
ONCE_API size_t once_store_trouble(once_t *once, char *text, size_t size);

/*
 * Does what is due and calls callbacks; never waits. With more than a thousand callbacks it returns before everything is done, and
 * the descriptor stays readable. Returns the number of callbacks called, or a negative error.
 */
ONCE_API int once_dispatch(once_t *once);

/*
 * Waits until there is something to dispatch, at most `timeout_ms` (-1: no limit), and dispatches. Returns as once_dispatch does,
 * ONCE_E_REENTRANT inside a callback, and ONCE_E_UNSUPPORTED with `thread=on`.
 */
ONCE_API int once_wait(once_t *once, int timeout_ms);

typedef void (*once_shutdown_cb)(once_t *once, void *data);

/*
 * Begins a graceful shutdown. New asks return ONCE_E_CLOSED; callbacks of asks under way receive it, and a claim granted
 * meanwhile is released. Completions, releases and doubts already submitted go on until the store has them. Then `cb` is called.
 * Claims that the caller still holds can still be completed, but are not waited for: call once_shutdown again after that.
 * Returns ONCE_E_CLOSED while the callback of an earlier call is outstanding.
 */
ONCE_API ONCE_MUST_CHECK int once_shutdown(once_t *once, once_shutdown_cb cb, void *data);

/*
 * Closes and frees the handle. First does what once_shutdown does, blocking at most `timeout_ms` (-1: no limit, 0: not at all).
 * Outstanding callbacks receive ONCE_E_CLOSED, and claims still held are freed. Returns ONCE_OK, or ONCE_E_UNAVAILABLE if
 * submitted writes had to be abandoned: their records stay as the store last had them until their leases end. The handle is gone
 * in both cases. Inside a callback it returns ONCE_E_REENTRANT and does nothing. NULL is fine.
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
    ONCE_OUTCOME_DONE = 6,    /* the record is as requested, now or since an earlier attempt */
    ONCE_OUTCOME_ALREADY = 7, /* this claim completed the record before: here is that response */
    ONCE_OUTCOME_LOST = 8,    /* the claim is no longer yours: answer from the record */
    ONCE_OUTCOME_REFUSED = 9, /* settle, purge: another claim, completed, or its lease is live */
} once_outcome_t;

/* "run", "replay", ... Static strings. */
ONCE_API const char *once_outcome_name(once_outcome_t outcome);

typedef void (*once_cb)(once_t *once, once_answer_t *answer, void *data);

/* ONCE_OK, or why there is no outcome. */
ONCE_API int once_answer_error(const once_answer_t *answer);
ONCE_API once_outcome_t once_answer_outcome(const once_answer_t *answer);

/*
 * The record after the call. NULL after errors, if there is no record, and after ONCE_OUTCOME_LOST if the claim's own record has
 * been forgotten, even if the key has been used again since. Valid as long as the answer. After ONCE_OUTCOME_DONE and
 * ONCE_OUTCOME_BUSY only state, epoch, policy, lease and times are known; key, scope hash and response come with replay, already,
 * lost, once_record_get and once_record_scan.
 */
ONCE_API const once_record_t *once_answer_record(const once_answer_t *answer);

/*
 * With ONCE_OUTCOME_RUN: takes the claim, which is then yours until you pass it to once_claim_complete, once_claim_release,
 * once_claim_release_early, once_claim_doubt or once_claim_drop. A claim that is not taken is released early when the callback
 * returns. NULL with every other outcome, or if it was taken already.
 */
ONCE_API once_claim_t *once_answer_take_claim(once_answer_t *answer);

/* With ONCE_OUTCOME_BUSY: when to ask again, in milliseconds from now: the rest of the lease, at least 1. Otherwise 0. */
ONCE_API uint64_t once_answer_retry_after_ms(const once_answer_t *answer);

/*
 * Keeps the answer beyond the callback. Free it with once_answer_free, before once_close. Answers of _sync calls are the caller's
 * in the same way.
 */
ONCE_API void once_answer_keep(once_answer_t *answer);
ONCE_API void once_answer_free(once_answer_t *answer); /* NULL is fine */

/* --------------------------------------------------------------------------------------------------- asking to run */

typedef struct once_ask {
    size_t size;         /* set by ONCE_ASK_INIT */
    once_slice_t scope;  /* whose key it is, for example a tenant; may be empty */
    once_slice_t key;    /* 1 to ONCE_KEY_MAX bytes */
    once_slice_t method; /* part of the fingerprint */
    once_slice_t target; /* part of the fingerprint: path with query, or a name of the operation */
    const once_body_t *body;     /* a streamed body; or NULL and */
    once_slice_t bytes;          /* the whole body, compared byte by byte */
    const once_policy_t *policy; /* NULL: the handle's */
    /*
     * ONCE_CLAIM_ID_SIZE bytes that never repeat; NULL: the library makes them. Reuse an id only if its reply was lost, or was an
     * error, and nothing was run under it; an id whose claim was released receives ONCE_OUTCOME_LOST. After an error the library
     * does not release a claim of this id that may have been granted: ask again, or its lease runs out.
     */
    const uint8_t *claim_id;
    /*
     * For people who look at the record later: what is asked, for example "POST /payments", in UTF-8. Cut to
     * ONCE_DESCRIPTION_MAX bytes; control characters become `?`. It is stored as it is: leave out what must not be.
     */
    once_slice_t description;
    once_slice_t subject; /* the person whom it concerns; only its keyed hash is stored */
} once_ask_t;

#define ONCE_ASK_INIT                                                                              \
    {                                                                                              \
        sizeof(once_ask_t), {0, 0}, {0, 0}, {0, 0}, {0, 0}, 0, {0, 0}, 0, 0, {0, 0},               \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }

/*
 * Asks whether to do the work. If it returns ONCE_OK, `cb` is called once, from once_dispatch. On an error nothing was submitted
 * and `cb` is not called: ONCE_E_KEY (empty or too long), ONCE_E_TOO_BIG (scope, subject, method or target over 64 KiB),
 * ONCE_E_INVALID (no callback, `size` not set, both body and bytes), ONCE_E_NOMEM, ONCE_E_IO (no randomness), ONCE_E_CLOSED,
 * ONCE_E_FORKED.
 *
 * The callback can receive ONCE_E_UNAVAILABLE, ONCE_E_FULL, ONCE_E_NOMEM, ONCE_E_SECRET, ONCE_E_NEWER, ONCE_E_CORRUPT, ONCE_E_IO
 * and ONCE_E_CLOSED. With ONCE_OUTCOME_RUN less than half of the lease has passed since the claim was granted; with a claim_id that
 * was used before, it was granted then: renew it before the work.
 */
ONCE_API ONCE_MUST_CHECK int once_begin(once_t *once, const once_ask_t *ask, once_cb cb,
                                        void *data);

/* -------------------------------------------------------------------------------------------------------- responses */

typedef struct once_header {
    once_slice_t name;
    once_slice_t value;
} once_header_t;

/* Of a response that is read, in `body_omitted`: it was erased with its headers, and only its status is known. */
#define ONCE_BODY_ERASED 2

typedef struct once_response {
    size_t size;      /* set by ONCE_RESPONSE_INIT */
    int status;       /* 200 to 599 */
    int body_omitted; /* the body is not stored: a replay has none. ONCE_BODY_ERASED: it was erased */
    /* In order. A name must not be empty or contain spaces, colons or control characters; a value can have any byte but CR, LF
       and NUL. */
    const once_header_t *headers;
    size_t header_count;
    once_slice_t body;
    uint64_t retain_ms; /* how long it is kept, from now on; 0: the ttl of the claim */
} once_response_t;

#define ONCE_RESPONSE_INIT                                                                         \
    {                                                                                              \
        sizeof(once_response_t), 200, 0, 0, 0, {0, 0}, 0                                           \
    }

/* ----------------------------------------------------------------------------------------------------------- claims */

/*
 * These end a claim. If one returns ONCE_OK, the claim belongs to the library and must not be used again. On an error
 * (ONCE_E_INVALID, ONCE_E_HEADER, ONCE_E_TOO_BIG, ONCE_E_NOMEM, ONCE_E_IO, ONCE_E_CLOSED, ONCE_E_FORKED) the claim is still the
 * caller's. The write is repeated until the store has it, and the claim is renewed meanwhile. If that takes longer than
 * store_timeout, the callback receives ONCE_E_UNAVAILABLE, ONCE_E_FULL or ONCE_E_NEWER, and the write is repeated without it.
 * ONCE_E_CORRUPT and ONCE_E_UNSUPPORTED are final: the store will never accept the write. `cb` may be NULL.
 *
 * complete: the operation took effect, and this is its response. The outcome is done, already or lost. ONCE_E_HEADER: a gateway
 * sends the headers as they are, so a line break in a value would let it add headers of its own.
 *
 * release: the operation can be repeated. The key can be claimed again, for the same request. `status` (or 0) and `note` (cut to
 * ONCE_NOTE_MAX bytes; no personal data) are kept for operators.
 *
 * release_early: as release, and it ended before any effect: nothing was sent, or the request was refused before it could do
 * anything. The record is kept for the release_ttl of the policy instead of its ttl; then the key is free for any request. If an
 * earlier claim of the record may have had an effect, it is the same as release. Use it only if it is true: `hold` depends on it.
 *
 * doubt: it is not known whether the operation took effect. `cause` says why, for operators ("timeout"): cut to ONCE_CAUSE_MAX
 * bytes, no personal data.
 */
ONCE_API ONCE_MUST_CHECK int
once_claim_complete(once_claim_t *claim, const once_response_t *response, once_cb cb, void *data);
ONCE_API ONCE_MUST_CHECK int once_claim_release(once_claim_t *claim, int status, once_slice_t note,
                                                once_cb cb, void *data);
ONCE_API ONCE_MUST_CHECK int once_claim_release_early(once_claim_t *claim, int status,
                                                      once_slice_t note, once_cb cb, void *data);
ONCE_API ONCE_MUST_CHECK int once_claim_doubt(once_claim_t *claim, once_slice_t cause, once_cb cb,
                                              void *data);

/*
 * Extends the lease now, whatever the option `renew` says. The claim stays the caller's. `cb` may be NULL.
 *
 * This and every call below returns ONCE_E_NOMEM, ONCE_E_CLOSED, ONCE_E_FORKED, or ONCE_E_INVALID for a malformed token, filter or
 * response; once_record_settle also ONCE_E_HEADER and ONCE_E_TOO_BIG as once_claim_complete. Nothing was submitted then. Their
 * callbacks can receive ONCE_E_UNAVAILABLE, ONCE_E_FULL, ONCE_E_NEWER, ONCE_E_CORRUPT, ONCE_E_IO, ONCE_E_NOMEM and ONCE_E_CLOSED.
 */
ONCE_API ONCE_MUST_CHECK int once_claim_renew(once_claim_t *claim, once_cb cb, void *data);

/* Forgets the claim without contacting the store, as if this process had died: the lease runs out. NULL is fine. */
ONCE_API void once_claim_drop(once_claim_t *claim);

/* The epoch of the claim: 1 for the first claim of a record, and greater for every later one. */
ONCE_API uint32_t once_claim_epoch(const once_claim_t *claim);

/*
 * What a complete response means for this claim: once_policy_judge with the stricter of `policy` (NULL: the handle's) and the
 * policy of the record. A key first used under `hold` is not released by a route that would release it.
 */
ONCE_API once_judgement_t once_claim_judge(const once_claim_t *claim, const once_policy_t *policy,
                                           int status, once_verdict_t verdict);

/* 1 until a renewal finds that the claim is lost, then 0: stop the work if it can be stopped. */
ONCE_API int once_claim_alive(const once_claim_t *claim);

/* Writes the claim as opaque text, for the backend (`Once-Claim`) and for once_claim_adopt. Always terminated. */
ONCE_API void once_claim_token(const once_claim_t *claim, char out[ONCE_TOKEN_SIZE]);

#define ONCE_LEASE_GRANTED UINT64_MAX

/*
 * Makes a claim from its text, for a program that finishes what another one began. It is not renewed until once_claim_renew is
 * called on it, and whether it still holds is found out when it is used. `lease_ms` is what a renewal or doubt asks for; 0: the
 * lease of the handle's policy; ONCE_LEASE_GRANTED: the one that the claim was granted with. ONCE_E_INVALID if the text is not a
 * claim; `*claim` is NULL on every error.
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

/* "pending", "completed", ... Static strings. */
ONCE_API const char *once_state_name(once_state_t state);

ONCE_API once_state_t once_record_state(const once_record_t *record);
/* ONCE_ID_SIZE, ONCE_SCOPE_HASH_SIZE and ONCE_CLAIM_ID_SIZE bytes, valid as long as the record. */
ONCE_API const uint8_t *once_record_id(const once_record_t *record);
ONCE_API const uint8_t *once_record_scope_hash(const once_record_t *record);
ONCE_API const uint8_t *once_record_claim_id(const once_record_t *record);
ONCE_API once_slice_t once_record_key(const once_record_t *record);
ONCE_API uint32_t once_record_epoch(const once_record_t *record);
ONCE_API once_recover_t once_record_recover(const once_record_t *record);
/* The status of the response or of the failure, 0 if there is none; and why it failed, which may be empty. */
ONCE_API int once_record_status(const once_record_t *record);
ONCE_API once_slice_t once_record_note(const once_record_t *record);
/*
 * What the record says about itself, each empty if it is not known: what was asked, which process has the claim or had the last one
 * ("host:process"), and why the record is in its state: the cause of a doubt, the note of a release or of settling, or "lease
 * over". They come with once_record_get, once_record_scan, and after already and lost; not with an ask.
 */
ONCE_API once_slice_t once_record_description(const once_record_t *record);
ONCE_API once_slice_t once_record_holder(const once_record_t *record);
ONCE_API once_slice_t once_record_cause(const once_record_t *record);

/* What became of an earlier attempt: of an operation that was granted more than once. */
typedef struct once_attempt {
    size_t size; /* set by ONCE_ATTEMPT_INIT */
    uint32_t epoch;
    once_state_t state; /* failed, or unknown */
    uint64_t ended;     /* milliseconds since 1970, UTC, by the store's clock */
    /* "lease over", or what was given, cut to 40 bytes, and the process; empty if it is not known. */
    once_slice_t cause, holder;
} once_attempt_t;

#define ONCE_ATTEMPT_INIT                                                                          \
    {                                                                                              \
        sizeof(once_attempt_t), 0, ONCE_STATE_NONE, 0, {0, 0},                                     \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }

/*
 * The earlier attempt number `n`: 0 is the one before the last, with the epoch of the record less one. ONCE_OK; ONCE_E_NOT_FOUND:
 * there is none, or it is not kept: the newest eight are at most, fewer if their texts are long; ONCE_E_INVALID. They come with
 * the cause, and are valid as long as the record.
 */
ONCE_API ONCE_MUST_CHECK int once_record_attempt(const once_record_t *record, unsigned n,
                                                 once_attempt_t *attempt);
/* ONCE_SUBJECT_SIZE bytes: once_subject_hash_of the subject that was asked for. NULL: none. */
ONCE_API const uint8_t *once_record_subject(const once_record_t *record);
/* Time since the first claim, and since the last change. */
ONCE_API uint64_t once_record_age_ms(const once_record_t *record);
ONCE_API uint64_t once_record_idle_ms(const once_record_t *record);
/* The rest of the lease, 0 if it is over; and the time until the record is forgotten, 0 if it is not going to be. */
ONCE_API uint64_t once_record_lease_ms(const once_record_t *record);
ONCE_API uint64_t once_record_expires_ms(const once_record_t *record);

typedef enum once_time {
    ONCE_TIME_CREATED = 0, /* of the first claim */
    ONCE_TIME_CHANGED = 1, /* of the last change */
    ONCE_TIME_LEASE = 2,   /* when the lease ends or ended; 0 if the state has none */
    ONCE_TIME_EXPIRES = 3, /* when the record is forgotten; 0 if it is not going to be */
} once_time_t;

/* The same times by the store's clock: milliseconds since 1970, UTC. */
ONCE_API uint64_t once_record_time(const once_record_t *record, once_time_t which);
/* What the key and the response take in the store. */
ONCE_API uint64_t once_record_bytes(const once_record_t *record);
/* Whether once_record_erase was applied to it since it was last claimed. */
ONCE_API int once_record_is_erased(const once_record_t *record);
/* Writes the current claim as text, for once_record_settle, once_record_purge and once_record_erase. */
ONCE_API void once_record_token(const once_record_t *record, char out[ONCE_TOKEN_SIZE]);

/*
 * Reads the stored response of a completed record. What `response` points to is valid as long as the record. Returns ONCE_OK,
 * ONCE_E_NOT_FOUND if the record has no response, ONCE_E_INVALID if `response` was not set up, ONCE_E_SEALED, ONCE_E_UNSEALED,
 * ONCE_E_CORRUPT or ONCE_E_NOMEM.
 */
ONCE_API ONCE_MUST_CHECK int once_record_response(const once_record_t *record,
                                                  once_response_t *response);

/*
 * Makes a key for one step of the operation, to be sent to a third party: the same in every attempt, and different for every record
 * and step, including a later record of the same key. It is what once_pg_derive gives, for records of any store: "d2-" and 52
 * base32 characters. ONCE_E_INVALID if the step is empty.
 */
ONCE_API ONCE_MUST_CHECK int once_record_derive(const once_record_t *record, once_slice_t step,
                                                once_key_t *key, once_error_t *err);

/*
 * The id of (scope, key) and the hashes of a scope and of a subject in this store. ONCE_E_KEY; ONCE_E_UNAVAILABLE until the secrets
 * are loaded.
 */
ONCE_API ONCE_MUST_CHECK int once_record_id_of(once_t *once, once_slice_t scope, once_slice_t key,
                                               uint8_t id[ONCE_ID_SIZE]);
ONCE_API ONCE_MUST_CHECK int once_scope_hash_of(once_t *once, once_slice_t scope,
                                                uint8_t hash[ONCE_SCOPE_HASH_SIZE]);
ONCE_API ONCE_MUST_CHECK int once_subject_hash_of(once_t *once, once_slice_t subject,
                                                  uint8_t hash[ONCE_SUBJECT_SIZE]);

/* Reads one record. The callback receives ONCE_E_NOT_FOUND if there is none. */
ONCE_API ONCE_MUST_CHECK int once_record_get(once_t *once, const uint8_t id[ONCE_ID_SIZE],
                                             once_cb cb, void *data);

typedef struct once_settle {
    size_t size;       /* set by ONCE_SETTLE_INIT */
    const char *token; /* of the record as it was read: once_record_token */
    /* it took effect, with this response; NULL: it did not, and no longer can */
    const once_response_t *response;
    once_slice_t note; /* why; without a response: as for once_claim_release */
    int status;        /* without a response: as for once_claim_release */
    int force;         /* even if the lease is live */
} once_settle_t;

#define ONCE_SETTLE_INIT                                                                           \
    {                                                                                              \
        sizeof(once_settle_t), 0, 0, {0, 0}, 0, 0                                                  \
    }

/*
 * Settles a pending or unknown record once the outcome of the operation is known. Refused if the record has moved
 * on to another claim or is completed, and, without `force`, while the lease is live.
 */
ONCE_API ONCE_MUST_CHECK int once_record_settle(once_t *once, const once_settle_t *settle,
                                                once_cb cb, void *data);

/*
 * Removes a record, so that the key counts as never used. A pending or unknown record is removed only with `force`. Refused if
 * the record is no longer under the claim that `token` names.
 */
ONCE_API ONCE_MUST_CHECK int once_record_purge(once_t *once, const char *token, int force,
                                               once_cb cb, void *data);

/*
 * Erases the texts of a completed or failed record: key, description, holder, subject, cause, note, and the headers and body of the
 * response. The outcome stays: a completed operation is not run again, and a replay has the status and no more. Refused for a
 * pending or unknown record, and if the record is no longer under the claim that `token` names; to erase twice is done twice. What
 * stays is the id, the fingerprint and the hash of the scope, which are keyed hashes.
 */
ONCE_API ONCE_MUST_CHECK int once_record_erase(once_t *once, const char *token, once_cb cb,
                                               void *data);

typedef struct once_filter {
    size_t size;               /* set by ONCE_FILTER_INIT */
    unsigned states;           /* bits 1u << once_state_t; 0: all */
    int stuck;                 /* only unknown ones, and pending ones whose lease is over */
    uint64_t older_than_ms;    /* only with at least this age; 0: all */
    uint64_t younger_than_ms;  /* only with less than this age; 0: all */
    const uint8_t *scope_hash; /* only of this scope */
    /* how many bytes of it are compared: 1 to ONCE_SCOPE_HASH_SIZE; 0: any scope */
    size_t scope_hash_len;
    uint64_t limit;              /* at most this many; 0: all */
    const uint8_t *subject_hash; /* only of this subject: ONCE_SUBJECT_SIZE bytes; NULL: of any */
} once_filter_t;

#define ONCE_FILTER_INIT                                                                           \
    {                                                                                              \
        sizeof(once_filter_t), 0, 0, 0, 0, 0, 0, 0, 0                                              \
    }

/* Receives each record, which is valid until it returns. Any value but 0 ends the scan. */
typedef int (*once_scan_cb)(once_t *once, const once_record_t *record, void *data);

/*
 * Scans the store: `each` receives every record that exists during the whole scan and passes the filter (NULL: all), in no
 * particular order and none twice. Records that come or go meanwhile may or may not be included. The scan proceeds in small steps
 * and blocks no other call. `done` is called at the end; once_answer_damaged then counts records that cannot be read, which `each`
 * did not receive, whether they pass the filter or not.
 */
ONCE_API ONCE_MUST_CHECK int once_record_scan(once_t *once, const once_filter_t *filter,
                                              once_scan_cb each, once_cb done, void *data);
ONCE_API uint64_t once_answer_damaged(const once_answer_t *answer);

/* ------------------------------------------------------------------------------------------------------------ store */

/*
 * Removes expired records, and in a postgres:// store messages that the inbox need not remember, at most `limit` of them (0: all).
 * once_answer_count says how many were removed.
 */
ONCE_API ONCE_MUST_CHECK int once_store_reap(once_t *once, uint64_t limit, once_cb cb, void *data);
ONCE_API uint64_t once_answer_count(const once_answer_t *answer);

/*
 * Clears away what erased records have left in the store. In a local store: segments of the log with their earlier texts, which are
 * rewritten without them. One step of about a second; once_answer_count says how many segments are left, and once_answer_damaged
 * how many of them are damaged and wait for once fsck. Call it until nothing is left: other processes that use the store let go of
 * their segments when they next write, or reap. In PostgreSQL and Redis: dictionaries that have what was erased and too few records
 * still say; records that need one are stored again without it, which reads all of them. There the count is not 0 if open
 * transactions, or records that keep changing, were in the way. What a process that was killed left to do is found again.
 */
ONCE_API ONCE_MUST_CHECK int once_store_scrub(once_t *once, once_cb cb, void *data);

typedef struct once_stats {
    uint64_t pending, completed, failed, unknown;
    uint64_t stuck;       /* unknown, or pending with the lease over */
    uint64_t expired;     /* not removed yet; counted in none of the above */
    uint64_t oldest_ms;   /* age of the oldest record; 0: no records */
    uint64_t bytes;       /* taken by records */
    uint64_t max_records; /* the bound; 0: none */
    uint64_t max_bytes;   /* the bound; 0: none */
    /* of a local store, 0 for others */
    uint64_t segments;    /* files of the log, whose size is `bytes` */
    uint64_t index_bytes; /* of the index, which is in memory */
    uint64_t quarantined; /* damaged ranges that were set aside: see once fsck */
    uint64_t damaged;     /* records that cannot be read; counted in none of the above */
    uint64_t behind_ms;   /* for how long the longest expired one waits for removal; 0: none does */
    /* of a postgres:// store, 0 for others: the inbox (once.accept) */
    uint64_t messages;           /* about how many it remembers */
    uint64_t messages_behind_ms; /* like behind_ms, as far as the last passes of the reaper tell */
} once_stats_t;

/* Counts the records of the store. once_answer_stats returns NULL for answers of other calls. */
ONCE_API ONCE_MUST_CHECK int once_store_stats(once_t *once, once_cb cb, void *data);
ONCE_API const once_stats_t *once_answer_stats(const once_answer_t *answer);

typedef struct once_usage {
    size_t size;                   /* set by ONCE_USAGE_INIT */
    uint64_t records, max_records; /* a bound of 0: none */
    uint64_t bytes, max_bytes;
    uint64_t behind_ms, messages_behind_ms; /* as in once_stats_t, when this handle last reaped */
} once_usage_t;

#define ONCE_USAGE_INIT                                                                            \
    {                                                                                              \
        sizeof(once_usage_t), 0, 0, 0, 0, 0, 0                                                     \
    }

/*
 * Says how full the store is as far as the handle knows, without waiting. A postgres:// or redis:// store is measured only if it
 * has bounds and while claims are made, every few seconds; until then, and without bounds, records and bytes are 0. A postgres://
 * store says how far behind the removal of expired records is, if the handle reaps; other stores say 0.
 */
ONCE_API ONCE_MUST_CHECK int once_store_usage(once_t *once, once_usage_t *usage);

/*
 * Starts using a new fingerprint secret. Earlier secrets stay readable, except those replaced more than `keep_ms` ago, which are
 * forgotten: a record whose secret is forgotten answers mismatch. Choose at least the longest ttl plus the minute that other
 * handles may take to notice. once_answer_count is the id of the new secret.
 *
 * Returns or receives ONCE_E_UNSUPPORTED if the secrets are in a file that this process cannot write, ONCE_E_CONFLICT if another
 * rotation won, ONCE_E_FULL if more than four secrets would have to be kept, and ONCE_E_UNAVAILABLE until the secrets are loaded.
 */
ONCE_API ONCE_MUST_CHECK int once_secret_rotate(once_t *once, uint64_t keep_ms, once_cb cb,
                                                void *data);

/* ----------------------------------------------------------------------------------------------------- blocking calls */

/*
 * The same calls for programs without an event loop: each submits, waits, and returns the error of the answer, or why nothing was
 * submitted. `*answer` is the caller's to free with once_answer_free, and NULL on every error; `answer` may be NULL if the code is
 * enough. ONCE_E_REENTRANT inside a callback of the same handle.
 *
 * A program that is at work does not dispatch, so its claims are not renewed: choose a lease that covers the work, call
 * once_claim_renew_sync from time to time, or open the handle with `thread=on`. once_claim_complete_sync,
 * once_claim_release_sync, once_claim_release_early_sync and once_claim_doubt_sync take the claim unless they return
 * ONCE_E_INVALID, ONCE_E_HEADER, ONCE_E_TOO_BIG, ONCE_E_NOMEM, ONCE_E_IO, ONCE_E_FORKED or ONCE_E_REENTRANT.
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
ONCE_API ONCE_MUST_CHECK int once_claim_doubt_sync(once_claim_t *claim, once_slice_t cause,
                                                   once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_claim_renew_sync(once_claim_t *claim, once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_get_sync(once_t *once, const uint8_t id[ONCE_ID_SIZE],
                                                  once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_settle_sync(once_t *once, const once_settle_t *settle,
                                                     once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_purge_sync(once_t *once, const char *token, int force,
                                                    once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_erase_sync(once_t *once, const char *token,
                                                    once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_record_scan_sync(once_t *once, const once_filter_t *filter,
                                                   once_scan_cb each, void *data,
                                                   once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_store_reap_sync(once_t *once, uint64_t limit,
                                                  once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_store_scrub_sync(once_t *once, once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_store_stats_sync(once_t *once, once_answer_t **answer);
ONCE_API ONCE_MUST_CHECK int once_secret_rotate_sync(once_t *once, uint64_t keep_ms,
                                                     once_answer_t **answer);

#ifdef __cplusplus
}
#endif
#endif
