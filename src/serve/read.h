/*
 * What a request asks for: a JSON object with known members, read into a struct. Nothing here touches a store or a socket.
 */
#ifndef ONCE_SERVE_READ_H
#define ONCE_SERVE_READ_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <once/once.h>

/* The members that requests can have; bits of `given`, `allowed` and `needed`. */
enum {
    ONCE__SERVE_SCOPE = 1u << 0,
    ONCE__SERVE_KEY = 1u << 1,
    ONCE__SERVE_METHOD = 1u << 2,
    ONCE__SERVE_TARGET = 1u << 3,
    ONCE__SERVE_BODY = 1u << 4,
    ONCE__SERVE_BODY_BASE64 = 1u << 5,
    ONCE__SERVE_RECOVER = 1u << 6,
    ONCE__SERVE_TTL = 1u << 7,
    ONCE__SERVE_LEASE = 1u << 8,
    ONCE__SERVE_DESCRIPTION = 1u << 9,
    ONCE__SERVE_SUBJECT = 1u << 10,
    ONCE__SERVE_CLAIM_ID = 1u << 11,
    ONCE__SERVE_RENEW = 1u << 12,
    ONCE__SERVE_WAIT = 1u << 13,
    ONCE__SERVE_CLAIM = 1u << 14,
    ONCE__SERVE_RESPONSE = 1u << 15,
    ONCE__SERVE_VERDICT = 1u << 16,
    ONCE__SERVE_RETAIN = 1u << 17,
    ONCE__SERVE_STATUS = 1u << 18,
    ONCE__SERVE_NOTE = 1u << 19,
    ONCE__SERVE_EARLY = 1u << 20,
    ONCE__SERVE_CAUSE = 1u << 21,
    ONCE__SERVE_CLAIMS = 1u << 22,
    ONCE__SERVE_ID = 1u << 23,
    ONCE__SERVE_STEP = 1u << 24,
};

#define ONCE__SERVE_CLAIMS_MAX 1000  /* of one renewal */
#define ONCE__SERVE_WAIT_MAX   60000 /* milliseconds */

/* What was read. Texts point into `json`; what is not given is zero. */
typedef struct once__serve_input {
    json_t *json;
    unsigned given;
    once_slice_t scope, key, method, target, body, description, subject, note, cause, step;
    const char *claim;
    const json_t *claims; /* an array of texts that are claims */
    uint64_t ttl_ms, lease_ms, wait_ms, retain_ms, status;
    uint64_t recover; /* once_recover_t */
    uint64_t verdict; /* once_verdict_t */
    uint64_t by_connection, early;
    uint8_t claim_id[ONCE_CLAIM_ID_SIZE];
    uint8_t id[ONCE_ID_SIZE]; /* given, or of the record that `claim` is of */
    once_response_t response;
    once_header_t *headers;
    uint8_t *decoded, *response_decoded; /* bodies that came as base64 */
} once__serve_input_t;

/* What is wrong with a request. */
typedef struct once__serve_wrong {
    int code; /* ONCE_E_INVALID, ONCE_E_KEY, ONCE_E_TOO_BIG or ONCE_E_NOMEM */
    char text[200];
} once__serve_wrong_t;

/*
 * Reads a request with these members. Returns 0, or -1 after saying what is wrong. Free the input in both cases.
 */
int once__serve_read(once__serve_input_t *input, const char *text, size_t len, unsigned allowed,
                     unsigned needed, once__serve_wrong_t *wrong);
void once__serve_input_free(once__serve_input_t *input);

/* The id of the record that a claim is of, and its own. Returns 0, or -1 if the text is not a claim. */
int once__serve_claim_read(const char *claim, uint8_t id[ONCE_ID_SIZE],
                           uint8_t claim_id[ONCE_CLAIM_ID_SIZE]);

#endif
