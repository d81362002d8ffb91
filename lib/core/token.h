/*
 * A claim as text (`Once-Claim`): base64url of record id, epoch (little-endian) and claim id.
 */
#ifndef ONCE_CORE_TOKEN_H
#define ONCE_CORE_TOKEN_H

#include "core/record.h"

void once__token_write(char out[ONCE_TOKEN_SIZE], const uint8_t id[ONCE_ID_SIZE],
                       const once__claim_ref_t *claim);

/* Returns 0, or -1 if the text is not a claim. */
int once__token_read(const char *text, uint8_t id[ONCE_ID_SIZE], once__claim_ref_t *claim);

#endif
