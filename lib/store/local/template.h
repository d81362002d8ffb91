/*
 * The templates of the segment that is being written: payloads that stand in it as they are, against which others that
 * are like them are packed. A few at a time, because a service has answers of several kinds.
 */
#ifndef ONCE_STORE_LOCAL_TEMPLATE_H
#define ONCE_STORE_LOCAL_TEMPLATE_H

#include "core/record.h"
#include "store/local/pack.h"

#define ONCE__TEMPLATES 8u

typedef struct once__templates {
    once__pattern_t patterns[ONCE__TEMPLATES];
    uint64_t offsets[ONCE__TEMPLATES]; /* of their frames; 0: none */
    uint64_t used[ONCE__TEMPLATES];    /* when last, counted */
    uint64_t clock;
    unsigned last;    /* used */
    uint64_t adopted; /* offset of the last one */
} once__templates_t;

/* Another segment begins: those of the last one are not for it. */
void once__templates_clear(once__templates_t *templates);
void once__templates_free(once__templates_t *templates);

/*
 * Packs the payload of a frame at `offset` into `out`, which has room for all of it. The length and which frame it was
 * packed against; 0: none is like it, or it is time for a new one.
 */
size_t once__templates_pack(once__templates_t *templates, uint64_t offset,
                            const once__payload_t *payload, uint8_t *out, uint64_t *against);

/* The payload stands as it is in the frame at `offset`: others may be packed against it from now on. */
void once__templates_offer(once__templates_t *templates, uint64_t offset,
                           const once__payload_t *payload);

#endif
