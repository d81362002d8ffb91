/*
 * The same as speed.c with stores that are servers, which run on the same machine: Redis without persistence, and PostgreSQL that
 * syncs what it commits. They must have been started (scripts/bench does); without one its part is left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../local/report.h"
#include "players.h"

#define CONNECTIONS 64

enum { BARE, FIRST, REPLAY, PLAYERS };

/* The process whose number stands in the first line of a file. */
static pid_t read_pid(const char *directory, const char *name)
{
    char path[600];
    int pid = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", directory != NULL ? directory : "", name);
    file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &pid) != 1) {
            pid = 0;
        }
        (void)fclose(file);
    }
    return pid;
}

static void compare(settings_t *settings, gate_kind_t kind, const char *const *names, pid_t server,
                    const goal_t goals[2])
{
    static player_t players[PLAYERS];
    gate_t bare, gate;

    memset(players, 0, sizeof(players));
    gate_start(&bare, settings, names[0], GATE_BARE, 1);
    gate_start(&gate, settings, names[1], kind, 1);
    for (unsigned i = 0; i < PLAYERS; i++) {
        players[i] = (player_t){.name = names[i + 2], .gate = i == BARE ? &bare : &gate};
        players[i].server = i == BARE ? 0 : server;
    }
    players[REPLAY].pool = players_pool(settings, &gate);
    players_run(settings, players, PLAYERS, CONNECTIONS);
    players_report(settings, players, goals, 2, 1);
    players_forget(players, PLAYERS);
    settings->troubles += gate_stop(&bare, settings) + gate_stop(&gate, settings);
}

void section_redis(settings_t *settings)
{
    static const char *const names[] = {"bare-r", "redis", "bare nginx", "redis store",
                                        "replay, redis"};
    static const goal_t goals[] = {{FIRST, 0, 0.5, "CPU per request, of bare nginx's: redis store",
                                    "", "requests/s, of bare nginx's: redis store", ">= 0.5"},
                                   {REPLAY, 0, 0.8, "CPU per request: replay, redis store", "",
                                    "requests/s: replay, redis store", ">= 0.8"}};
    char pid[64];

    if (getenv("ONCE_REDIS_URL") == NULL) {
        (void)printf("no Redis was started: left out\n");
        return;
    }
    (void)snprintf(pid, sizeof(pid), "%.20s.pid", getenv("ONCE_REDIS_PORT"));
    report_subject("64 connections, Redis on the same machine");
    compare(settings, GATE_REDIS, names, read_pid(getenv("ONCE_REDIS_DIR"), pid), goals);
}

void section_postgres(settings_t *settings)
{
    static const char *const names[] = {"bare-p", "postgres", "bare nginx", "postgres store",
                                        "replay, postgres"};
    static const goal_t goals[] = {{FIRST, 0, 0.3,
                                    "CPU per request, of bare nginx's: postgres store", "",
                                    "requests/s, of bare nginx's: postgres store", ">= 0.3"},
                                   {REPLAY, 0, 0, "CPU per request: replay, postgres store", "",
                                    "requests/s: replay, postgres store", ""}};

    if (getenv("ONCE_PG_GATEWAY_URL") == NULL) {
        (void)printf("no PostgreSQL was started: left out\n");
        return;
    }
    report_subject("64 connections, PostgreSQL on the same machine");
    compare(settings, GATE_POSTGRES, names, read_pid(getenv("ONCE_PG_DIR"), "data/postmaster.pid"),
            goals);
}
