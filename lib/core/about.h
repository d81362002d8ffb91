/*
 * What a record says about itself: what was asked, which process ran it, for whom. A store keeps it as it comes, as one short
 * run of bytes that only these functions make and read (docs/format.md):
 *     version | length of the holder, + 0x80 with a subject | holder | subject | description up to the end
 * No bytes at all: nothing is known, as in records from before.
 */
#ifndef ONCE_CORE_ABOUT_H
#define ONCE_CORE_ABOUT_H

#include <once/once.h>

#define ONCE__HOLDER_MAX 64
#define ONCE__ABOUT_MAX  512 /* what a store must take, whatever the version */

typedef struct once__about {
    once_slice_t description; /* UTF-8 without control characters, like the holder */
    once_slice_t holder;      /* host:process */
    const uint8_t *subject;   /* ONCE_SUBJECT_SIZE bytes; NULL: none */
} once__about_t;

/* Room for the bytes, with a description of this length. */
#define ONCE__ABOUT_ROOM(description_len)                                                          \
    (2 + ONCE__HOLDER_MAX + ONCE_SUBJECT_SIZE + (description_len))

/* Writes the bytes. Returns their length. What is too long is cut between characters; what no terminal should see becomes `?`. */
size_t once__about_write(uint8_t *out, const once__about_t *about);

/*
 * Reads what a store had; pointers point into `bytes`. ONCE_E_CORRUPT: these are not such bytes, and `about` is empty. It is
 * empty, too, if a newer version wrote them.
 */
int once__about_read(once__about_t *about, once_slice_t bytes);

/* Could it have been stored: UTF-8 without control characters? */
int once__about_is_clean(once_slice_t text);

/* Text for people, as it is stored: at most `max` bytes, cut and cleaned in the same way. Returns its length. */
size_t once__about_clean(char *out, size_t max, once_slice_t text);

#endif
