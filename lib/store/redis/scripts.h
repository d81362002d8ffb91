/*
 * The Lua scripts of the redis store: one per kind of operation. Their text is in lua/, and goes into the library at build time.
 */
#ifndef ONCE_STORE_REDIS_SCRIPTS_H
#define ONCE_STORE_REDIS_SCRIPTS_H

#include <stddef.h>

typedef enum once__redis_script {
    ONCE__REDIS_CLAIM,
    ONCE__REDIS_CLAIM_APART, /* where the mark of the secrets is elsewhere, or not compared */
    ONCE__REDIS_COMPLETE,
    ONCE__REDIS_RELEASE,
    ONCE__REDIS_DOUBT,
    ONCE__REDIS_RENEW,
    ONCE__REDIS_SETTLE_COMPLETED,
    ONCE__REDIS_SETTLE_FAILED,
    ONCE__REDIS_PURGE,
    ONCE__REDIS_REAP,
    ONCE__REDIS_GET,
    ONCE__REDIS_SWAP,
    ONCE__REDIS_SCRIPT_COUNT
} once__redis_script_t;

typedef struct once__redis_text {
    const char *text;
    size_t len;
} once__redis_text_t;

extern const once__redis_text_t once__redis_texts[ONCE__REDIS_SCRIPT_COUNT];

#define ONCE__REDIS_SHA_SIZE 41

/* The name by which Redis knows a script: SHA-1 of its text, in hex. */
void once__redis_script_sha(once__redis_script_t script, char out[ONCE__REDIS_SHA_SIZE]);

#endif
