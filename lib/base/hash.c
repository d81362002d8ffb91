/*
 * Chained buckets, as many as a power of two, doubled when there are more items than buckets. Nodes keep their whole hash, so that
 * growing asks nothing of the items and a search compares keys only where all 64 bits are equal.
 *
 * What holds between calls (assert_hash_state):
 *   I-1  there are as many buckets as a power of two
 *   I-2  there are no more items than the maximum
 */
#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 16

static void assert_hash_state(const once__hash_t *table)
{
    assert(table->buckets != NULL && (table->mask & (table->mask + 1)) == 0); /* I-1 */
    assert(table->count <= table->max);                                       /* I-2 */
}

int once__hash_init(once__hash_t *table, size_t max)
{
    *table = (once__hash_t){.mask = BUCKETS_MIN - 1, .max = max};
    table->buckets = calloc(BUCKETS_MIN, sizeof(void *));
    return table->buckets != NULL ? 0 : -1;
}

void once__hash_free(once__hash_t *table)
{
    free(table->buckets);
    memset(table, 0, sizeof(*table));
}

static void push(once__hash_t *table, once__hash_node_t *node)
{
    once__hash_node_t **bucket = &table->buckets[node->hash & table->mask];

    node->next = *bucket;
    *bucket = node;
}

/* If memory is short the chains are longer, that is all. */
static void grow(once__hash_t *table)
{
    once__hash_t bigger = *table;

    bigger.mask = 2 * table->mask + 1;
    bigger.buckets = calloc(bigger.mask + 1, sizeof(void *));
    if (bigger.buckets == NULL) {
        return;
    }
    for (size_t i = 0; i <= table->mask; i++) {
        once__hash_node_t *turned = NULL; /* last one first: pushing keeps the order */
        while (table->buckets[i] != NULL) {
            once__hash_node_t *node = table->buckets[i];
            table->buckets[i] = node->next;
            node->next = turned;
            turned = node;
        }
        while (turned != NULL) {
            once__hash_node_t *next = turned->next;
            push(&bigger, turned);
            turned = next;
        }
    }
    free(table->buckets);
    *table = bigger;
}

int once__hash_add(once__hash_t *table, once__hash_node_t *node, uint64_t hash)
{
    assert_hash_state(table);
    if (table->count >= table->max) {
        return -1;
    }
    if (table->count > table->mask && table->mask < SIZE_MAX / 4 / sizeof(void *)) {
        grow(table);
    }
    node->hash = hash;
    push(table, node);
    table->count++;
    return 0;
}

void once__hash_remove(once__hash_t *table, once__hash_node_t *node)
{
    once__hash_node_t **at = &table->buckets[node->hash & table->mask];

    while (*at != node) {
        assert(*at != NULL);
        at = &(*at)->next;
    }
    *at = node->next;
    node->next = NULL;
    assert(table->count > 0);
    table->count--;
    assert_hash_state(table);
}

static once__hash_node_t *same_from(const once__hash_node_t *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash) {
        node = node->next;
    }
    return (once__hash_node_t *)(uintptr_t)node;
}

once__hash_node_t *once__hash_first(const once__hash_t *table, uint64_t hash)
{
    return table->buckets == NULL ? NULL : same_from(table->buckets[hash & table->mask], hash);
}

once__hash_node_t *once__hash_next(const once__hash_node_t *node)
{
    return same_from(node->next, node->hash);
}

once__hash_node_t *once__hash_each(const once__hash_t *table, const once__hash_node_t *last)
{
    size_t bucket = last == NULL ? 0 : (last->hash & table->mask) + 1;

    if (last != NULL && last->next != NULL) {
        return last->next;
    }
    for (; table->buckets != NULL && bucket <= table->mask; bucket++) {
        if (table->buckets[bucket] != NULL) {
            return table->buckets[bucket];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------- hashes */

typedef struct sip {
    uint64_t v0, v1, v2, v3;
} sip_t;

static uint64_t rotate(uint64_t v, unsigned bits)
{
    return v << bits | v >> (64 - bits);
}

static void sip_rounds(sip_t *s, int count)
{
    while (count-- > 0) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 = rotate(s->v0, 32) + s->v3;
        s->v2 += s->v1;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 = rotate(s->v2, 32);
    }
}

static void sip_word(sip_t *s, uint64_t word)
{
    s->v3 ^= word;
    sip_rounds(s, 2);
    s->v0 ^= word;
}

static uint64_t little_endian(const uint8_t *data, size_t len)
{
    uint64_t word = 0;

    for (size_t i = 0; i < len; i++) {
        word |= (uint64_t)data[i] << 8 * i;
    }
    return word;
}

uint64_t once__hash_data(const once__hash_seed_t *seed, const void *data, size_t len)
{
    sip_t s = {seed->k0 ^ 0x736f6d6570736575u, seed->k1 ^ 0x646f72616e646f6du,
               seed->k0 ^ 0x6c7967656e657261u, seed->k1 ^ 0x7465646279746573u};
    const uint8_t *at = data;
    size_t left = len;

    for (; left >= 8; left -= 8, at += 8) {
        sip_word(&s, little_endian(at, 8));
    }
    sip_word(&s, (uint64_t)len << 56 | little_endian(at, left));
    s.v2 ^= 0xff;
    sip_rounds(&s, 4);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/* The finaliser of SplitMix64: neighbours land far apart. */
uint64_t once__hash_number(uint64_t number)
{
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}
