/*
 * Entries of the audit trail: what people have decided about records (docs/decisions/audit-trail.md).
 *
 * An entry is one line of text, NUMBER PREV HASH JSON: numbers count from 1, PREV is the HASH of the entry before it (64 zeros for
 * the first), and HASH is SHA-256 of "NUMBER PREV JSON". A store keeps lines in their order and does not look into them.
 */
#ifndef ONCE_CORE_AUDIT_H
#define ONCE_CORE_AUDIT_H

#include <once/audit.h>

#include "core/hmac.h"
#include "core/record.h"

#define ONCE__AUDIT_LINE_MAX                                                                       \
    8192 /* bytes of a line without its end; more than all texts of an entry, escaped */
#define ONCE__AUDIT_STEP 65536 /* bytes of lines that a store returns at once, about */

/* Where an entry belongs. */
typedef struct once__audit_link {
    uint64_t number;
    uint8_t prev[ONCE__SHA256_SIZE];
    uint8_t hash[ONCE__SHA256_SIZE];
} once__audit_link_t;

/* What an entry says. Texts that are NULL or empty, numbers that are 0 and pointers that are NULL are left out. */
typedef struct once__audit_words {
    uint64_t time_ms; /* Unix time */
    once_slice_t by;
    const char *act;  /* "settle completed", "purge", ... */
    const char *step; /* "intent" or "result" */
    uint64_t of;      /* result: the number of its intent */
    const uint8_t *record;
    const uint8_t *scope_hash;
    const once__claim_ref_t *claim;
    const char *from, *to; /* states */
    once_slice_t object;   /* what else it is about */
    once_slice_t result;
    once_slice_t note;
} once__audit_words_t;

/* Writes the line of an entry behind `last` (number 0: the first), and its link. Returns its length. */
size_t once__audit_write(char line[ONCE__AUDIT_LINE_MAX + 1], const once__audit_words_t *words,
                         const once__audit_link_t *last, once__audit_link_t *link);

/* Reads a line. Returns 0, or -1 if it is not an entry. `json` points into it. Whether HASH is right: once__audit_is_whole. */
int once__audit_read(const char *line, size_t len, once__audit_link_t *link, once_slice_t *json);
int once__audit_is_whole(const once__audit_link_t *link, once_slice_t json);

/*
 * The same for the line behind the entry of `link`, which becomes that of the line in any case, so that the trail goes on behind
 * it. What is not an entry has the number that it begins with, if that is larger, or the next one, and SHA-256 of its bytes as
 * its hash; `json` is all of it.
 */
int once__audit_follow(const char *line, size_t len, once__audit_link_t *link, once_slice_t *json);

/*
 * For stores that keep the trail as text: where its last line begins (0 if there is none), and how much of it is whole lines, if
 * `len` bytes are there. Each line ends with a newline.
 */
size_t once__audit_last_line(const char *text, size_t len);
size_t once__audit_whole_lines(const char *text, size_t len);

#endif
