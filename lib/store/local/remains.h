/*
 * What a damaged frame still tells: whose it was. Pure: works on memory that the caller has.
 */
#ifndef ONCE_STORE_LOCAL_REMAINS_H
#define ONCE_STORE_LOCAL_REMAINS_H

#include "store/local/frame.h"

typedef struct once__remains {
    uint64_t size; /* with padding: where the next frame began */
    int certain;   /* the rest of the frame proves the id: at most one bit of all was changed */
    int nobodys;   /* it was of no record */
    uint8_t id[ONCE_ID_SIZE];
    int has_head; /* as far as the envelope says; if not certain, it may be wrong */
    once__head_t head;
} once__remains_t;

/*
 * Looks at what began at `place`, in a damaged range of the segment that ends at `end`, where a valid frame begins. `first`: the
 * range begins there, so it may have been all of it. 1; 0: it cannot be told where the frame ended, so neither can what else stood
 * in the range.
 */
int once__frame_remains(once__remains_t *remains, const uint8_t *data, once__place_t place,
                        uint64_t end, int first);

#endif
