/*
 * Segments and frames as bytes (docs/format.md, "The local store"). Pure: works on memory that the caller has.
 */
#ifndef ONCE_STORE_LOCAL_FRAME_H
#define ONCE_STORE_LOCAL_FRAME_H

#include "core/codec.h"

#define ONCE__SEGMENT_HEADER 64
#define ONCE__FRAME_HEADER   48
#define ONCE__FRAME_MAX      (ONCE__FRAME_HEADER + ONCE__ENVELOPE_SIZE + 512 + ONCE__PAYLOAD_MAX)
#define ONCE__BOOT_ID_SIZE   16

enum {
    ONCE__FRAME_RECORD = 1,
    ONCE__FRAME_REMOVED = 2,
    ONCE__FRAME_SEALED =
        3, /* the writer is done with the segment: everything before it was synced */
};

typedef struct once__segment_header {
    uint32_t number;
    uint64_t size;
    uint64_t created;
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
} once__segment_header_t;

void once__segment_header_write(const once__segment_header_t *header,
                                uint8_t out[ONCE__SEGMENT_HEADER]);

/* ONCE_OK, ONCE_E_CORRUPT, ONCE_E_NEWER (another number behind the magic). */
int once__segment_header_read(once__segment_header_t *header,
                              const uint8_t in[ONCE__SEGMENT_HEADER]);

/* Where a frame is, or is to be. */
typedef struct once__place {
    uint32_t segment;
    uint64_t offset; /* multiple of 8 */
} once__place_t;

typedef struct once__frame {
    uint8_t kind;
    uint64_t watermark;
    uint32_t size; /* with padding: where the next one begins */
    const uint8_t *id;
    const uint8_t *bytes; /* of the record */
    size_t len;
} once__frame_t;

/* Bytes that a frame for `record` (NULL: kind removed) takes, with padding. */
uint32_t once__frame_size(const once__record_t *record);

/*
 * Writes the frame to `out`, which is where `place` says. `record` NULL: the record with this id was removed; `id` NULL, too:
 * the segment is sealed.
 */
void once__frame_write(uint8_t *out, once__place_t place, uint64_t watermark, const uint8_t *id,
                       const once__record_t *record);

/* The same for a record that is bytes already: one that this program cannot read, because a newer one wrote it. */
void once__frame_write_bytes(uint8_t *out, once__place_t place, uint64_t watermark,
                             const uint8_t *id, const uint8_t *bytes, size_t len);

/* Is there a valid frame at `place`? `data` begins there and has `room` bytes. Trusts nothing. 1 or 0. */
int once__frame_read(once__frame_t *frame, once__place_t place, const uint8_t *data, size_t room);

/* What stands where no valid frame begins. */
typedef enum once__gap {
    ONCE__GAP_END,    /* the clean end: nothing was written there */
    ONCE__GAP_TORN,   /* written, never synced: cut */
    ONCE__GAP_DAMAGE, /* was synced, is damaged: goes on at *next */
} once__gap_t;

/* What earlier searches in the same segment found out, so that many gaps cost no more than one. Zero at first. */
typedef struct once__search {
    uint64_t synced; /* some valid frame says so */
    uint64_t effort; /* bytes summed up */
} once__search_t;

/*
 * Looks behind an invalid place. `data` is the whole segment of `size` bytes. Takes time in proportion to the size, whatever the
 * bytes are: where they look like so many frames that the truth is too dear, all of them are taken for damage.
 */
once__gap_t once__frame_search(once__search_t *search, const uint8_t *data, uint64_t size,
                               once__place_t place, uint64_t *next);

/* The same for a single place. */
once__gap_t once__frame_gap(const uint8_t *data, uint64_t size, once__place_t place,
                            uint64_t *next);

#endif
