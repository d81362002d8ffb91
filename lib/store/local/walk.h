/*
 * The one walk through a segment: every frame, and what stands where there is none.
 */
#ifndef ONCE_STORE_LOCAL_WALK_H
#define ONCE_STORE_LOCAL_WALK_H

#include "store/local/disk.h"
#include "store/local/frame.h"

/* A segment's file in memory. */
typedef struct once__image {
    uint8_t *data; /* malloc'd; may be one allocation that is used again for the next segment */
    uint64_t size;
    uint64_t room;
    uint64_t end; /* of what is looked at: `size`, or less for a segment that is being written */
    once__segment_header_t header;
    const uint8_t *dictionary; /* NULL: there is none, or it is damaged */
    int salvage; /* a page that the disk cannot read is zeros, not ONCE_E_IO: for repair */
} once__image_t;

/*
 * Reads a whole segment with read calls (a disk that fails is an error, never a signal). `image` is zeroed at first, and may be
 * used again. ONCE_OK; ONCE_E_CORRUPT: the header is damaged, of another number or another store, or the file is longer than it was
 * made (data and size are set); ONCE_E_NEWER; ONCE_E_NOT_FOUND; ONCE_E_IO; ONCE_E_NOMEM; ONCE_E_CONFIG: it belongs to another user
 * than the directory, or is not a file. Of a segment that is being written, lower image->end to what was durable before.
 */
int once__image_read(once__image_t *image, int segments_fd, const once__disk_t *disk,
                     uint64_t number, const uint8_t store_id[ONCE__STORE_ID_SIZE]);
void once__image_free(once__image_t *image);

typedef enum once__walk_kind {
    ONCE__WALK_FRAME, /* a valid frame; also fillers; not the one that seals */
    /* A frame with a valid head and a damaged body, or compressed with a damaged dictionary. */
    ONCE__WALK_DAMAGED,
    /*
     * Bytes from offset to `end` that were synced, and nobody knows whose frames they had. Empty: the file was cut (it is
     * shorter than it was made and does not end with the frame that seals).
     */
    ONCE__WALK_LOST,
    ONCE__WALK_TORN,   /* bytes from offset on that were never synced: the walk ends here */
    ONCE__WALK_SEALED, /* the frame that seals: the walk ends here, `end` is behind it */
    ONCE__WALK_END,    /* nothing more was written: the walk ends here */
} once__walk_kind_t;

typedef struct once__walk {
    const once__image_t *image;
    uint64_t synced; /* what is known, from elsewhere or from frames that were looked for */
    uint64_t offset; /* of what was found last */
    uint64_t end;    /* behind it */
    once__walk_kind_t kind;
    once__frame_t frame; /* FRAME, DAMAGED, SEALED */
    int is_over;
} once__walk_t;

/* `synced`: up to here the segment is known to be synced (from the index); 0: not known; UINT64_MAX: it is sealed. */
void once__walk_begin(once__walk_t *walk, const once__image_t *image, uint64_t synced);
/* The next step. 1, or 0: there is none (behind TORN, SEALED or END, or behind LOST at the end). */
int once__walk_next(once__walk_t *walk);
/* Can what was found be used? ONCE_OK; ONCE_E_CORRUPT: DAMAGED, LOST, or the head of its record is wrong; ONCE_E_NEWER: its schema. */
int once__walk_code(const once__walk_t *walk);

#endif
