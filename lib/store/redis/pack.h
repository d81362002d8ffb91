/*
 * The record as Redis keeps it (docs/format.md, "The record in Redis"): schema 2, which puts what a completed record repeats from
 * others into few bytes, and schema 1 from before, which is read but no longer written. record.lua knows the same bytes.
 */
#ifndef ONCE_STORE_REDIS_PACK_H
#define ONCE_STORE_REDIS_PACK_H

#include "store/redis/dictionaries.h"

#define ONCE__REDIS_SCHEMA 2
#define ONCE__REDIS_MS_MAX (((uint64_t)1 << 48) - 1) /* the longest lease or ttl */

/* Offsets behind the envelope; its reserved bytes have the form and the status. */
enum {
    ONCE__REDIS_AT_FORM = 5,
    ONCE__REDIS_AT_STATUS = 6,
    ONCE__REDIS_AT_SECRET = 64,
    ONCE__REDIS_AT_SCOPE = 68,
    ONCE__REDIS_AT_MAC = 84,
    ONCE__REDIS_AT_TTL = 116, /* of a completed record only if it is not the time to its end */
};

/* What answers a change: everything up to the key, with the ttl. */
#define ONCE__REDIS_HEAD_SIZE 122

/* The first bytes of any record that hold its head. */
#define ONCE__REDIS_HEAD_ROOM 128

/* The bytes that once__redis_pack needs at most. */
size_t once__redis_pack_bound(const once__record_t *record);

/* Writes a valid record (asserted). `dictionaries` may be NULL: nothing is compressed. Returns the length. */
size_t once__redis_pack(uint8_t *out, const once__record_t *record,
                        const once__redis_dictionaries_t *dictionaries);

/*
 * Reads a stored record. Trusts nothing. Pointers point into `data` or into memory of `dictionaries` that the next call uses again.
 * The id stays as it is. ONCE_OK; ONCE_E_NEWER: only the envelope was read; ONCE_E_CORRUPT; ONCE_E_NOT_FOUND: it needs a dictionary
 * that is not known yet.
 */
int once__redis_unpack(once__record_t *record, once__redis_dictionaries_t *dictionaries,
                       const uint8_t *data, size_t len);

/* Head and scope alone, from the first ONCE__REDIS_HEAD_ROOM bytes of a stored record. ONCE_OK, ONCE_E_NEWER, ONCE_E_CORRUPT. */
int once__redis_unpack_head(once__record_t *record, const uint8_t *data, size_t len);

/* The same from the answer to a change, which has ONCE__REDIS_HEAD_SIZE bytes. */
int once__redis_unpack_answer(once__record_t *record, const uint8_t *data);

#endif
