#include "search.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Where a state was first reached from. */
typedef struct origin {
    uint32_t parent;
    model_move_t move;
} origin_t;

typedef struct search {
    model_t model;
    search_result_t *result;
    model_world_t *states;
    origin_t *origins;
    size_t count, capacity;
    uint32_t *table; /* index + 1 of a state; 0: free */
    size_t table_size;
    uint32_t *edges; /* where each state leads to, state by state; only for liveness */
    size_t edge_count, edge_capacity;
    size_t *first_edge;
    uint32_t current; /* the state being expanded */
    size_t limit;
    int liveness, failed;
} search_t;

static uint64_t hash_of(const model_world_t *world)
{
    const unsigned char *p = (const unsigned char *)world;
    size_t left = sizeof(*world);
    uint64_t hash = 0x9e3779b97f4a7c15u;

    while (left > 0) {
        uint64_t word = 0;
        size_t n = left < sizeof(word) ? left : sizeof(word);
        memcpy(&word, p, n);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        p += n;
        left -= n;
    }
    return hash;
}

static void *grow(search_t *search, void *old, size_t count, size_t size)
{
    void *grown = realloc(old, count * size);

    if (grown == NULL) {
        search->failed = 1;
        return old;
    }
    return grown;
}

static uint32_t *place(const search_t *search, const model_world_t *world)
{
    size_t at = hash_of(world) & (search->table_size - 1);

    while (search->table[at] != 0 &&
           memcmp(&search->states[search->table[at] - 1], world, sizeof(*world)) != 0) {
        at = (at + 1) & (search->table_size - 1);
    }
    return &search->table[at];
}

static void rehash(search_t *search)
{
    size_t size = search->table_size == 0 ? 1 << 12 : search->table_size * 2;
    uint32_t *table = calloc(size, sizeof(*table));

    if (table == NULL) {
        search->failed = 1;
        return;
    }
    free(search->table);
    search->table = table;
    search->table_size = size;
    for (size_t i = 0; i < search->count; i++) {
        *place(search, &search->states[i]) = (uint32_t)i + 1;
    }
}

static void make_room(search_t *search)
{
    if (search->count == search->capacity) {
        search->capacity = search->capacity == 0 ? 1024 : search->capacity * 2;
        search->states = grow(search, search->states, search->capacity, sizeof(*search->states));
        search->origins = grow(search, search->origins, search->capacity, sizeof(*search->origins));
        if (search->liveness) {
            search->first_edge =
                grow(search, search->first_edge, search->capacity + 1, sizeof(*search->first_edge));
        }
    }
    if (search->count * 2 >= search->table_size) {
        rehash(search);
    }
}

/* The state's index; it is added when it is new. */
static uint32_t visit(search_t *search, const model_world_t *world, const model_move_t *move)
{
    uint32_t *slot;

    make_room(search);
    if (search->failed) {
        return 0;
    }
    slot = place(search, world);
    if (*slot == 0) {
        search->states[search->count] = *world;
        search->origins[search->count] = (origin_t){search->current, *move};
        search->count++;
        *slot = (uint32_t)search->count;
    }
    return *slot - 1;
}

/* The moves that led to a state, and one more if it is given. */
static void keep_trace(search_t *search, uint32_t state, const model_move_t *more)
{
    search_result_t *result = search->result;
    size_t steps = more != NULL;

    for (uint32_t at = state; at != 0; at = search->origins[at].parent) {
        steps++;
    }
    result->trace = calloc(steps + 1, sizeof(*result->trace));
    if (result->trace == NULL) {
        search->failed = 1;
        return;
    }
    result->steps = steps;
    if (more != NULL) {
        result->trace[--steps] = *more;
    }
    for (uint32_t at = state; at != 0; at = search->origins[at].parent) {
        result->trace[--steps] = search->origins[at].move;
    }
}

static void emitted(void *data, const model_world_t *next, const model_move_t *move,
                    const char *broken)
{
    search_t *search = data;
    uint32_t to;

    if (search->failed || search->result->broken != NULL) {
        return;
    }
    if (broken != NULL) {
        search->result->broken = broken;
        search->result->last = *next;
        keep_trace(search, search->current, move);
        return;
    }
    to = visit(search, next, move);
    if (search->liveness && to != search->current) {
        if (search->edge_count == search->edge_capacity) {
            search->edge_capacity = search->edge_capacity == 0 ? 4096 : search->edge_capacity * 2;
            search->edges =
                grow(search, search->edges, search->edge_capacity, sizeof(*search->edges));
        }
        if (!search->failed) {
            search->edges[search->edge_count++] = to;
        }
    }
}

static void expand_all(search_t *search)
{
    model_world_t world;
    size_t level_end;

    model_begin(search->model.scenario, &world);
    visit(search, &world, &(model_move_t){0});
    level_end = search->count;
    for (size_t i = 0; i < search->count && !search->failed && search->result->broken == NULL;
         i++) {
        if (i == level_end) {
            search->result->depth++;
            level_end = search->count;
        }
        if (search->limit != 0 && search->count > search->limit) {
            search->result->truncated = 1;
            return;
        }
        search->current = (uint32_t)i;
        if (search->liveness) {
            search->first_edge[i] = search->edge_count;
        }
        world = search->states[i];
        model_moves(&search->model, &world);
    }
}

/* I5. Good: every request was answered, and a new one gets something better than busy. */
static int is_good(search_t *search, const model_world_t *world)
{
    uint8_t outcome;

    for (unsigned i = 0; i < MODEL_SLOTS; i++) {
        if (world->slots[i].phase != MODEL_IDLE) {
            return 0;
        }
    }
    outcome = model_probe(&search->model, world);
    if (outcome == ONCE_OUTCOME_UNKNOWN && world->record.recover == ONCE_RECOVER_HOLD) {
        return world->record.lease == MODEL_LIVE || model_can_settle(&search->model, world);
    }
    return outcome == ONCE_OUTCOME_RUN || outcome == ONCE_OUTCOME_REPLAY;
}

/* Marks backwards from the good states until nothing changes; the first state that stays unmarked is stuck. */
static void find_stuck(search_t *search)
{
    uint8_t *good = calloc(search->count + 1, 1);
    int changed = 1;

    if (good == NULL) {
        search->failed = 1;
        return;
    }
    search->first_edge[search->count] = search->edge_count;
    for (size_t i = 0; i < search->count; i++) {
        good[i] = (uint8_t)is_good(search, &search->states[i]);
    }
    while (changed) {
        changed = 0;
        for (size_t i = search->count; i-- > 0;) {
            for (size_t e = search->first_edge[i]; !good[i] && e < search->first_edge[i + 1]; e++) {
                good[i] = good[search->edges[e]];
                changed |= good[i];
            }
        }
    }
    for (size_t i = 0; i < search->count && search->result->broken == NULL; i++) {
        if (!good[i]) {
            search->result->broken = "I5-stuck";
            search->result->last = search->states[i];
            keep_trace(search, (uint32_t)i, NULL);
        }
    }
    free(good);
}

int search_run(const model_scenario_t *scenario, const search_options_t *options,
               search_result_t *result)
{
    struct timespec begin, end;
    search_t search = {
        .model = {.scenario = scenario,
                  .rules = options->rules,
                  .behaviour = options->behaviour,
                  .harm_only = options->harm_only,
                  .fired = options->fired,
                  .emit = emitted},
        .result = result,
        .limit = options->limit,
        .liveness = options->liveness,
    };

    memset(result, 0, sizeof(*result));
    search.model.data = &search;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    expand_all(&search);
    if (search.liveness && !search.failed && !result->truncated && result->broken == NULL) {
        find_stuck(&search);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    result->states = search.count;
    result->seconds =
        (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    free(search.states);
    free(search.origins);
    free(search.table);
    free(search.edges);
    free(search.first_edge);
    return search.failed ? -1 : 0;
}

void search_free(search_result_t *result)
{
    free(result->trace);
    result->trace = NULL;
}
