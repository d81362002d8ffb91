#include "core/record.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void once__record_assert_state(const once__head_t *before, const once__head_t *after, int granted)
{
    assert(after->state <= ONCE_STATE_UNKNOWN); /* I-1 */
    assert(after->changed >= before->changed);  /* I-2 */
    if (after->state == ONCE_STATE_NONE) {
        return;
    }
    assert(after->schema <= ONCE__SCHEMA);                                   /* I-3 */
    assert(after->claim.epoch == before->claim.epoch + (granted ? 1u : 0u)); /* I-4 */
    assert(after->recover >= before->recover);                               /* I-5 */
    if (after->state != before->state &&
        (after->state == ONCE_STATE_COMPLETED || after->state == ONCE_STATE_FAILED)) {
        assert(after->flags == 0 && after->expires >= after->changed); /* I-6 */
    }
}

static const void *append(uint8_t **tail, const void *data, size_t len)
{
    void *at = *tail;

    if (len > 0) {
        memcpy(at, data, len);
    }
    *tail += len;
    return at;
}

once__record_t *once__record_clone(const once__record_t *record)
{
    once__record_t *copy = malloc(sizeof(*copy) + record->key_len + record->payload.len +
                                  record->about.len + record->cause.len);
    uint8_t *tail;

    if (copy == NULL) {
        return NULL;
    }
    *copy = *record;
    tail = (uint8_t *)(copy + 1);
    copy->key = append(&tail, record->key, record->key_len);
    copy->payload.data = append(&tail, record->payload.data, record->payload.len);
    copy->about.data = append(&tail, record->about.data, record->about.len);
    copy->cause.data = append(&tail, record->cause.data, record->cause.len);
    return copy;
}
