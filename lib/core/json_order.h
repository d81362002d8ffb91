/*
 * The order of an object's members: by the UTF-16 code units of their names.
 */
#ifndef ONCE_CORE_JSON_ORDER_H
#define ONCE_CORE_JSON_ORDER_H

#include <stddef.h>
#include <stdint.h>

#define ONCE__JSON_NO_MEMBER 0x7fffffffu

/* A member in canonical text, by offsets. */
typedef struct once__json_member {
    uint32_t name; /* its first byte, after the quote */
    uint32_t name_len;
    uint32_t end;         /* the first byte after the value */
    uint32_t next : 31;   /* in order; set by once__json_sort */
    uint32_t escaped : 1; /* the name has a backslash */
} once__json_member_t;

/* < 0, 0, > 0. Names are in canonical text: 0 means the same name. */
int once__json_name_compare(const char *text, const once__json_member_t *a,
                            const once__json_member_t *b);

/*
 * Links `count` (1 or more) members in order; returns the index of the first, ONCE__JSON_NO_MEMBER when two have the same
 * name. Merge sort: O(count log count) comparisons in any order, `count` if they are already sorted.
 */
uint32_t once__json_sort(const char *text, once__json_member_t *members, size_t count);

#endif
