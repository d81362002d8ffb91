/*
 * Records inside frames (docs/format.md, "The record, packed").
 */
#ifndef ONCE_STORE_LOCAL_PACK_H
#define ONCE_STORE_LOCAL_PACK_H

#include "store/dictionary.h"
#include "store/local/frame.h"

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
