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
    /* the writer is done with the segment: everything before it was synced */
    ONCE__FRAME_SEALED = 3,
    ONCE__FRAME_COMPLETION = 4, /* a record, completed: refers to frames before it in its segment */
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

/* Bytes that a frame with `len` bytes behind its header takes, with padding. */
uint32_t once__frame_padded(size_t len);

/* Bytes that a frame for `record` (NULL: kind removed) takes, with padding. */
uint32_t once__frame_size(const once__record_t *record);

/*
 * Writes the frame to `out`, which is where `place` says. `record` NULL: the record with this id was removed; `id`
 * NULL, too: the segment is sealed.
 */
void once__frame_write(uint8_t *out, once__place_t place, uint64_t watermark, const uint8_t *id,
                       const once__record_t *record);

/* The same for a record that is bytes already: one that this program cannot read, because a newer one wrote it. */
void once__frame_write_bytes(uint8_t *out, once__place_t place, uint64_t watermark,
                             const uint8_t *id, const uint8_t *bytes, size_t len);

/*
 * Everything around the `len` bytes that stand behind where the header will be. Returns the size with padding. `id`
 * NULL: zero.
 */
uint32_t once__frame_write_around(uint8_t *out, once__place_t place, uint64_t watermark,
                                  uint8_t kind, const uint8_t *id, size_t len);

/* Is there a valid frame at `place`? `data` begins there and has `room` bytes. Trusts nothing. 1 or 0. */
int once__frame_read(once__frame_t *frame, once__place_t place, const uint8_t *data, size_t room);

/* Two of them: 1 if both are valid. */
int once__frame_read_two(once__frame_t frames[2], const once__place_t places[2],
                         const uint8_t *const data[2], const size_t rooms[2]);

/* The checksum that a frame of `len` bytes has there. */
uint32_t once__frame_checksum(once__place_t place, const uint8_t *frame, size_t len);

/* Is it of a record, be it whole or not? */
int once__frame_has_record(const once__frame_t *frame);

/*
 * A held record that could not be read when its segment went. What is left of it is the part of its id that the index has, and its
 * state: enough to tell whoever asks that it is damaged. Written as a record of one byte, which no record is.
 */
int once__frame_is_lost(const once__frame_t *frame);

/*
 * What the envelope of its record says; for a whole record, all of its head. ONCE_OK, ONCE_E_NEWER; ONCE_E_CORRUPT:
 * also when it has none.
 */
int once__frame_head(const once__frame_t *frame, once__head_t *head);

/*
 * Covers `len` bytes of damage, at least ONCE__FRAME_HEADER, with frames that say nothing: what stands behind stays
 * where it is.
 */
void once__frame_write_filler(uint8_t *out, once__place_t place, uint64_t len);

/* Gives a frame that was copied to its place another watermark. */
void once__frame_set_watermark(uint8_t *data, once__place_t place, uint64_t watermark);

/* ---- completions ---- */

/*
 * A completion says only what is new: the envelope and the response. The rest is in the frame that the record had
 * before, its claim. The response may be packed against that of another record. Both stand before it in the same
 * segment, which goes as a whole.
 */
typedef struct once__completion {
    const uint8_t *envelope;
    uint64_t claim; /* offset of the frame */
    uint64_t template; /* offset of the frame whose response this one is packed against; 0: it is plain */
    uint32_t len; /* of the response */
    uint16_t status;
    const uint8_t *bytes; /* of the response, plain or packed */
    size_t size;
} once__completion_t;

/* Behind the header of the frame: envelope, references, status. */
#define ONCE__COMPLETION_HEADER 74

/*
 * Where the claim of the completion is that may begin at `data`, with at least `room` bytes; 0: none is there. Nothing is checked:
 * for who wants to read both at a time.
 */
uint64_t once__completion_claim(const uint8_t *data, size_t room);

/* What a frame of this kind says of itself, not yet what it refers to. ONCE_OK or ONCE_E_CORRUPT. */
int once__completion_read(once__completion_t *completion, const once__frame_t *frame,
                          uint64_t offset);

/*
 * Writes the frame around a response whose bytes stand at `out` + ONCE__FRAME_HEADER + ONCE__COMPLETION_HEADER already.
 * Returns its size with padding.
 */
uint32_t once__completion_write(uint8_t *out, once__place_t place, uint64_t watermark,
                                const once__record_t *record, const once__completion_t *completion);

/*
 * The bytes of the whole record, as a frame of kind record would have them, in `out` of ONCE__RECORD_REST +
 * `completion->len` bytes. `claim` and `template` (NULL: none) are the frames that it refers to, valid ones. ONCE_OK;
 * ONCE_E_CORRUPT: they do not fit.
 */
int once__completion_expand(const once__completion_t *completion, const uint8_t *id,
                            const once__frame_t *claim, const once__frame_t *template, uint8_t *out,
                            size_t *len);

/*
 * The same for who has all of a segment in memory: if `frame` at `place` is a completion, it becomes a frame of kind
 * record, whose bytes are in `whole`; its size stays that which it has in the segment. ONCE_OK; ONCE_E_CORRUPT: what it
 * refers to is damaged; ONCE_E_NOMEM.
 */
typedef struct once__whole {
    uint8_t *bytes; /* the caller frees them */
    size_t room;
} once__whole_t;

int once__frame_complete(once__whole_t *whole, const uint8_t *data, uint64_t size,
                         once__place_t place, once__frame_t *frame);

/* What stands where no valid frame begins. */
typedef enum once__gap {
    ONCE__GAP_END, /* the clean end: nothing was written there */
    ONCE__GAP_TORN, /* written, never synced: cut. *next: a valid frame behind it, 0: there is none */
    ONCE__GAP_DAMAGE, /* was synced, is damaged: goes on at *next */
    /* Looks so much like frames that finding out takes too long: it may be damage, and valid frames may follow. *next: the
     * first one that was found, or the end of the segment. */
    ONCE__GAP_UNKNOWN,
} once__gap_t;

/* What earlier searches in the same segment found out, so that many gaps cost no more than one. Zero at first. */
typedef struct once__search {
    uint64_t synced; /* some valid frame says so */
    uint64_t effort; /* bytes summed up */
    int used;        /* there was a search */
} once__search_t;

/*
 * Looks behind an invalid place. `data` is the whole segment of `size` bytes, of which nothing before the place is
 * looked at. Takes time in proportion to the size, whatever the bytes are.
 */
once__gap_t once__frame_search(once__search_t *search, const uint8_t *data, uint64_t size,
                               once__place_t place, uint64_t *next);

/*
 * Does the frame at `place`, which says that it is the last one, stand before others? A response can have bytes that look like it,
 * and they are met when the frame around them is damaged. 1: go on at *next, what is before that is damage; 0: it is the end;
 * negative: finding out takes too long, and *next is the end of the segment.
 */
int once__frame_is_no_end(once__search_t *search, const uint8_t *data, uint64_t size,
                          once__place_t place, uint64_t *next);

/* The same as once__frame_search for a single place. */
once__gap_t once__frame_gap(const uint8_t *data, uint64_t size, once__place_t place,
                            uint64_t *next);

#endif
