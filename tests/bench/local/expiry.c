/*
 * Expiring everything: each file is read once, and dropped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../bench.h"
#include "cost.h"
#include "load.h"
#include "report.h"
#include "sections.h"

static void reap(once_t *once, uint64_t *count)
{
    once_answer_t *answer;

    if (once_store_reap_sync(once, 0, &answer) != ONCE_OK) {
        (void)fprintf(stderr, "bench_local: reaping failed\n");
        exit(2);
    }
    *count += once_answer_count(answer);
    once_answer_free(answer);
}

void section_expiry(const settings_t *settings)
{
    load_t load = {0};
    char path[PATH_ROOM];
    uint64_t went = 0;
    char segments[PATH_ROOM + 16];
    cost_t start, cost;
    double log;

    path_of(path, settings, "expiry");
    (void)snprintf(segments, sizeof(segments), "%s/segments", path);
    load_remove(path);
    load_open(&load, path, "?reap=off&ttl=1s&lease=3s");
    load_run(&load, settings->records, 4096);
    load_close(&load);
    (void)usleep(4100000); /* the retention itself, and the leases of the claims */
    load_open(&load, path, "?reap=off");
    load_run(&load, 1, 1); /* what a first write needs anyway */
    log = (double)bytes_in(segments);
    start = cost_now();
    reap(load.once, &went);
    cost = cost_since(&start);
    load_close(&load);
    report_subject("expiring all records");
    report("records that went", "all", went >= settings->records ? VERDICT_OK : VERDICT_SHORT,
           "%llu in %.1f ms, CPU %.1f ms", (unsigned long long)went, cost.seconds * 1e3,
           cost.cpu * 1e3);
    report("bytes read and written, of those of the log", "<= 1.1",
           (double)cost.bytes <= 1.1 * log ? VERDICT_OK : VERDICT_SHORT, "%.2f  (%llu bytes)",
           (double)cost.bytes / log, (unsigned long long)cost.bytes);
    load_remove(path);
}
