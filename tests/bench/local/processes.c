/*
 * Several processes on one store, and what this program does as one of them.
 */
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

#define PROCESSES 4
#define INFLIGHT  128
#define SHARED    1000 /* keys */
#define BATCHES   120  /* pairs of batches, of all together */

typedef struct result {
    double start, end, cpu;
} result_t;

/* --------------------------------------------------------------------------------------------------------- as a child */

/* Writes until it is killed; a byte for each few batches. */
static int child_write(const char *path, uint64_t first)
{
    load_t load = {.next = first};

    load_open(&load, path, "?reap=off");
    for (;;) {
        load_run(&load, 1024, INFLIGHT);
        if (write(STDOUT_FILENO, "", 1) != 1) {
            return 0;
        }
    }
}

/* Says that it is ready, waits for the others, writes, and tells how it went. */
static int child_pairs(const char *path, uint64_t first, uint64_t pairs, uint64_t shared)
{
    load_t load = {.next = first, .shared = shared};
    result_t result;
    cost_t start, cost;
    char go;

    load_open(&load, path, "?reap=off");
    load_run(&load, INFLIGHT, INFLIGHT);
    if (write(STDOUT_FILENO, "", 1) != 1 || read(STDIN_FILENO, &go, 1) != 1) {
        return 1;
    }
    start = cost_now();
    load_run(&load, pairs, INFLIGHT);
    cost = cost_since(&start);
    result.start = start.seconds;
    result.end = start.seconds + cost.seconds;
    result.cpu = cost.cpu;
    load_close(&load);
    return write(STDOUT_FILENO, &result, sizeof(result)) == sizeof(result) ? 0 : 1;
}

int child_main(char **arguments)
{
    if (strcmp(arguments[0], "write") == 0) {
        return child_write(arguments[1], strtoull(arguments[2], NULL, 10));
    }
    return child_pairs(arguments[1], strtoull(arguments[2], NULL, 10),
                       strtoull(arguments[3], NULL, 10), strtoull(arguments[4], NULL, 10));
}

/* -------------------------------------------------------------------------------------------------------- as a parent */

typedef struct child {
    pid_t pid;
    int in, out;
} child_t;

static void start_child(const settings_t *settings, const char *path, uint64_t first,
                        uint64_t pairs, uint64_t shared, child_t *child)
{
    char key[32], count[32], keys[32];
    int in[2], out[2];

    (void)snprintf(key, sizeof(key), "%llu", (unsigned long long)first);
    (void)snprintf(count, sizeof(count), "%llu", (unsigned long long)pairs);
    (void)snprintf(keys, sizeof(keys), "%llu", (unsigned long long)shared);
    if (pipe(in) != 0 || pipe(out) != 0 || (child->pid = fork()) < 0) {
        perror("bench_local");
        exit(2);
    }
    if (child->pid == 0) {
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)close(in[1]);
        (void)close(out[0]);
        (void)execl(settings->program, settings->program, "--child", "pairs", path, key, count,
                    keys, (char *)NULL);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    child->in = in[1];
    child->out = out[0];
}

static void expect(int ok)
{
    if (!ok) {
        (void)fprintf(stderr, "bench_local: a child did not do its work\n");
        exit(2);
    }
}

/* Pairs per second of `count` processes together; `cpu` per pair. */
static double run_children(const settings_t *settings, const char *path, unsigned count,
                           uint64_t shared, uint64_t *next, double *cpu)
{
    uint64_t pairs = (uint64_t)BATCHES * INFLIGHT / count;
    result_t all = {0, 0, 0}, one;
    child_t children[PROCESSES];
    char ready;

    for (unsigned i = 0; i < count; i++) {
        start_child(settings, path, *next, pairs, shared, &children[i]);
        *next += pairs + INFLIGHT;
    }
    for (unsigned i = 0; i < count; i++) {
        expect(read(children[i].out, &ready, 1) == 1);
    }
    for (unsigned i = 0; i < count; i++) {
        expect(write(children[i].in, "", 1) == 1);
    }
    for (unsigned i = 0; i < count; i++) {
        expect(read(children[i].out, &one, sizeof(one)) == sizeof(one));
        all.start = i == 0 || one.start < all.start ? one.start : all.start;
        all.end = one.end > all.end ? one.end : all.end;
        all.cpu += one.cpu;
        (void)waitpid(children[i].pid, NULL, 0);
        (void)close(children[i].in);
        (void)close(children[i].out);
    }
    *cpu = all.cpu / (double)(pairs * count) * 1e6;
    return (double)(pairs * count) / (all.end - all.start);
}

/* Four processes against one, in turns. `shared` keys of all; 0: each has its own. */
static void compare(const settings_t *settings, uint64_t shared, const char *what)
{
    enum { ROUNDS = 7 };
    double rates[ROUNDS], cpus[ROUNDS], one_cpu[ROUNDS], bytes[ROUNDS], ratio;
    char path[PATH_ROOM], segments[PATH_ROOM + 16];
    uint64_t next = 0, before = 0;

    path_of(path, settings, "processes");
    (void)snprintf(segments, sizeof(segments), "%s/segments", path);
    load_remove(path);
    for (unsigned i = 0; i < ROUNDS; i++) {
        double four = run_children(settings, path, PROCESSES, shared, &next, &cpus[i]), one;
        uint64_t between = bytes_in(segments), after;
        one = run_children(settings, path, 1, shared, &next, &one_cpu[i]);
        after = bytes_in(segments);
        rates[i] = four / one;
        cpus[i] /= one_cpu[i];
        bytes[i] = (double)(between - before) / (double)(after - between);
        before = after;
    }
    ratio = median(rates, ROUNDS);
    report(what, ">= 1", ratio >= 1 ? VERDICT_OK : VERDICT_SHORT,
           "%.2f  (CPU per pair %.2f, bytes %.2f)", ratio, median(cpus, ROUNDS),
           median(bytes, ROUNDS));
    load_remove(path);
}

void section_processes(const settings_t *settings)
{
    report_subject("4 processes, 128 in flight in each, of one process");
    compare(settings, 0, "pairs/s in total, each with keys of its own");
    compare(settings, SHARED, "claims and releases/s in total, of 1000 keys that they share");
}
