#include "players.h"

#include <stdio.h>
#include <string.h>

#include "../bench.h"
#include "../local/cost.h"
#include "../local/report.h"
#include "client.h"

#define POOL 10000 /* keys whose responses are asked for again */

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
    double cpu, server;

    order.requests = connections;
    (void)client_run(client, &order);
    order = order_of(player);
    order.seconds = settings->seconds;
    order.times = &player->times;
    executed = atomic_load(&settings->upstream.board->executed);
    server = process_cpu(player->server);
    cpu = gate_cpu(player->gate);
    outcome = client_run(client, &order);
    cpu = gate_cpu(player->gate) - cpu;
    server = process_cpu(player->server) - server;
    executed = atomic_load(&settings->upstream.board->executed) - executed;
    client_close(client);
    check(settings, player->name, &outcome, executed, player->pool != 0);
    player->rate[round] = (double)outcome.sent / outcome.seconds;
    player->cpu[round] = cpu / (double)outcome.sent * 1e6;
    player->server_cpu[round] = server / (double)outcome.sent * 1e6;
}

uint64_t players_pool(settings_t *settings, const gate_t *gate)
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

static void print_players(const settings_t *settings, player_t *players, unsigned count,
                          unsigned connections)
{
    (void)printf("\n%3u connections      requests/s   p50 ms   p99 ms   CPU us/request   of bare's"
                 "   the server's   (%u rounds)\n",
                 connections, settings->rounds);
    for (unsigned i = 0; i < count; i++) {
        player_t *player = &players[i];
        (void)printf("%-20s %11.0f %8.2f %8.2f %16.1f %11.2f", player->name,
                     middle(settings, player->rate), times_percentile(&player->times, 50) * 1e3,
                     times_percentile(&player->times, 99) * 1e3, best(settings, player->cpu),
                     best(settings, player->cpu) / best(settings, players[0].cpu));
        if (player->server != 0) {
            (void)printf(" %14.1f", best(settings, player->server_cpu));
        }
        (void)printf("\n");
    }
    (void)fflush(stdout);
}

void players_run(settings_t *settings, player_t *players, unsigned count, unsigned connections)
{
    for (unsigned round = 0; round < settings->rounds; round++) {
        for (unsigned i = 0; i < count; i++) {
            play(settings, &players[i], connections, round);
        }
    }
    print_players(settings, players, count, connections);
}

static void report_cpu(const settings_t *settings, const player_t *players, const goal_t *goal,
                       int required)
{
    const player_t *player = &players[goal->player];
    double mine = best(settings, player->cpu), bare = best(settings, players[0].cpu);

    required = required && goal->cpu > 0;
    report(goal->what_cpu, required ? goal->cpu_text : "reported",
           !required                  ? VERDICT_NONE
           : mine / bare <= goal->cpu ? VERDICT_OK
                                      : VERDICT_SHORT,
           "%.2f  (%.1f us; bare %.1f us)", mine / bare, mine, bare);
}

static void report_rate(const settings_t *settings, const player_t *players, const goal_t *goal,
                        int required)
{
    const player_t *player = &players[goal->player];
    double rate = ratio(settings, player->rate, players[0].rate);

    required = required && goal->rate > 0;
    report(goal->what_rate, required ? goal->rate_text : "reported",
           !required            ? VERDICT_NONE
           : rate >= goal->rate ? VERDICT_OK
                                : VERDICT_BELOW,
           "%.2f  (%.0f/s; bare %.0f/s)", rate, middle(settings, player->rate),
           middle(settings, players[0].rate));
}

void players_report(const settings_t *settings, const player_t *players, const goal_t *goals,
                    unsigned count, int required)
{
    for (unsigned i = 0; i < count; i++) {
        report_cpu(settings, players, &goals[i], required);
    }
    for (unsigned i = 0; i < count; i++) {
        report_rate(settings, players, &goals[i], required);
    }
}

void players_forget(player_t *players, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        times_free(&players[i].times);
    }
}
