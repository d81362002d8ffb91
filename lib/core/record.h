/*
 * The record: what a store holds for one (scope, key).
 *
 * The head is everything that decisions are made from; a store changes it only through once__step (rules.h). The rest (key
 * text, payload) only goes with it. All times are milliseconds of the store's clock.
 */
#ifndef ONCE_CORE_RECORD_H
#define ONCE_CORE_RECORD_H

#include <once/once.h>

/* The newest schema of a record's rest that this code can read and write. The envelope never changes. */
#define ONCE__SCHEMA 1

/* Flags of a head. The numbers are stored: never renumber. */
enum {
    ONCE__BY_LEASE = 1, /* unknown because the lease ran out, not because the holder said so */
    ONCE__TAINTED = 2,  /* an earlier epoch ended in doubt or by lease */
    ONCE__TOUCHED = 4,  /* an earlier epoch was released, and may have taken effect before that */
};

typedef struct once__fingerprint {
    uint32_t secret; /* id of the secret that made it */
    uint8_t mode;    /* once_body_mode_t as it was applied (after a fall-back: exact) */
    uint8_t mac[32];
} once__fingerprint_t;

/* Which attempt: every write names both, and both must match. */
typedef struct once__claim_ref {
    uint32_t epoch;
    uint8_t id[ONCE_CLAIM_ID_SIZE];
} once__claim_ref_t;

typedef struct once__head {
    uint8_t schema;  /* of the rest; > ONCE__SCHEMA: written by a newer version */
    uint8_t state;   /* once_state_t */
    uint8_t recover; /* once_recover_t */
    uint8_t flags;
    once__claim_ref_t claim;
    uint64_t lease_until; /* the lease is over when now >= lease_until */
    uint64_t lease_ms;    /* its length */
    uint64_t changed;     /* the last change */
    uint64_t expires;     /* completed, failed: forgotten when now >= expires. 0: never */
    uint64_t ttl_ms;      /* retention asked for by the claim */
    uint64_t created;     /* the first claim */
    once__fingerprint_t fingerprint;
} once__head_t;

/*
 * What holds whenever a step has changed a record, whatever was stored before:
 *   I-1  the state is one of once_state_t; NONE means that the record is removed
 *   I-2  the time of the last change does not go back
 *   I-3  the schema is one that this code knows: what a newer version wrote is not changed
 *   I-4  the epoch grows by one with every grant, and by nothing else
 *   I-5  the policy does not become laxer
 *   I-6  a record that ends has no flags, and is kept at least until now
 */
void once__record_assert_state(const once__head_t *before, const once__head_t *after, int granted);

/* What a payload is. Stored: never renumber. */
enum {
    ONCE__PAYLOAD_NONE = 0,
    ONCE__PAYLOAD_RESPONSE = 1, /* as packed by once__response_pack (response.h) */
    ONCE__PAYLOAD_NOTE = 2,     /* short text: what failed */
    ONCE__PAYLOAD_ERASED =
        3, /* nothing but its status: completed, failed; the record has no texts either */
};

typedef struct once__payload {
    uint8_t kind;
    uint16_t status; /* 0: none */
    const uint8_t *data;
    size_t len;
} once__payload_t;

/* A whole record. Its pointers are borrowed. */
typedef struct once__record {
    uint8_t id[ONCE_ID_SIZE];
    uint8_t scope_hash[ONCE_SCOPE_HASH_SIZE];
    once__head_t head;
    const char *key;
    size_t key_len; /* 0 if it was erased, and only then */
    once__payload_t payload;
    once_slice_t about; /* as about.h packs it; replaced by every grant; empty: nothing is known */
    once_slice_t cause; /* why it is in its state, and earlier attempts: attempts.h */
} once__record_t;

/* Copies the record into one allocation, to be freed with free(). NULL if out of memory. */
once__record_t *once__record_clone(const once__record_t *record);

#endif
