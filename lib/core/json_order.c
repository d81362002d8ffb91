#include "core/json_order.h"

#include <assert.h>

#include "base/bytes.h"

#define NONE ONCE__JSON_NO_MEMBER

/*
 * Byte order of UTF-8 is the order of code points. UTF-16 differs from it in one place: characters beyond U+FFFF (first byte
 * f0 to f4) are surrogates there, which come before U+E000 to U+FFFF (first byte ee or ef).
 */
static int weight(unsigned char byte)
{
    if (byte >= 0xf0) {
        return byte - 2;
    }
    return byte >= 0xee ? byte + 5 : byte;
}

static unsigned char short_escape(char letter)
{
    switch (letter) {
    case 'b':
        return '\b';
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'f':
        return '\f';
    case 'r':
        return '\r';
    default:
        return (unsigned char)letter; /* " and \ */
    }
}

/* The next byte of a name's canonical text with escapes undone. The only long ones there are \u0000 to \u001f. */
static unsigned char next_byte(const char **at)
{
    const char *p = *at;

    if (p[0] != '\\') {
        *at = p + 1;
        return (unsigned char)p[0];
    }
    if (p[1] != 'u') {
        *at = p + 2;
        return short_escape(p[1]);
    }
    *at = p + 6;
    return (unsigned char)(once__hex_digit(p[4]) << 4 | once__hex_digit(p[5]));
}

static int compare_escaped(const char *a, const char *a_end, const char *b, const char *b_end)
{
    while (a < a_end && b < b_end) {
        int difference = weight(next_byte(&a)) - weight(next_byte(&b));
        if (difference != 0) {
            return difference;
        }
    }
    return (a < a_end) - (b < b_end);
}

int once__json_name_compare(const char *text, const once__json_member_t *a,
                            const once__json_member_t *b)
{
    const char *x = text + a->name, *y = text + b->name;
    size_t shorter = a->name_len < b->name_len ? a->name_len : b->name_len;

    if (a->escaped || b->escaped) {
        return compare_escaped(x, x + a->name_len, y, y + b->name_len);
    }
    for (size_t i = 0; i < shorter; i++) {
        if (x[i] != y[i]) {
            return weight((unsigned char)x[i]) - weight((unsigned char)y[i]);
        }
    }
    return (a->name_len > shorter) - (b->name_len > shorter);
}

typedef struct sorter {
    const char *text;
    once__json_member_t *members;
    int duplicate;
} sorter_t;

static int compare(sorter_t *sorter, uint32_t a, uint32_t b)
{
    int order = once__json_name_compare(sorter->text, &sorter->members[a], &sorter->members[b]);

    /* Two equal names are neighbours in the end, and no sort can place neighbours without comparing them. */
    sorter->duplicate |= order == 0;
    return order;
}

/* Merges two lists, neither empty. */
static uint32_t merge(sorter_t *sorter, uint32_t a, uint32_t b)
{
    once__json_member_t *members = sorter->members;
    once__json_member_t head = {.next = NONE}, *last = &head;

    while (a != NONE && b != NONE) {
        uint32_t *from = compare(sorter, a, b) <= 0 ? &a : &b;
        last->next = *from;
        last = &members[*from];
        *from = last->next;
    }
    last->next = a != NONE ? a : b;
    return head.next;
}

/* Links the members from `first` on that are in order already; returns the index after them. */
static uint32_t link_run(sorter_t *sorter, uint32_t first, uint32_t count)
{
    once__json_member_t *members = sorter->members;
    uint32_t i = first;

    for (; i + 1 < count && compare(sorter, i, i + 1) < 0; i++) {
        members[i].next = i + 1;
    }
    members[i].next = NONE;
    return i + 1;
}

uint32_t once__json_sort(const char *text, once__json_member_t *members, size_t count)
{
    sorter_t sorter = {text, members, 0};
    uint32_t lists[32]; /* lists[i] is empty or merged from 2^i runs */
    unsigned used = 0;

    assert(count > 0 && count < NONE);
    for (uint32_t at = 0; at < count;) {
        uint32_t list = at;
        unsigned i = 0;
        at = link_run(&sorter, at, (uint32_t)count);
        for (; i < used && lists[i] != NONE; i++) {
            list = merge(&sorter, lists[i], list);
            lists[i] = NONE;
        }
        if (i == used) {
            used++;
        }
        lists[i] = list;
    }
    uint32_t all = NONE;
    for (unsigned i = 0; i < used; i++) {
        if (lists[i] != NONE) {
            all = all == NONE ? lists[i] : merge(&sorter, lists[i], all);
        }
    }
    return sorter.duplicate ? NONE : all;
}
