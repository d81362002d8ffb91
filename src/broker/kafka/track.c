#include <stdlib.h>
#include <string.h>

#include "broker/subscribe_internal.h"

void once__kafka_offsets_start(once__kafka_offsets_t *track)
{
    memset(track, 0, sizeof(*track));
    track->done_to = -1;
}

void once__kafka_offsets_free(once__kafka_offsets_t *track)
{
    free(track->ring);
    once__kafka_offsets_start(track);
}

static int grow(once__kafka_offsets_t *track)
{
    once__kafka_offsets_t bigger = *track;

    bigger.room = track->room != 0 ? 2 * track->room : 256;
    bigger.ring = calloc(bigger.room, sizeof(*bigger.ring));
    if (bigger.ring == NULL) {
        return -1;
    }
    for (uint64_t n = track->first; n != track->after; n++) {
        bigger.ring[n & (bigger.room - 1)] = track->ring[n & (track->room - 1)];
    }
    free(track->ring);
    *track = bigger;
    return 0;
}

int once__kafka_offsets_add(once__kafka_offsets_t *track, int64_t offset, uint64_t *number)
{
    if (track->after - track->first == track->room && grow(track) != 0) {
        return -1;
    }
    *number = track->after++;
    track->ring[*number & (track->room - 1)].offset = offset;
    track->ring[*number & (track->room - 1)].done = 0;
    return 0;
}

void once__kafka_offsets_done(once__kafka_offsets_t *track, uint64_t number)
{
    track->ring[number & (track->room - 1)].done = 1;
    while (track->first != track->after && track->ring[track->first & (track->room - 1)].done) {
        track->done_to = track->ring[track->first & (track->room - 1)].offset;
        track->moved = 1;
        track->first++;
    }
}
