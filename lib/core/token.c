#include "core/token.h"

#include <assert.h>

#include "base/bytes.h"

#define RAW_SIZE (ONCE_ID_SIZE + 4 + ONCE_CLAIM_ID_SIZE)

static_assert(ONCE__BASE64_SIZE(RAW_SIZE) <= ONCE_TOKEN_SIZE, "a token fits its buffer");

void once__token_write(char out[ONCE_TOKEN_SIZE], const uint8_t id[ONCE_ID_SIZE],
                       const once__claim_ref_t *claim)
{
    uint8_t raw[RAW_SIZE];

    memcpy(raw, id, ONCE_ID_SIZE);
    once__put32(raw + ONCE_ID_SIZE, claim->epoch);
    memcpy(raw + ONCE_ID_SIZE + 4, claim->id, ONCE_CLAIM_ID_SIZE);
    once__base64url(out, raw, sizeof(raw));
}

int once__token_read(const char *text, uint8_t id[ONCE_ID_SIZE], once__claim_ref_t *claim)
{
    uint8_t raw[RAW_SIZE];

    if (once__unbase64url(raw, sizeof(raw), text, strlen(text)) != 0) {
        return -1;
    }
    memcpy(id, raw, ONCE_ID_SIZE);
    claim->epoch = once__get32(raw + ONCE_ID_SIZE);
    memcpy(claim->id, raw + ONCE_ID_SIZE + 4, ONCE_CLAIM_ID_SIZE);
    return 0;
}
