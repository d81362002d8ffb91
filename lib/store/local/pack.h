/*
 * A payload as the differences to another one, the template: copies from it, and the bytes between them. Answers of one
 * service resemble each other in all but a few values. docs/decisions/similar-responses.md says why this and not a
 * library; docs/format.md has the form.
 *
 * Pure. Sizes are limited so that no packed bytes make a reader use more memory than the limit.
 */
#ifndef ONCE_STORE_LOCAL_PACK_H
#define ONCE_STORE_LOCAL_PACK_H

#include <stddef.h>
#include <stdint.h>

#define ONCE__PACK_MIN   64u
#define ONCE__PACK_MAX   16384u /* of a payload, and of a template */
#define ONCE__PACK_HEADS 2048u

/* A template with the places of what can be found in it. */
typedef struct once__pattern {
    uint8_t *bytes;
    uint32_t len;
    uint16_t heads[ONCE__PACK_HEADS]; /* by hash of four bytes: a place where they may be */
} once__pattern_t;

/* Copies the template. 0, or -1: out of memory, or not of a size that can be one. */
int once__pattern_set(once__pattern_t *pattern, const uint8_t *bytes, size_t len);
void once__pattern_free(once__pattern_t *pattern);

/* How many of a few samples of `data` are in the template: 0 to ONCE__SAMPLES. */
#define ONCE__SAMPLES 12u
unsigned once__pattern_likeness(const once__pattern_t *pattern, const uint8_t *data, size_t len);

/* Packs `data` (at most ONCE__PACK_MAX bytes) into `out` of as many bytes. The length, or 0: it is not worth it. */
size_t once__pack(const once__pattern_t *pattern, const uint8_t *data, size_t len, uint8_t *out);

/* The length of what was packed, ONCE__PACK_MAX at most; 0: these are not packed bytes. */
uint32_t once__packed_length(const uint8_t *packed, size_t len);

/* Unpacks into `out` of that length. Trusts nothing. 0, or -1: these are not packed bytes, or it was another template. */
int once__unpack(const uint8_t *template_bytes, size_t template_len, const uint8_t *packed,
                 size_t len, uint8_t *out);

#endif
