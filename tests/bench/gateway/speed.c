/*
 * Guarded requests beside the same requests through nginx alone.
 *
 * Throughput is reported as the median of the rounds' ratios to bare nginx. CPU is the workers', all threads, as the scheduler
 * counts it; the load and the upstream are other processes. Of CPU per request the best round is taken, bare nginx's too: other
 * users of the machine only ever add to it.
 */
#include "../local/report.h"
#include "players.h"

enum { BARE, MEMORY, LOCAL, REPLAY_MEMORY, REPLAY_LOCAL, PLAYERS };

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

void section_speed(settings_t *settings)
{
    static const unsigned connections[] = {16, 64, 256};
    static const char *const subjects[] = {"16 connections", "64 connections", "256 connections"};
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
    players[REPLAY_MEMORY].pool = players_pool(settings, &memory);
    players[REPLAY_LOCAL].pool = players_pool(settings, &local);
    for (unsigned c = 0; c < 3; c++) {
        players_run(settings, players, PLAYERS, connections[c]);
        report_subject(subjects[c]);
        players_report(settings, players, goals, GOALS, connections[c] == 64);
        players_forget(players, PLAYERS);
    }
    settings->troubles +=
        gate_stop(&bare, settings) + gate_stop(&memory, settings) + gate_stop(&local, settings);
}
