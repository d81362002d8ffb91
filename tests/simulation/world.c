#include "world.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_SIZE  (64 * 1024)
#define START_MS    1000000u
#define CLOCK_START 1700000000000

struct event {
    uint64_t time, sequence;
    event_fn fire;
    void *data;
};

struct block {
    block_t *next;
    size_t used, size;
    max_align_t bytes[];
};

static void *need(void *pointer)
{
    if (pointer == NULL) {
        fprintf(stderr, "simulate: out of memory\n");
        exit(2);
    }
    return pointer;
}

world_t *world_new(uint64_t seed, const broken_t *broken, counters_t *counters)
{
    world_t *world = need(calloc(1, sizeof(*world)));

    world->seed = seed;
    world->broken = broken;
    world->counters = counters;
    world->now = START_MS;
    world->clock_offset = world->clock_highest = CLOCK_START;
    world->trace_hash = 14695981039346656037u;
    prng_seed(&world->prng, seed);
    plan_draw(&world->plan, &world->prng);
    return world;
}

void world_free(world_t *world)
{
    while (world->blocks != NULL) {
        block_t *next = world->blocks->next;
        free(world->blocks);
        world->blocks = next;
    }
    free(world->heap);
    free(world);
}

void *world_alloc(world_t *world, size_t size)
{
    block_t *block = world->blocks;
    void *memory;

    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (block == NULL || block->size - block->used < size) {
        size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        block = need(malloc(sizeof(*block) + room));
        block->next = world->blocks;
        block->used = 0;
        block->size = room;
        world->blocks = block;
    }
    memory = (char *)block->bytes + block->used;
    block->used += size;
    return memset(memory, 0, size);
}

/* ----------------------------------------------------------------------------------------------------------- events */

static int is_before(const event_t *a, const event_t *b)
{
    return a->time != b->time ? a->time < b->time : a->sequence < b->sequence;
}

void world_after(world_t *world, uint64_t ms, event_fn fire, void *data)
{
    event_t event = {world->now + ms, world->sequence++, fire, data};
    size_t i = world->heap_count++;

    if (i == world->heap_room) {
        world->heap_room = world->heap_room == 0 ? 256 : world->heap_room * 2;
        world->heap = need(realloc(world->heap, world->heap_room * sizeof(event_t)));
    }
    while (i > 0 && is_before(&event, &world->heap[(i - 1) / 2])) {
        world->heap[i] = world->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    world->heap[i] = event;
}

uint64_t world_next(const world_t *world)
{
    return world->heap_count > 0 ? world->heap[0].time : UINT64_MAX;
}

static event_t take_first(world_t *world)
{
    event_t first = world->heap[0];
    event_t last = world->heap[--world->heap_count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < world->heap_count) {
        if (child + 1 < world->heap_count &&
            is_before(&world->heap[child + 1], &world->heap[child])) {
            child++;
        }
        if (!is_before(&world->heap[child], &last)) {
            break;
        }
        world->heap[i] = world->heap[child];
        i = child;
    }
    world->heap[i] = last;
    return first;
}

void world_fire_next(world_t *world)
{
    event_t event = take_first(world);

    if (event.time > world->now) {
        world->now = event.time;
        world->turns = 0;
    }
    event.fire(event.data);
}

uint64_t world_store_clock(const world_t *world)
{
    return (uint64_t)((int64_t)world->now + world->clock_offset);
}

/* ------------------------------------------------------------------------------------------------------------ trace */

static void put_line(world_t *world, int key, const char *text)
{
    char line[600];
    char name[16] = "";
    int len;

    if (key >= 0) {
        (void)snprintf(name, sizeof(name), "key %d", key);
    }
    len = snprintf(line, sizeof(line), "%7u ms  %-6s %s\n", (unsigned)(world->now - START_MS), name,
                   text);
    len = len < (int)sizeof(line) ? len : (int)sizeof(line) - 1;
    for (int i = 0; i < len; i++) {
        world->trace_hash = (world->trace_hash ^ (unsigned char)line[i]) * 1099511628211u;
    }
    if (world->out != NULL) {
        (void)fwrite(line, 1, (size_t)len, world->out);
    }
}

void world_say(world_t *world, int key, const char *format, ...)
{
    char text[500];
    va_list args;

    if (!world->tracing) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    put_line(world, key, text);
}

void world_violate(world_t *world, int key, const char *property, const char *format, ...)
{
    va_list args;

    if (world->property[0] != '\0') {
        return;
    }
    (void)snprintf(world->property, sizeof(world->property), "%s", property);
    va_start(args, format);
    (void)vsnprintf(world->violation, sizeof(world->violation), format, args);
    va_end(args);
    world->violated_key = key;
    world_say(world, key, "VIOLATED %s: %s", world->property, world->violation);
}
