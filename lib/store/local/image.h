/*
 * A segment's file as bytes in memory, for those who check or copy it: read without a mapping, so that a disk that
 * cannot read is an error and not a signal, and so that nothing changes while it is looked at.
 */
#ifndef ONCE_STORE_LOCAL_IMAGE_H
#define ONCE_STORE_LOCAL_IMAGE_H

#include "store/local/frame.h"

struct once__disk;

typedef struct once__image {
    uint32_t number;
    int writing; /* its writer lives: there may be more by now */
    uint8_t *data;
    uint64_t size;       /* of the file */
    uint64_t unreadable; /* bytes that the disk did not give: zeros here */
    once__whole_t whole; /* the piece that was looked at last */
} once__image_t;

/*
 * Reads the file of a segment. ONCE_OK; ONCE_E_NOT_FOUND: there is none, or it was dropped while it was read; ONCE_E_IO
 * and errno; ONCE_E_NOMEM.
 */
int once__image_read(once__image_t *image, int segments_fd, uint32_t number);
void once__image_free(once__image_t *image);

/* ONCE_OK, ONCE_E_NEWER, ONCE_E_CORRUPT: also when it is the header of another segment, or of another size. */
int once__image_header(const once__image_t *image, once__segment_header_t *header);

/* What a walk through the frames meets. */
typedef enum once__piece_kind {
    ONCE__PIECE_FRAME, /* of a record, readable at least as far as its envelope; or of a removed one */
    ONCE__PIECE_DAMAGE, /* a range that was durable: not a frame, or one whose record makes no sense */
    ONCE__PIECE_SEALED, /* the end, written down */
    ONCE__PIECE_TORN,   /* the end: what follows was never durable */
    ONCE__PIECE_END,    /* the end */
} once__piece_kind_t;

typedef struct once__piece {
    once__piece_kind_t kind;
    uint64_t offset;
    uint64_t length;       /* where the next piece begins; 0 at an end */
    once__frame_t frame;   /* a completion is whole here, and of kind record */
    once__record_t record; /* ONCE__PIECE_FRAME of a record; all of it valid until the next piece */
    int newer;             /* only the envelope of the record can be read */
} once__piece_t;

/*
 * The piece at `offset`; the first one is at ONCE__SEGMENT_HEADER. A frame whose reference leads to something damaged
 * is damage itself.
 */
void once__image_piece(once__image_t *image, uint64_t offset, once__piece_t *piece);

/* ---- making files ---- */

/*
 * Writes a whole segment: the header, `data` from ONCE__SEGMENT_HEADER to `end` (room for a header before that), and
 * the frame that seals it. Durable when it returns, except its name. ONCE_OK, or ONCE_E_IO, ONCE_E_FULL, ONCE_E_NOMEM
 * and errno.
 */
int once__image_write(const struct once__disk *disk, int segments_fd, const char *name,
                      once__segment_header_t *header, const uint8_t *data, uint64_t end);

/*
 * The numbers of all segment files, sorted; malloc'd. `unfinished` counts files that are not segments yet. ONCE_OK, IO,
 * NOMEM.
 */
int once__image_list(int segments_fd, uint32_t **numbers, size_t *count, uint64_t *unfinished);

#endif
