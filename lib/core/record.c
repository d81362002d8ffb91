#include "core/record.h"

#include <stdlib.h>
#include <string.h>

once__record_t *once__record_clone(const once__record_t *record)
{
    once__record_t *copy = malloc(sizeof(*copy) + record->key_len + record->payload.len);
    uint8_t *tail;

    if (copy == NULL) {
        return NULL;
    }
    *copy = *record;
    tail = (uint8_t *)(copy + 1);
    if (record->key_len > 0) {
        memcpy(tail, record->key, record->key_len);
    }
    copy->key = (const char *)tail;
    tail += record->key_len;
    if (record->payload.len > 0) {
        memcpy(tail, record->payload.data, record->payload.len);
    }
    copy->payload.data = tail;
    return copy;
}
