#include "api/payload.h"

#include <stdlib.h>
#include <string.h>

#include "core/response.h"
#include "core/sized.h"

int once__pack_response(once_t *once, const uint8_t *id, const once_response_t *response,
                        once__payload_t *payload, uint8_t **memory)
{
    once__packing_t packing = {.seal = &once->options.seal,
                               .compress_from = once->options.compress_from,
                               .zstd = &once->zstd};
    int code;

    if (packing.seal->count > 0 && once__random(once, packing.nonce, sizeof(packing.nonce)) != 0) {
        return ONCE_E_IO;
    }
    code = once__response_pack(response, id, &packing, memory, &payload->len);
    payload->kind = ONCE__PAYLOAD_RESPONSE;
    payload->status = (uint16_t)response->status;
    payload->data = *memory;
    return code;
}

int once__pack_note(int status, once_slice_t note, once__payload_t *payload, uint8_t **memory)
{
    size_t len = note.len < ONCE_NOTE_MAX ? note.len : ONCE_NOTE_MAX;

    memset(payload, 0, sizeof(*payload));
    *memory = NULL;
    if (status != 0 && (status < 100 || status > 999)) {
        return ONCE_E_INVALID;
    }
    if (status == 0 && len == 0) {
        return ONCE_OK;
    }
    *memory = malloc(len + 1);
    if (*memory == NULL) {
        return ONCE_E_NOMEM;
    }
    if (len > 0) {
        memcpy(*memory, note.data, len);
    }
    payload->kind = ONCE__PAYLOAD_NOTE;
    payload->status = (uint16_t)status;
    payload->data = *memory;
    payload->len = len;
    return ONCE_OK;
}
