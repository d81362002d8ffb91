/*
 * A store of many records whose writer is killed: opening it again, rebuilding its index, and looking records up in it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../bench.h"
#include "cost.h"
#include "load.h"
#include "report.h"
#include "sections.h"
#include "store/local/decide.h"
#include "store/local/directory.h"

#define LOOKUPS 20000
#define FILL    4096

/* ------------------------------------------------------------------------------------------------------------- killed */

/* Starts another process that writes to the store and kills it when it is in the middle of that. */
static void write_and_be_killed(const settings_t *settings, const char *path, uint64_t first)
{
    char number[32], ready;
    int out[2];
    pid_t child;

    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)first);
    if (pipe(out) != 0 || (child = fork()) < 0) {
        perror("bench_local");
        exit(2);
    }
    if (child == 0) {
        (void)dup2(out[1], STDOUT_FILENO);
        (void)close(out[0]);
        (void)execl(settings->program, settings->program, "--child", "write", path, number,
                    (char *)NULL);
        _exit(127);
    }
    (void)close(out[1]);
    for (int i = 0; i < 3; i++) { /* it tells of every batch */
        if (read(out[0], &ready, 1) != 1) {
            (void)fprintf(stderr, "bench_local: the writer ended by itself\n");
            exit(2);
        }
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    (void)close(out[0]);
}

/* Opens the store; seconds until it is open, and until a new key was granted. */
static void reopen(const char *path, uint64_t key, double *opened, double *granted)
{
    load_t load = {.next = key, .claims_only = 1};
    double start = bench_wall();

    load_open(&load, path, "?reap=off");
    *opened = bench_wall() - start;
    load_run(&load, 1, 1);
    *granted = bench_wall() - start;
    load_close(&load);
}

static void report_reopen(const settings_t *settings, const char *path, uint64_t next)
{
    enum { TIMES = 5 };
    double opened[TIMES], granted[TIMES], worst;

    for (unsigned i = 0; i < TIMES; i++) {
        write_and_be_killed(settings, path, next + i * 10000000u);
        reopen(path, next + i * 10000000u + 5000000u, &opened[i], &granted[i]);
    }
    worst = median(granted, TIMES);
    report("after kill -9: open, and the first claim granted", "< 100 ms",
           worst < 0.1 ? VERDICT_OK : VERDICT_SHORT, "%.1f ms  (open alone %.1f ms)", worst * 1e3,
           median(opened, TIMES) * 1e3);
}

static void report_rebuild(const char *path, uint64_t records)
{
    char index[LOAD_INDEX_ROOM];
    double opened, granted;
    cost_t start, cost;

    if (load_index(index, path) == 0) {
        (void)unlink(index);
    }
    start = cost_now();
    reopen(path, records * 7 + 1, &opened, &granted);
    cost = cost_since(&start);
    report("index made anew from the log, records per second", ">= 1 M",
           (double)records / opened >= 1e6 ? VERDICT_OK : VERDICT_SHORT,
           "%.2f M  (%.2f s; %.2f M per second of CPU)", (double)records / opened / 1e6, opened,
           (double)records / cost.cpu / 1e6);
}

/* ------------------------------------------------------------------------------------------------------------ looking up */

typedef struct asker {
    once_t *once;
    uint64_t records, asked, failed;
    double began;
    double took[LOOKUPS];
} asker_t;

static void ask_again(asker_t *asker);

static void replayed(once_t *once, once_answer_t *answer, void *data)
{
    asker_t *asker = data;

    asker->took[asker->asked++] = bench_wall() - asker->began;
    asker->failed += once_answer_outcome(answer) != ONCE_OUTCOME_REPLAY;
    if (asker->asked < LOOKUPS) {
        ask_again(asker);
    }
}

static void ask_again(asker_t *asker)
{
    char key[LOAD_KEY_SIZE];
    once_ask_t ask = load_ask(key, load_mix(asker->asked) % asker->records);

    asker->began = bench_wall();
    if (once_begin(asker->once, &ask, replayed, asker) != ONCE_OK) {
        asker->failed++;
        asker->asked = LOOKUPS;
    }
}

/* Through the API, one at a time: two threads hand it over, twice. Keeps the ids for the bare look. */
static void look_up_by_api(const char *path, uint64_t records, uint8_t (*ids)[ONCE_ID_SIZE])
{
    static asker_t asker;
    load_t load = {0};

    load_open(&load, path, "?reap=off");
    asker.once = load.once;
    asker.records = records;
    asker.asked = 0;
    ask_again(&asker);
    while (asker.asked < LOOKUPS) {
        (void)once_wait(load.once, -1);
    }
    for (unsigned i = 0; i < LOOKUPS; i++) {
        char key[LOAD_KEY_SIZE];
        once_ask_t ask = load_ask(key, load_mix(i) % records);
        asker.failed += once_record_id_of(load.once, ask.scope, ask.key, ids[i]) != ONCE_OK;
    }
    load_close(&load);
    report("replay through the API, one at a time, p50", "-",
           asker.failed == 0 ? VERDICT_NONE : VERDICT_SHORT, "%.1f us",
           median(asker.took, LOOKUPS) * 1e6);
}

static void set_claim(once__op_t *op, const uint8_t *id, const once__fingerprint_t *fingerprint)
{
    memset(op, 0, sizeof(*op));
    memcpy(op->id, id, ONCE_ID_SIZE);
    op->kind = fingerprint == NULL ? ONCE__OP_GET : ONCE__OP_EVENT;
    if (fingerprint != NULL) {
        op->event.kind = ONCE__CLAIM;
        op->event.lease_ms = 30000;
        op->event.ttl_ms = 86400000;
        op->event.fingerprint_count = 1;
        op->event.fingerprints[0] = *fingerprint;
    }
}

/* What the writer thread does with a claim of a completed record. */
static void look_up_by_store(const char *path, uint8_t (*ids)[ONCE_ID_SIZE])
{
    static double took[LOOKUPS];
    const once__directory_config_t how = {
        .path = path, .disk = &once__real_disk, .timeout_ms = 5000};
    once__log_config_t config;
    once__records_t records = {.rules = &once__rules, .log_config = &config};
    once__directory_t directory;
    unsigned failed = 0;

    if (once__directory_open(&directory, &how, NULL) != ONCE_OK) {
        (void)fprintf(stderr, "bench_local: %s does not open\n", path);
        exit(2);
    }
    config = directory.log;
    config.segment_size = 1 << 20;
    records.index = config.index;
    records.reader = once__reader_open(&config);
    for (unsigned i = 0; i < LOOKUPS; i++) {
        once__op_t op;
        once__fingerprint_t fingerprint;
        double start;
        set_claim(&op, ids[i], NULL);
        (void)once__records_apply(&records, &op);
        fingerprint = op.head.fingerprint;
        free(op.record);
        set_claim(&op, ids[(i + LOOKUPS / 2) % LOOKUPS], &fingerprint);
        start = bench_wall();
        (void)once__records_apply(&records, &op);
        took[i] = bench_wall() - start;
        failed += op.outcome != ONCE_OUTCOME_REPLAY;
        free(op.record);
    }
    once__reader_close(records.reader);
    once__directory_close(&directory);
    report("replay in the store itself, random records in cache, p50", "< 3 us",
           failed == 0 && median(took, LOOKUPS) < 3e-6 ? VERDICT_OK : VERDICT_SHORT, "%.2f us",
           median(took, LOOKUPS) * 1e6);
}

void section_life(const settings_t *settings)
{
    uint8_t(*ids)[ONCE_ID_SIZE] = malloc(LOOKUPS * sizeof(*ids));
    load_t load = {0};
    char path[PATH_ROOM];

    path_of(path, settings, "life");
    load_remove(path);
    load_open(&load, path, "?reap=off");
    load_run(&load, settings->records, FILL);
    load_close(&load);
    report_subject("a store with the records, left by a writer that was killed");
    report_reopen(settings, path, settings->records);
    report_rebuild(path, settings->records);
    look_up_by_api(path, settings->records, ids);
    look_up_by_store(path, ids);
    load_remove(path);
    free(ids);
}
