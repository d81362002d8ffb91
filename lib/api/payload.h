/*
 * Makes payloads of responses and notes. On ONCE_OK the caller frees `*memory`, which may be NULL.
 */
#ifndef ONCE_API_PAYLOAD_H
#define ONCE_API_PAYLOAD_H

#include "api/handle.h"

/* `response` is ours: read with once__sized_read. */
int once__pack_response(once_t *once, const uint8_t *id, const once_response_t *response,
                        once__payload_t *payload, uint8_t **memory);
int once__pack_note(int status, once_slice_t note, once__payload_t *payload, uint8_t **memory);

#endif
