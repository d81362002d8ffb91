/*
 * The canonical form of a JSON document (RFC 8785): no spaces, members in the order of their names' UTF-16 code units, one
 * way to write each string and each number.
 *
 * One pass over the document writes the canonical text of each value as it comes. Members of open objects are remembered on a
 * stack; when an object closes and its members did not come in order, they are sorted and its text is rebuilt. So a
 * byte is moved at most twice per level of nesting, the sort is a merge sort, and no document takes more than
 * O(n log n + 64 n). Nothing recurses and nothing is allocated per value: there is one growing text and one growing stack.
 */
#ifndef ONCE_CORE_JSON_H
#define ONCE_CORE_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <once/key.h>

#define ONCE__JSON_DEPTH 64

/* Why a document has no canonical form. */
typedef enum once__json_fault {
    ONCE__JSON_FINE = 0,
    ONCE__JSON_SYNTAX,    /* not a document of RFC 8259 */
    ONCE__JSON_UTF8,      /* a string is not UTF-8 */
    ONCE__JSON_SIZE,      /* over ONCE_BODY_JSON_MAX bytes */
    ONCE__JSON_NESTING,   /* deeper than ONCE__JSON_DEPTH */
    ONCE__JSON_DUPLICATE, /* an object has two members of one name */
    ONCE__JSON_SURROGATE, /* half of a surrogate pair */
    ONCE__JSON_NUMBER,    /* a double cannot hold the number without loss */
    ONCE__JSON_MEMORY,    /* out of memory; says nothing about the document */
} once__json_fault_t;

/* The canonical text, one allocation (free()); NULL and 0 unless ONCE__JSON_FINE is returned. */
once__json_fault_t once__json_canonical(once_slice_t document, char **text, size_t *len);

#endif
