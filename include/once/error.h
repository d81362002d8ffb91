/*
 * once/error.h - the errors of libonce: one list, one sentence each.
 *
 * Every function that can fail returns one of these codes: 0 is success, errors are negative. A function that takes a
 * once_error_t also says in words what was wrong and what to do about it. The text never contains a credential, a scope, a secret
 * or a body.
 */
#ifndef ONCE_ERROR_H
#define ONCE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ONCE_API          __attribute__((visibility("default")))
#define ONCE_MUST_CHECK   __attribute__((warn_unused_result))
#define ONCE_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define ONCE_API
#define ONCE_MUST_CHECK
#define ONCE_PRINTF(f, a)
#endif

/*
 * Name, number, whether it is retryable, what it means. Retryable: the cause can pass by itself, so the same call can succeed
 * later: when the store is back, when records have expired, when memory is free, or, after ONCE_E_CONFLICT, when the record has
 * been read again or the transaction is repeated. Wait before repeating: the library itself has tried for store_timeout.
 */
#define ONCE_ERROR_MAP(XX)                                                                         \
    XX(ONCE_OK, 0, 0, "ok")                                                                        \
    XX(ONCE_E_NOMEM, -1, 1, "out of memory; nothing was submitted")                                \
    XX(ONCE_E_INVALID, -2, 0, "invalid argument")                                                  \
    XX(ONCE_E_KEY, -3, 0, "the idempotency key is missing or malformed")                           \
    XX(ONCE_E_CONFIG, -4, 0, "an option, policy or store URL is wrong")                            \
    XX(ONCE_E_UNAVAILABLE, -5, 1, "the store did not answer in time")                              \
    XX(ONCE_E_NOREPLY, -6, 1, "the reply was lost; the operation may have been applied")           \
    XX(ONCE_E_FULL, -7, 1, "the store has no room")                                                \
    XX(ONCE_E_TOO_BIG, -8, 0, "a value is larger than its limit")                                  \
    XX(ONCE_E_CORRUPT, -9, 0, "stored bytes are damaged")                                          \
    XX(ONCE_E_NEWER, -10, 0, "written by a newer version of once; upgrade this program")           \
    XX(ONCE_E_FORKED, -11, 0, "the handle belongs to the parent process; open one after fork")     \
    XX(ONCE_E_CLOSED, -12, 0, "the handle is shutting down")                                       \
    XX(ONCE_E_REENTRANT, -13, 0, "a blocking call inside a callback of the same handle")           \
    XX(ONCE_E_SECRET, -14, 0, "the secrets are missing, malformed, or not those of the store")     \
    XX(ONCE_E_SEALED, -15, 0,                                                                      \
       "the stored response cannot be decrypted: key missing or data changed")                     \
    XX(ONCE_E_NOT_FOUND, -16, 0, "no such record")                                                 \
    XX(ONCE_E_IO, -17, 0, "an input or output operation failed")                                   \
    XX(ONCE_E_UNSUPPORTED, -18, 0, "this store or build cannot do that")                           \
    XX(ONCE_E_CONFLICT, -19, 1, "it was changed by another process first; read it again")          \
    XX(ONCE_E_STALE, -20, 0,                                                                       \
       "the claim is no longer yours; roll back, and answer nothing of your own")                  \
    XX(ONCE_E_COMPLETED, -21, 0,                                                                   \
       "this claim is completed already; roll back, and answer from the record")                   \
    XX(ONCE_E_SQL, -22, 0, "the database refused a statement; roll back")                          \
    XX(ONCE_E_HEADER, -23, 0,                                                                      \
       "a response header has an invalid name, or a line break or NUL in its value")               \
    XX(ONCE_E_UNSEALED, -24, 0,                                                                    \
       "the stored response is not encrypted, and must be; encrypt_require=off reads it")

typedef enum once_code {
#define ONCE_ERROR_ENUM(name, number, retryable, text) name = (number),
    ONCE_ERROR_MAP(ONCE_ERROR_ENUM)
#undef ONCE_ERROR_ENUM
} once_code_t;

/* Where a call says what was wrong. It belongs to the caller; pass NULL if the code is enough. */
typedef struct once_error {
    int code;       /* one of once_code_t */
    char text[240]; /* always terminated; empty if code is ONCE_OK */
} once_error_t;

/* The name ("ONCE_E_FULL") and the sentence of a code. Static strings, never NULL. */
ONCE_API const char *once_error_name(int code);
ONCE_API const char *once_error_text(int code);

/* 1 if the code is retryable according to the list above, 0 if not or if the code is unknown. */
ONCE_API int once_error_is_retryable(int code);

#ifdef __cplusplus
}
#endif
#endif
