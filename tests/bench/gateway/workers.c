/*
 * Two workers against one, on one local store each. Both have the machine for themselves in their turns.
 */
#include <stdio.h>

#include "../local/cost.h"
#include "../local/report.h"
#include "client.h"
#include "gate.h"
#include "sections.h"

#define ROUNDS_MAX  64
#define CONNECTIONS 64

typedef struct result {
    double rate, cpu;
} result_t;

static result_t play(settings_t *settings, const gate_t *gate)
{
    client_t *client = client_open(gate->port, CONNECTIONS);
    order_t order = {.requests = CONNECTIONS, .first = next_keys(CONNECTIONS)};
    outcome_t outcome;
    double cpu;

    (void)client_run(client, &order);
    order = (order_t){.seconds = settings->seconds, .first = next_keys((uint64_t)1 << 24)};
    cpu = gate_cpu(gate);
    outcome = client_run(client, &order);
    cpu = gate_cpu(gate) - cpu;
    client_close(client);
    settings->troubles += outcome.wrong != 0 || outcome.replayed != 0;
    return (result_t){.rate = (double)outcome.sent / outcome.seconds,
                      .cpu = cpu / (double)outcome.sent * 1e6};
}

void section_workers(settings_t *settings)
{
    double rates[ROUNDS_MAX], cpus[ROUNDS_MAX], ones[ROUNDS_MAX], twos[ROUNDS_MAX];
    double rate, cpu;
    gate_t one, two;

    gate_start(&one, settings, "one", GATE_LOCAL, 1);
    gate_start(&two, settings, "two", GATE_LOCAL, 2);
    for (unsigned round = 0; round < settings->rounds; round++) {
        result_t a = play(settings, &one), b = play(settings, &two);
        rates[round] = b.rate / a.rate;
        cpus[round] = b.cpu / a.cpu;
        ones[round] = a.rate;
        twos[round] = b.rate;
    }
    settings->troubles += gate_stop(&one, settings) + gate_stop(&two, settings);
    rate = median(rates, settings->rounds);
    cpu = median(cpus, settings->rounds);
    report_subject("two workers, of one; local store, 64 connections");
    report("requests/s", ">= 1", rate >= 1 ? VERDICT_OK : VERDICT_BELOW, "%.2f  (%.0f/s; %.0f/s)",
           rate, median(twos, settings->rounds), median(ones, settings->rounds));
    report("CPU per request", "reported", VERDICT_NONE, "%.2f", cpu);
}
