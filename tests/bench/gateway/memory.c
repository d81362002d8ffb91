/*
 * What a request that is under way takes in a worker's memory. Many are held open by an upstream that waits, then all of them
 * are answered at once with 4 KiB each. With the local store all the responses are held then, until it has them; the memory store
 * takes them one by one. Compared is with what nginx alone takes for the same: while the upstream works, and when it has the
 * responses in its buffers because it may not send them yet.
 */
#include <stdio.h>

#include "../local/report.h"
#include "client.h"
#include "gate.h"
#include "sections.h"

#define REQUESTS 2000
#define BODY     4096
#define LIMIT    16384.0

typedef struct watch {
    const settings_t *settings;
    const gate_t *gate;
    double waiting, peak; /* bytes */
} watch_t;

static void look(void *ctx)
{
    watch_t *watch = ctx;
    upstream_board_t *board = watch->settings->upstream.board;
    double now;

    if (atomic_load(&board->hold) && atomic_load(&board->waiting) < REQUESTS) {
        return;
    }
    now = gate_memory(watch->gate).anonymous;
    if (atomic_load(&board->hold)) {
        watch->waiting = now;
        atomic_store(&board->hold, 0);
    }
    if (now > watch->peak) {
        watch->peak = now;
    }
}

/* Bytes per request: while the upstream waits, and at most. */
static void measure(settings_t *settings, const char *name, gate_kind_t kind, double bytes[2])
{
    upstream_board_t *board = settings->upstream.board;
    gate_t gate;
    watch_t watch = {.settings = settings, .gate = &gate};
    order_t order = {
        .requests = REQUESTS, .first = next_keys(REQUESTS), .tick = look, .ctx = &watch};
    unsigned body = atomic_exchange(&board->body, BODY);
    double before;
    client_t *client;
    outcome_t outcome;

    gate_start(&gate, settings, name, kind, 1);
    before = gate_memory(&gate).anonymous;
    atomic_store(&board->hold, 1);
    client = client_open(gate.port, REQUESTS);
    outcome = client_run(client, &order);
    client_close(client);
    settings->troubles += outcome.wrong + gate_stop(&gate, settings);
    atomic_store(&board->body, body);
    bytes[0] = (watch.waiting - before) / REQUESTS;
    bytes[1] = (watch.peak - before) / REQUESTS;
}

static void compare(const char *what, double bytes, double bare)
{
    report(what, "< 16 KiB", bytes - bare < LIMIT ? VERDICT_OK : VERDICT_SHORT,
           "%.1f KiB  (%.1f; bare %.1f)", (bytes - bare) / 1024, bytes / 1024, bare / 1024);
}

void section_memory(settings_t *settings)
{
    double bare[2], slow[2], memory[2], local[2];

    measure(settings, "memory-bare", GATE_BARE, bare);
    measure(settings, "memory-slow", GATE_SLOW, slow);
    measure(settings, "memory-memory", GATE_MEMORY, memory);
    measure(settings, "memory-local", GATE_LOCAL, local);
    report_subject("memory per request under way, beyond bare nginx's; 2000 at once");
    compare("memory store, the upstream works", memory[0], bare[0]);
    compare("memory store, 4 KiB responses come", memory[1], bare[1]);
    compare("local store, the upstream works", local[0], bare[0]);
    compare("local store, 4 KiB responses held, as bare nginx holds them", local[1], slow[1]);
    report("the same, beyond bare nginx that passes them on at once", "reported", VERDICT_NONE,
           "%.1f KiB  (%.1f; bare %.1f)", (local[1] - bare[1]) / 1024, local[1] / 1024,
           bare[1] / 1024);
}
