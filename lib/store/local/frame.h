/*
 * Segment headers, frames and the records in them as bytes (docs/format.md, "The local store"). Pure: works on memory that the
 * caller has.
 */
#ifndef ONCE_STORE_LOCAL_FRAME_H
#define ONCE_STORE_LOCAL_FRAME_H

#include "core/codec.h"
#include "store/dictionary.h"

#define ONCE__SEGMENT_HEADER 128
#define ONCE__SEGMENT_MAX    ((uint64_t)1 << 31) /* bytes: what an entry of the index can address */
#define ONCE__FRAME_HEADER   60
#define ONCE__FRAME_MAX      (ONCE__FRAME_HEADER + 8 + 2048 + ONCE__PAYLOAD_MAX) /* without padding */
#define ONCE__FILLER_MAX     ((uint64_t)1 << 20)
#define ONCE__BOOT_ID_SIZE   16
#define ONCE__STORE_ID_SIZE  16
#define ONCE__SEAL_ROOM      64 /* kept free at the end of a segment, for the frame that seals it */

enum {
    ONCE__FRAME_RECORD = 1,
    ONCE__FRAME_REMOVED = 2,
    ONCE__FRAME_SEALED = 3, /* the last one: everything before it was synced */
    ONCE__FRAME_FILLER = 4, /* covers damage that was repaired */
};

enum {
    ONCE__FRAME_SINCE = 1,       /* has a `since` */
    ONCE__FRAME_COMPRESSED = 2,  /* the payload is, with the dictionary of the segment */
    ONCE__FRAME_SHORT_ABOUT = 4, /* so is what the record says about itself */
};

typedef struct once__segment_header {
    uint64_t number;
    uint64_t word; /* random */
    uint64_t size;
    uint64_t created;
    int64_t clock_offset;
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    uint8_t store_id[ONCE__STORE_ID_SIZE];
    uint32_t dictionary_len;
} once__segment_header_t;

/* Where the first frame is: behind header and dictionary. */
uint64_t once__segment_start(uint32_t dictionary_len);

/* Header and dictionary as bytes: `out` has once__segment_start() bytes. */
void once__segment_header_write(const once__segment_header_t *header, const uint8_t *dictionary,
                                uint8_t *out);

/* `in` has `len` bytes. ONCE_OK; ONCE_E_CORRUPT: also if they are too few; ONCE_E_NEWER: another digit behind the magic. */
int once__segment_header_read(once__segment_header_t *header, const uint8_t *in, size_t len);

/* The dictionary behind a valid header, of which `in` has `len` bytes. NULL: there is none, or it is damaged. */
const uint8_t *once__segment_dictionary(const uint8_t *in, size_t len);

/* A frame that was read, or is to be written. */
typedef struct once__frame {
    uint8_t kind;
    uint8_t state; /* of the record; 0 with other kinds */
    uint8_t flags;
    uint64_t version;
    uint64_t since;      /* 0: every earlier frame of the record is in this segment */
    uint64_t watermark;  /* a multiple of 8 */
    const uint8_t *id;   /* NULL when writing: zero */
    const uint8_t *body; /* behind `since` */
    size_t len;          /* of the body */
    uint32_t size;       /* of the frame with padding: where the next one begins (set by reading) */
} once__frame_t;

/* Bytes that a frame takes, with padding. `len` is that of the body without `since`. */
uint32_t once__frame_size(size_t len, int has_since);

/* Where the body of a frame at `out` has to be, for once__frame_write with `body` already in place. */
uint8_t *once__frame_body(uint8_t *out, int has_since);

/*
 * Writes the frame that will stand at `offset` of the segment with this word. flags & ONCE__FRAME_SINCE is set from `since`. If
 * frame->body is where once__frame_body says, it is not copied. Returns its size with padding. The length is written last.
 */
uint32_t once__frame_write(uint8_t *out, uint64_t word, uint64_t offset,
                           const once__frame_t *frame);

typedef enum once__frame_code {
    ONCE__FRAME_NONE, /* no valid head here */
    ONCE__FRAME_OK,
    ONCE__FRAME_DAMAGED, /* the head is right, the body is not: kind, state, version, id and size can be believed */
} once__frame_code_t;

/* The frame at `offset`, of which `data` has `room` bytes. Trusts nothing. With `room` shorter than the frame: NONE. */
once__frame_code_t once__frame_read(once__frame_t *frame, uint64_t word, uint64_t offset,
                                    const uint8_t *data, size_t room);

/* Is there a valid head in ONCE__FRAME_HEADER bytes? 1 and `frame` (since is 0; body is NULL, but len and size are set), or 0. */
int once__frame_read_head(once__frame_t *frame, uint64_t word, uint64_t offset,
                          const uint8_t *data);

/* Covers `len` bytes (a multiple of 8, at least 64) with frames of kind filler. Up to `watermark` the segment is synced. */
void once__frame_write_filler(uint8_t *out, uint64_t word, uint64_t offset, uint64_t len,
                              uint64_t watermark);

/*
 * The first place from `offset` on (a multiple of 8) where a valid head begins, and `frame` as by once__frame_read_head;
 * `size`: there is none. `data` is the whole file of `size` bytes. Takes time in proportion to the size, whatever the bytes are.
 */
uint64_t once__frame_find(once__frame_t *frame, uint64_t word, uint64_t offset, const uint8_t *data,
                          uint64_t size);

/* ---- the record in a frame (docs/format.md, "The record, packed") ---- */

/* An upper bound of what once__pack writes. */
size_t once__pack_bound(const once__record_t *record);

/*
 * Packs the record, which must be valid (asserted), into `out` (once__pack_bound bytes). `dictionary` may be NULL. Returns the
 * length; *flags gets ONCE__FRAME_COMPRESSED if the payload was compressed, and
 * ONCE__FRAME_SHORT_ABOUT if what it says about itself was.
 */
size_t once__pack(uint8_t *out, const once__record_t *record, const once__dictionary_t *dictionary,
                  uint8_t *flags);

/* Memory for what is not in the frame as it is: the text of a UUID, what was compressed. */
typedef struct once__scratch {
    uint8_t *bytes; /* grows by realloc; the caller frees it */
    size_t size;
} once__scratch_t;

/*
 * The record of a frame of kind record. Trusts nothing. What `record` points to is in the frame or in *scratch. ONCE_OK;
 * ONCE_E_NEWER: only the id and the envelope's part of the head are filled in, the rest is zero; ONCE_E_CORRUPT (also: the payload
 * is compressed, and `dictionary` is NULL): only the id is; ONCE_E_NOMEM: likewise. What the record says about itself is empty if
 * it is compressed and `dictionary` is NULL.
 */
int once__unpack(once__record_t *record, const once__frame_t *frame,
                 const once__dictionary_t *dictionary, once__scratch_t *scratch);

/* The head alone: nothing is decompressed, no scratch is needed. Codes as once__unpack. */
int once__unpack_head(once__head_t *head, const once__frame_t *frame);

#endif
