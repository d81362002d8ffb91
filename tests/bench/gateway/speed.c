/*
 * Guarded requests beside the same requests through nginx alone.
 *
 * Rounds are interleaved: in each, everybody has a turn of the same length, with the same connections and the same upstream.
 * Throughput is reported as the median of the rounds' ratios to bare nginx. CPU is the workers', all threads, as the scheduler
 * counts it; the load and the upstream are other processes. Of CPU per request the best round is taken, bare nginx's too: whoever
 * else uses the machine only ever adds to it.
 */
#include <stdio.h>
#include <string.h>

#include "../bench.h"
#include "../local/cost.h"
#include "../local/report.h"
#include "client.h"
#include "gate.h"
#include "sections.h"

#define ROUNDS_MAX 64
#define POOL       10000 /* keys whose responses are asked for again */

enum { BARE, MEMORY, LOCAL, REPLAY_MEMORY, REPLAY_LOCAL, PLAYERS };

typedef struct player {
    const char *name;
    gate_t *gate;
    uint64_t pool; /* first of the keys that are replayed; 0: no key twice */
    double rate[ROUNDS_MAX], cpu[ROUNDS_MAX];
    times_t times;
} player_t;

/* What is required of a player. */
typedef struct goal {
    unsigned player;
    double cpu, rate;
    const char *what_cpu, *cpu_text, *what_rate, *rate_text;
} goal_t;

static const goal_t goals[] = {
    {MEMORY, 1.4, 0.9, "CPU per request, of bare nginx's: memory store", "<= 1.4",
     "requests/s, of bare nginx's: memory store", "about 0.9"},
    {LOCAL, 1.9, 0.55, "CPU per request: local store, durable", "<= 1.9",
     "requests/s: local store, durable", "about 0.55"},
    {REPLAY_MEMORY, 0.6, 2.2, "CPU per request: replay, memory store", "<= 0.6",
     "requests/s: replay, memory store", "about 2.2"},
    {REPLAY_LOCAL, 0.6, 2.2, "CPU per request: replay, local store", "<= 0.6",
     "requests/s: replay, local store", "about 2.2"},
};

#define GOALS (sizeof(goals) / sizeof(goals[0]))

/* ------------------------------------------------------------------------------------------------------------- turns */

/* Every answer must be right, and the upstream must have seen what it should have: all, or nothing of a replay. */
static void check(settings_t *settings, const char *name, const outcome_t *outcome,
                  uint64_t executed, int replay)
{
    uint64_t expected = replay ? 0 : outcome->sent;

    if (outcome->wrong != 0 || executed != expected ||
        outcome->replayed != outcome->sent - expected) {
        (void)printf("%s: of %llu requests %llu were executed, %llu replayed, %llu answered "
                     "otherwise\n",
                     name, (unsigned long long)outcome->sent, (unsigned long long)executed,
                     (unsigned long long)outcome->replayed, (unsigned long long)outcome->wrong);
        settings->troubles++;
    }
}

static order_t order_of(const player_t *player)
{
    order_t order = {.first = player->pool, .keys = POOL};

    if (player->pool == 0) {
        order.first = next_keys((uint64_t)1 << 24);
        order.keys = 0;
    }
    return order;
}

/* One request on each connection first: both sides' connections are open then. */
static void play(settings_t *settings, player_t *player, unsigned connections, unsigned round)
{
    client_t *client = client_open(player->gate->port, connections);
    order_t order = order_of(player);
    outcome_t outcome;
    uint64_t executed;
    double cpu;

    order.requests = connections;
    (void)client_run(client, &order);
    order = order_of(player);
    order.seconds = settings->seconds;
    order.times = &player->times;
    executed = atomic_load(&settings->upstream.board->executed);
    cpu = gate_cpu(player->gate);
    outcome = client_run(client, &order);
    cpu = gate_cpu(player->gate) - cpu;
    executed = atomic_load(&settings->upstream.board->executed) - executed;
    client_close(client);
    check(settings, player->name, &outcome, executed, player->pool != 0);
    player->rate[round] = (double)outcome.sent / outcome.seconds;
    player->cpu[round] = cpu / (double)outcome.sent * 1e6;
}

/* Records the responses that will be replayed. */
static uint64_t fill_pool(settings_t *settings, const gate_t *gate)
{
    client_t *client = client_open(gate->port, 64);
    order_t order = {.requests = POOL, .first = next_keys(POOL)};
    uint64_t executed = atomic_load(&settings->upstream.board->executed);
    outcome_t outcome = client_run(client, &order);

    executed = atomic_load(&settings->upstream.board->executed) - executed;
    client_close(client);
    check(settings, gate->name, &outcome, executed, 0);
    return order.first;
}

/* ----------------------------------------------------------------------------------------------------------- results */

static double ratio(const settings_t *settings, const double *a, const double *b)
{
    double values[ROUNDS_MAX];

    for (unsigned i = 0; i < settings->rounds; i++) {
        values[i] = a[i] / b[i];
    }
    return median(values, settings->rounds);
}

static double middle(const settings_t *settings, const double *values)
{
    double copy[ROUNDS_MAX];

    memcpy(copy, values, sizeof(copy));
    return median(copy, settings->rounds);
}

static double best(const settings_t *settings, const double *values)
{
    double least = 0;

    for (unsigned i = 0; i < settings->rounds; i++) {
        bench_keep_best(&least, values[i]);
    }
    return least;
}

static void print_players(const settings_t *settings, player_t *players, unsigned connections)
{
    (void)printf("\n%3u connections      requests/s   p50 ms   p99 ms   CPU us/request   of bare's"
                 "   (%u rounds)\n",
                 connections, settings->rounds);
    for (unsigned i = 0; i < PLAYERS; i++) {
        player_t *player = &players[i];
        (void)printf("%-20s %11.0f %8.2f %8.2f %16.1f %11.2f\n", player->name,
                     middle(settings, player->rate), times_percentile(&player->times, 50) * 1e3,
                     times_percentile(&player->times, 99) * 1e3, best(settings, player->cpu),
                     best(settings, player->cpu) / best(settings, players[BARE].cpu));
    }
    (void)fflush(stdout);
}

/* CPU at 64 connections is what a run fails by; throughput is as much the machine's and the disk's doing. */
static void report_players(const settings_t *settings, const player_t *players,
                           unsigned connections)
{
    static const char *const subjects[] = {"16 connections", "64 connections", "256 connections"};

    report_subject(subjects[connections == 16 ? 0 : connections == 64 ? 1 : 2]);
    for (unsigned i = 0; i < GOALS; i++) {
        const goal_t *goal = &goals[i];
        const player_t *player = &players[goal->player], *bare = &players[BARE];
        double cpu = best(settings, player->cpu) / best(settings, bare->cpu);
        report(goal->what_cpu, connections == 64 ? goal->cpu_text : "reported",
               connections != 64  ? VERDICT_NONE
               : cpu <= goal->cpu ? VERDICT_OK
                                  : VERDICT_SHORT,
               "%.2f  (%.1f us; bare %.1f us)", cpu, best(settings, player->cpu),
               best(settings, bare->cpu));
    }
    for (unsigned i = 0; i < GOALS; i++) {
        const goal_t *goal = &goals[i];
        const player_t *player = &players[goal->player], *bare = &players[BARE];
        double rate = ratio(settings, player->rate, bare->rate);
        report(goal->what_rate, connections == 64 ? goal->rate_text : "reported",
               connections != 64          ? VERDICT_NONE
               : rate >= goal->rate * 0.9 ? VERDICT_OK
                                          : VERDICT_BELOW,
               "%.2f  (%.0f/s; bare %.0f/s)", rate, middle(settings, player->rate),
               middle(settings, bare->rate));
    }
}

void section_speed(settings_t *settings)
{
    static const unsigned connections[] = {16, 64, 256};
    static player_t players[PLAYERS];
    static const char *const names[] = {"bare nginx", "memory store", "local store",
                                        "replay, memory", "replay, local"};
    gate_t bare, memory, local;
    gate_t *const gates[] = {&bare, &memory, &local, &memory, &local};

    gate_start(&bare, settings, "bare", GATE_BARE, 1);
    gate_start(&memory, settings, "memory", GATE_MEMORY, 1);
    gate_start(&local, settings, "local", GATE_LOCAL, 1);
    for (unsigned i = 0; i < PLAYERS; i++) {
        players[i].name = names[i];
        players[i].gate = gates[i];
    }
    players[REPLAY_MEMORY].pool = fill_pool(settings, &memory);
    players[REPLAY_LOCAL].pool = fill_pool(settings, &local);
    for (unsigned c = 0; c < 3; c++) {
        for (unsigned round = 0; round < settings->rounds; round++) {
            for (unsigned i = 0; i < PLAYERS; i++) {
                play(settings, &players[i], connections[c], round);
            }
        }
        print_players(settings, players, connections[c]);
        report_players(settings, players, connections[c]);
        for (unsigned i = 0; i < PLAYERS; i++) {
            times_free(&players[i].times);
        }
    }
    settings->troubles +=
        gate_stop(&bare, settings) + gate_stop(&memory, settings) + gate_stop(&local, settings);
}
