/*
 * Players that take turns with the same load: in each round each has a turn of the same length, with the same connections and
 * the same upstream. The first of them is bare nginx, with which the others are compared.
 */
#ifndef TESTS_BENCH_GATEWAY_PLAYERS_H
#define TESTS_BENCH_GATEWAY_PLAYERS_H

#include "gate.h"
#include "sections.h"
#include "times.h"

#define ROUNDS_MAX 64

typedef struct player {
    const char *name;
    gate_t *gate;
    uint64_t pool; /* first of the keys that are replayed; 0: no key twice */
    pid_t server;  /* the store's; 0: it has none */
    double rate[ROUNDS_MAX], cpu[ROUNDS_MAX], server_cpu[ROUNDS_MAX];
    times_t times;
} player_t;

/* What is required of a player, of what bare nginx has. CPU is what a run fails by; throughput is as much the machine's doing. */
typedef struct goal {
    unsigned player;
    double cpu, rate; /* 0: only told */
    const char *what_cpu, *cpu_text, *what_rate, *rate_text;
} goal_t;

/* Records the responses that will be replayed, and gives the first of their keys. */
uint64_t players_pool(settings_t *settings, const gate_t *gate);

/* All rounds, then the table. */
void players_run(settings_t *settings, player_t *players, unsigned count, unsigned connections);

/* Rows of the table at the end. Without `required` everything is only told. */
void players_report(const settings_t *settings, const player_t *players, const goal_t *goals,
                    unsigned count, int required);

void players_forget(player_t *players, unsigned count); /* the times of answers */

#endif
