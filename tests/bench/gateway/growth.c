/*
 * A worker's memory over many requests: what it needs is there after the first tenth of them. The local store's records are
 * in files, so that nothing of the worker's own should grow. Every second request is a replay.
 */
#include <stdio.h>

#include "../local/report.h"
#include "client.h"
#include "gate.h"
#include "sections.h"

#define CONNECTIONS 64
#define PART        5000 /* requests between a first half and its replay */

static uint64_t run(settings_t *settings, client_t *client, uint64_t requests)
{
    uint64_t done = 0;

    while (done < requests) {
        order_t order = {.requests = PART, .first = next_keys(PART)};
        outcome_t first = client_run(client, &order), second = client_run(client, &order);
        settings->troubles +=
            first.wrong + second.wrong + first.replayed + (second.replayed != second.sent);
        done += first.sent + second.sent;
    }
    return done;
}

void section_growth(settings_t *settings)
{
    static char what[80];
    gate_memory_t early, late;
    uint64_t requests;
    client_t *client;
    double each;
    gate_t gate;

    gate_start(&gate, settings, "growth", GATE_LOCAL, 1);
    client = client_open(gate.port, CONNECTIONS);
    (void)run(settings, client, settings->requests / 10);
    early = gate_memory(&gate);
    requests = run(settings, client, settings->requests - settings->requests / 10);
    late = gate_memory(&gate);
    client_close(client);
    settings->troubles += gate_stop(&gate, settings);
    each = (late.anonymous - early.anonymous) / (double)requests;
    (void)snprintf(what, sizeof(what), "growth over %llu requests, half of them replays",
                   (unsigned long long)requests);
    report_subject(what);
    report("memory of the worker's own, bytes per request", "none: < 1",
           each < 1 ? VERDICT_OK : VERDICT_SHORT, "%.2f  (%.1f MB, before %.1f MB)", each,
           late.anonymous / 1e6, early.anonymous / 1e6);
    report("with the store's files that are mapped", "reported", VERDICT_NONE,
           "%.1f MB, before %.1f MB", late.resident / 1e6, early.resident / 1e6);
}
