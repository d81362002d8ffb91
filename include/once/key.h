/*
 * once/key.h - idempotency keys: reading them from a header, and making them.
 *
 * A key is 1 to ONCE_KEY_MAX visible ASCII bytes or spaces (0x20-0x7e). `abc` (raw, as most clients send it) and `"abc"`
 * (an RFC 8941 string, as the IETF draft wants it) are the same key.
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
#define ONCE_KEY_TEXT_SIZE 256 /* a buffer that holds any key and its terminator */
#define ONCE_UUID_SIZE     37  /* 36 characters and the terminator */

/* Borrowed bytes: not owned, not terminated. */
typedef struct once_slice {
    const void *data;
    size_t len;
} once_slice_t;

/* A key as read. `text` is terminated as well, for logs. */
typedef struct once_key {
    char text[ONCE_KEY_TEXT_SIZE];
    size_t len;
} once_key_t;

enum once_key_flags {
    ONCE_KEY_STRICT = 1, /* only the quoted form of the IETF draft is accepted */
};

/*
 * Reads the key from the `count` values that a request carried in its key header, spaces and tabs around each removed.
 * Errors (all ONCE_E_KEY; `err` says which): no value, more than one value, empty, over ONCE_KEY_MAX bytes, a control or
 * non-ASCII byte, bad quoting, parameters or a comma list after a quoted string, a comma in the raw form (proxies join several
 * header lines that way; a key with a comma must be quoted), raw form under ONCE_KEY_STRICT. On error `key` is empty.
 */
ONCE_API ONCE_MUST_CHECK int once_key_parse(const once_slice_t *values, size_t count,
                                            unsigned flags, once_key_t *key, once_error_t *err);

/* Random (version 4) and time-ordered (version 7) UUIDs in text. ONCE_E_IO when the system gives no randomness. */
ONCE_API ONCE_MUST_CHECK int once_key_uuid4(char out[ONCE_UUID_SIZE]);
ONCE_API ONCE_MUST_CHECK int once_key_uuid7(char out[ONCE_UUID_SIZE]);

/*
 * What a deterministic key is made of. `when_ms` is Unix time; `bucket_ms` 0 means no bucket (the key is the same for ever).
 */
typedef struct once_key_parts {
    size_t size;            /* sizeof(once_key_parts_t): set by ONCE_KEY_PARTS_INIT */
    once_slice_t principal; /* on whose behalf; not empty */
    once_slice_t action;    /* what is done; not empty */
    once_slice_t payload;   /* with what; may be empty */
    uint64_t when_ms, bucket_ms;
} once_key_parts_t;

#define ONCE_KEY_PARTS_INIT                                                                        \
    {                                                                                              \
        sizeof(once_key_parts_t), {0, 0}, {0, 0}, {0, 0}, 0, 0                                     \
    }

/*
 * A deterministic key: the same principal, action and payload within the same time bucket give the same key, on every
 * machine. Buckets are aligned to the Unix epoch: two calls 1 ms apart can fall into two buckets. Legitimate repeats within one
 * bucket are swallowed: prefer a random key wherever the client can keep one. Gives "h1-" and 52 lower-case base32 characters of SHA-256.
 * ONCE_E_INVALID when principal or action is empty.
 */
ONCE_API ONCE_MUST_CHECK int once_key_deterministic(const once_key_parts_t *parts, once_key_t *key,
                                                    once_error_t *err);

/*
 * A composite business key: the parts joined by ':'. Each part is 1 or more of A-Z a-z 0-9 . _ ~ - ; anything else (also
 * ':' itself) is ONCE_E_KEY and names the part, so that two different part lists never give one key. ONCE_E_TOO_BIG when
 * the result is over ONCE_KEY_MAX.
 */
ONCE_API ONCE_MUST_CHECK int once_key_composite(const once_slice_t *parts, size_t count,
                                                once_key_t *key, once_error_t *err);

/*
 * A key for one step of a larger operation, to be sent to a third party: depends on the parent key and the step's name
 * only, so a resumed operation sends the same one, and reveals nothing of the parent. Gives "d1-" and 52 base32
 * characters. ONCE_E_INVALID when parent or step is empty.
 */
ONCE_API ONCE_MUST_CHECK int once_key_derive(once_slice_t parent, once_slice_t step,
                                             once_key_t *key, once_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
