/*
 * once/key.h - idempotency keys: reading them from a header, and making them.
 *
 * A key is 1 to ONCE_KEY_MAX printable ASCII characters, spaces included (0x20 to 0x7e). `abc` (raw, as most clients send it) and
 * `"abc"` (an RFC 8941 string, as the IETF draft requires) are the same key. Any thread may call these functions; they need no
 * handle.
 */
#ifndef ONCE_KEY_H
#define ONCE_KEY_H

#include <stddef.h>
#include <stdint.h>

#include <once/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_KEY_MAX       255 /* bytes of a key, without quotes and escapes */
#define ONCE_KEY_TEXT_SIZE 256 /* any key with its terminator */
#define ONCE_UUID_SIZE     37  /* 36 characters and the terminator */

/* Borrowed bytes: neither owned nor terminated. */
typedef struct once_slice {
    const void *data;
    size_t len;
} once_slice_t;

/* A key. `text` is terminated. */
typedef struct once_key {
    char text[ONCE_KEY_TEXT_SIZE];
    size_t len;
} once_key_t;

enum once_key_flags {
    ONCE_KEY_STRICT = 1, /* accept only the quoted form of the IETF draft */
};

/*
 * Reads the key from the `count` values of a request's key header, ignoring spaces and tabs around each. Returns ONCE_OK, or
 * ONCE_E_KEY and an empty key, and `err` says why: no value, several values, empty, over ONCE_KEY_MAX bytes, a control or non-ASCII
 * character, bad quoting, parameters or a list after a quoted string, a comma in the raw form (proxies join header lines with
 * commas, so a key with a comma must be quoted), or the raw form with ONCE_KEY_STRICT.
 */
ONCE_API ONCE_MUST_CHECK int once_key_parse(const once_slice_t *values, size_t count,
                                            unsigned flags, once_key_t *key, once_error_t *err);

/* Write random (version 4) and time-ordered (version 7) UUIDs. ONCE_E_IO if the system provides no randomness. */
ONCE_API ONCE_MUST_CHECK int once_key_uuid4(char out[ONCE_UUID_SIZE]);
ONCE_API ONCE_MUST_CHECK int once_key_uuid7(char out[ONCE_UUID_SIZE]);

typedef struct once_key_parts {
    size_t size;            /* set by ONCE_KEY_PARTS_INIT */
    once_slice_t principal; /* on whose behalf; must not be empty */
    once_slice_t action;    /* what is done; must not be empty */
    once_slice_t payload;   /* with what; may be empty */
    uint64_t when_ms;       /* Unix time */
    uint64_t bucket_ms;     /* length of a time bucket; 0: the time does not matter */
} once_key_parts_t;

#define ONCE_KEY_PARTS_INIT                                                                        \
    {                                                                                              \
        sizeof(once_key_parts_t), {0, 0}, {0, 0}, {0, 0}, 0, 0                                     \
    }

/*
 * Makes a deterministic key: the same principal, action and payload in the same time bucket give the same key, on every machine.
 * Buckets are aligned to the Unix epoch, so two calls 1 ms apart can fall into two buckets. Intended repeats within one bucket
 * are swallowed: prefer a random key wherever the client can keep one. The key is "h1-" and 52 lower-case base32 characters of
 * SHA-256. ONCE_E_INVALID if principal or action is empty.
 */
ONCE_API ONCE_MUST_CHECK int once_key_deterministic(const once_key_parts_t *parts, once_key_t *key,
                                                    once_error_t *err);

/*
 * Makes a composite key: the parts joined by ':'. A part is one or more of A-Z a-z 0-9 . _ ~ - so that different parts never give
 * the same key. ONCE_E_KEY names the part with any other character; ONCE_E_TOO_BIG if the key is over ONCE_KEY_MAX bytes.
 */
ONCE_API ONCE_MUST_CHECK int once_key_composite(const once_slice_t *parts, size_t count,
                                                once_key_t *key, once_error_t *err);

/*
 * Makes a key for one step of a larger operation, to be sent to a third party. It depends only on the parent key and the name of
 * the step, so a resumed operation sends the same one, and it reveals nothing about the parent. The key is "d1-" and 52 base32
 * characters. ONCE_E_INVALID if parent or step is empty.
 */
ONCE_API ONCE_MUST_CHECK int once_key_derive(once_slice_t parent, once_slice_t step,
                                             once_key_t *key, once_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
