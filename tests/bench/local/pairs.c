/*
 * Durable pairs: throughput and CPU beside the limit and beside libraries; on a store with many records and on an empty one.
 *
 * Rounds are interleaved: everybody does the same amount of work in each, in turn, on the same disk. What is reported is the
 * median of the rounds' ratios, so that a disk that slows down for a while slows everybody.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contest.h"
#include "cost.h"
#include "load.h"
#include "report.h"
#include "sections.h"

#define ROUNDS_MAX 64
#define BATCHES    30   /* pairs of batches in a round */
#define FILL       4096 /* in flight while records are only put in */
#define FEW        8u   /* in flight while measuring */
#define MANY       128u

enum { LIMIT_WRITE, LIMIT_MAP, ONCE, ONCE_EMPTY, SQLITE, LMDB, CONTESTANTS };

typedef struct player {
    const contestant_t *kind;
    contestant_t *self;
    int filled; /* has the records */
    double rate[ROUNDS_MAX], cpu[ROUNDS_MAX];
    uint64_t syncs;
} player_t;

typedef struct contest {
    const settings_t *settings;
    int alone; /* without the libraries: they take long to be filled */
    player_t players[CONTESTANTS];
    uint64_t empty_index, full_index; /* bytes of it before the first record, and at the end */
    uint64_t fill_bytes; /* of the log after filling, which is done with many more in flight */
} contest_t;

/* -------------------------------------------------------------------------------------------------- what a pair takes */

static double bytes_per_ask(const settings_t *settings, int claims_only)
{
    enum { ASKS = 50000 };
    load_t load = {.claims_only = claims_only};
    char path[PATH_ROOM], segments[PATH_ROOM + 16];
    double bytes;

    path_of(path, settings, "sizes");
    (void)snprintf(segments, sizeof(segments), "%s/segments", path);
    load_open(&load, path, "?reap=off&lease=1h");
    load_run(&load, ASKS, MANY);
    load_close(&load);
    bytes = (double)bytes_in(segments) / ASKS;
    load_remove(path);
    return bytes;
}

static void find_sizes(const settings_t *settings)
{
    double claim = bytes_per_ask(settings, 1), pair = bytes_per_ask(settings, 0);

    contest_claim_bytes = (uint32_t)(claim + 0.5);
    contest_completion_bytes = (uint32_t)(pair - claim + 0.5);
    (void)printf("a claim takes %u bytes in the log, its completion %u\n", contest_claim_bytes,
                 contest_completion_bytes);
}

/* ------------------------------------------------------------------------------------------------------------- rounds */

static void open_players(contest_t *contest)
{
    static const contestant_t *const kinds[] = {&contest_limit_write, &contest_limit_map,
                                                &contest_once,        &contest_once,
                                                &contest_sqlite,      &contest_lmdb};
    static const char *const names[] = {"limit-write", "limit-map", "once",
                                        "once-empty",  "sqlite",    "lmdb"};

    for (unsigned i = 0; i < CONTESTANTS; i++) {
        player_t *player = &contest->players[i];
        char path[PATH_ROOM];
        player->kind = kinds[i];
        if (contest->alone && i > ONCE_EMPTY) {
            continue;
        }
        if (player->kind->name == NULL) {
            (void)printf("%s: not built in (its -dev package was missing), not compared\n",
                         names[i]);
            continue;
        }
        path_of(path, contest->settings, names[i]);
        remove_tree(path);
        player->self = player->kind->open(player->kind, path);
        player->filled = i == ONCE || i == SQLITE || i == LMDB;
    }
}

static uint64_t filled(const contest_t *contest)
{
    return (contest->settings->records + FILL - 1) / FILL * FILL;
}

static void fill_players(contest_t *contest)
{
    uint64_t pairs = filled(contest);

    for (unsigned i = 0; i < CONTESTANTS; i++) {
        player_t *player = &contest->players[i];
        cost_t start = cost_now(), cost;
        if (player->self == NULL || !player->filled) {
            continue;
        }
        player->self->run(player->self, pairs, FILL);
        cost = cost_since(&start);
        (void)printf("%-20s filled with %llu records in %.1f s, %.1f us of CPU each\n",
                     player->kind->name, (unsigned long long)pairs, cost.seconds,
                     cost.cpu / (double)pairs * 1e6);
        (void)fflush(stdout);
    }
}

static void play(contest_t *contest, unsigned batch)
{
    uint64_t pairs = (uint64_t)BATCHES * batch;

    for (unsigned round = 0; round < contest->settings->rounds; round++) {
        for (unsigned i = 0; i < CONTESTANTS; i++) {
            player_t *player = &contest->players[i];
            cost_t start = cost_now(), cost;
            if (player->self == NULL) {
                continue;
            }
            player->self->run(player->self, pairs, batch);
            cost = cost_since(&start);
            player->rate[round] = (double)pairs / cost.seconds;
            player->cpu[round] = cost.cpu / (double)pairs * 1e6;
            player->syncs = (round == 0 ? 0 : player->syncs) + cost.syncs;
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------- results */

/* The median of the rounds' ratios. */
static double ratio(const contest_t *contest, const double *a, const double *b)
{
    double values[ROUNDS_MAX];

    for (unsigned i = 0; i < contest->settings->rounds; i++) {
        values[i] = a[i] / b[i];
    }
    return median(values, contest->settings->rounds);
}

static double middle(const contest_t *contest, const double *values)
{
    double copy[ROUNDS_MAX];

    memcpy(copy, values, sizeof(copy));
    return median(copy, contest->settings->rounds);
}

static void print_players(const contest_t *contest, unsigned batch)
{
    (void)printf("\n%u in flight                 pairs/s   CPU us/pair   (medians of %u rounds)\n",
                 batch, contest->settings->rounds);
    for (unsigned i = 0; i < CONTESTANTS; i++) {
        const player_t *player = &contest->players[i];
        if (player->self != NULL) {
            (void)printf("%-28s %9.0f %10.2f %s\n", player->kind->name,
                         middle(contest, player->rate), middle(contest, player->cpu),
                         i == ONCE_EMPTY ? " (begun empty)" : "");
        }
    }
    (void)fflush(stdout);
}

/* Throughput depends on what the disk does that minute: it is printed, and the run does not fail by it. */
static verdict_t told(double measured, double wanted)
{
    return measured >= wanted ? VERDICT_OK : VERDICT_BELOW;
}

static void report_libraries(const contest_t *contest, double wanted, const char *required)
{
    const player_t *players = contest->players, *once = &players[ONCE];

    if (players[SQLITE].self != NULL) {
        double times = ratio(contest, once->rate, players[SQLITE].rate);
        report("pairs/s, of SQLite's (WAL, synchronous FULL)", required, told(times, wanted),
               "%.1f  (CPU per pair %.2f)", times, ratio(contest, once->cpu, players[SQLITE].cpu));
    }
    if (players[LMDB].self != NULL) {
        report("pairs/s, of LMDB's", "-", VERDICT_NONE, "%.1f  (CPU per pair %.2f)",
               ratio(contest, once->rate, players[LMDB].rate),
               ratio(contest, once->cpu, players[LMDB].cpu));
    }
}

static void report_pairs(const contest_t *contest, unsigned batch)
{
    const player_t *players = contest->players, *once = &players[ONCE], *limit = players;
    double rate, cpu, syncs, batches = 2.0 * BATCHES * contest->settings->rounds;
    int many = batch == MANY;

    /* The better way to write is the limit. */
    if (middle(contest, players[LIMIT_MAP].cpu) < middle(contest, players[LIMIT_WRITE].cpu)) {
        limit = &players[LIMIT_MAP];
    }
    rate = ratio(contest, once->rate, limit->rate);
    cpu = ratio(contest, once->cpu, limit->cpu);
    syncs = (double)once->syncs / batches;
    report_subject(many ? "128 in flight" : "8 in flight");
    report("pairs/s, of the limit's", many ? "about 0.7" : "about 0.6",
           told(rate, many ? 0.7 : 0.6), "%.2f  (%.0f pairs/s)", rate, middle(contest, once->rate));
    report("CPU per pair, of the limit's", many ? "<= 2" : "-",
           !many        ? VERDICT_NONE
           : cpu <= 2.0 ? VERDICT_OK
                        : VERDICT_SHORT,
           "%.2f  (%.2f us; the limit's %.2f us)", cpu, middle(contest, once->cpu),
           middle(contest, limit->cpu));
    report("syncs per batch", "1", syncs <= 1.02 ? VERDICT_OK : VERDICT_SHORT, "%.3f", syncs);
    report_libraries(contest, many ? 3 : 1.5, many ? ">= 3" : ">= 1.5");
}

/* What a pair costs with all the records there, beside what it costs in a store that was empty. */
static void report_flat(const contest_t *contest)
{
    const player_t *full = &contest->players[ONCE], *empty = &contest->players[ONCE_EMPTY];
    double cpu = ratio(contest, full->cpu, empty->cpu);
    double syncs = (double)full->syncs / (double)empty->syncs;

    report_subject("with the records there, of what it is in a store begun empty");
    report("CPU per pair, 128 in flight", "flat: <= 1.2", cpu <= 1.2 ? VERDICT_OK : VERDICT_SHORT,
           "%.2f", cpu);
    report("syncs per pair", "flat: <= 1.02", syncs <= 1.02 ? VERDICT_OK : VERDICT_SHORT, "%.3f",
           syncs);
}

static double pairs_of_rounds(const contest_t *contest)
{
    return (double)contest->settings->rounds * BATCHES * (FEW + MANY);
}

static uint64_t log_bytes(const contest_t *contest, const char *segments)
{
    char path[PATH_ROOM];

    path_of(path, contest->settings, segments);
    return bytes_in(path);
}

/* After closing. */
static uint64_t index_bytes(const settings_t *settings)
{
    char path[PATH_ROOM], index[LOAD_INDEX_ROOM];

    path_of(path, settings, "once");
    return load_index(index, path) == 0 ? blocks_of(index) : 0;
}

static void report_files(const contest_t *contest)
{
    double keys = (double)filled(contest) + pairs_of_rounds(contest);
    double bytes = (double)(log_bytes(contest, "once/segments") - contest->fill_bytes) /
                   (double)log_bytes(contest, "once-empty/segments");
    double each;

    report("bytes per pair", "flat: <= 1.02", bytes <= 1.02 ? VERDICT_OK : VERDICT_SHORT, "%.3f",
           bytes);
    each = (double)(contest->full_index - contest->empty_index) / keys;
    report_subject("index");
    report("bytes per key (blocks of the file, without those of an empty one)", "<= 24 at 1 M",
           each <= 24       ? VERDICT_OK
           : keys < 1000000 ? VERDICT_NONE /* a page for each shard is much for few keys */
                            : VERDICT_SHORT,
           "%.1f  (an empty index takes %.1f MB)", each, (double)contest->empty_index / 1e6);
}

static void compare(const settings_t *settings, int alone)
{
    static const char *const stores[] = {"once", "once-empty"};
    static contest_t contest;

    memset(&contest, 0, sizeof(contest));
    contest.settings = settings;
    contest.alone = alone;
    find_sizes(settings);
    open_players(&contest);
    contest.empty_index = index_bytes(settings);
    fill_players(&contest);
    contest.fill_bytes = log_bytes(&contest, "once/segments");
    play(&contest, FEW);
    print_players(&contest, FEW);
    report_pairs(&contest, FEW);
    play(&contest, MANY);
    print_players(&contest, MANY);
    report_pairs(&contest, MANY);
    report_flat(&contest);
    contest.full_index = index_bytes(settings);
    for (unsigned i = 0; i < CONTESTANTS; i++) {
        if (contest.players[i].self != NULL) {
            contest.players[i].self->close(contest.players[i].self);
        }
    }
    report_files(&contest);
    for (unsigned i = 0; i < 2; i++) {
        char path[PATH_ROOM];
        path_of(path, settings, stores[i]);
        load_remove(path);
    }
}

void section_pairs(const settings_t *settings)
{
    compare(settings, 0);
}

void section_grow(const settings_t *settings)
{
    compare(settings, 1);
}
