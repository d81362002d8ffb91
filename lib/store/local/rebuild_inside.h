/*
 * The inside of a rebuild, for those that work on it: rebuild.c (all segments), rebuild_segment.c (one of them, by its summary or
 * its frames), rebuild_frames.c (frames, and what stands between them).
 */
#ifndef ONCE_STORE_LOCAL_REBUILD_INSIDE_H
#define ONCE_STORE_LOCAL_REBUILD_INSIDE_H

#include "store/local/log.h"
#include "store/local/rebuild.h"

typedef struct once__rebuild {
    once__directory_t *directory;
    once__index_t *index;
    once__log_t *reader; /* to compare ids */
    uint8_t *room;       /* for a whole segment */
    uint64_t room_size;
    const uint8_t *data; /* the segment that is read frame by frame; NULL: none */
    uint64_t size;
    uint32_t number;
    /* where its frames end without a seal; 0: they do not, or it is not known */
    uint64_t open_end;
    once__whole_t whole;
    once__rebuilt_t *rebuilt;
    uint64_t latest; /* time that any frame or header knows of */
    once_error_t *err;
} once__rebuild_t;

/*
 * Enters where a record's newest frame is. `whole`: the id is all of it; otherwise only the part that the index has, and the frame
 * tells the rest when it matters.
 */
int once__rebuild_enter(once__rebuild_t *rebuild, const uint8_t *id, int whole,
                        const once__entry_t *entry);

/* Enters everything that the frames of a segment say, and what damaged ones of them still tell. */
int once__rebuild_frames(once__rebuild_t *rebuild, uint32_t number, const uint8_t *data,
                         uint64_t size);

int once__rebuild_segment(once__rebuild_t *rebuild, uint32_t number);

#endif
