/*
 * Tests with processes: forked, so that they share nothing but the store.
 *
 * Two pipes per child. On `from` the child writes one byte at every pause and its report at the end; on `to` it waits to be
 * let go. A child that is killed leaves an end of file.
 */
#include "conformance/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEYS 24

enum { REPORTED_GRANTS, REPORTED_EFFECTS, REPORTED_TOTAL };

typedef struct report {
    uint64_t reported[ONCE__REPORTED];
    once_conformance_result_t result;
    char reason[ONCE__REASON_SIZE];
} report_t;

/* The suite includes nothing of the library but its public headers, so it has its own loops around read and write. */
static int read_all(int fd, void *out, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, (char *)out + done, len - done);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return -1;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_all(int fd, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, (const char *)data + done, len - done);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return -1;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void needs_processes(once__test_t *t)
{
    if (t->run->is_memory) {
        once__test_not_applicable(t, "memory: is private to the process");
    }
    if (t->run->options.open != NULL) {
        once__test_not_applicable(t, "the handles are opened by the caller, not by URL");
    }
}

/* ------------------------------------------------------------------------------------------------------------- child */

static void run_child(once__test_t *t, once__process_t *self, unsigned number,
                      void (*body)(once__test_t *t, once__process_t *self, unsigned number))
{
    report_t report;
    jmp_buf place;

    memset(&report, 0, sizeof(report));
    once__test_exit = &place;
    if (setjmp(place) == 0) {
        body(t, self, number);
    }
    while (t->peers != NULL) {
        once__peer_close(t->peers);
    }
    memcpy(report.reported, self->reported, sizeof(report.reported));
    report.result = t->result;
    memcpy(report.reason, t->reason, sizeof(report.reason));
    _exit(write_all(self->from, &report, sizeof(report)) == 0 ? 0 : 1);
}

static void pause_here(once__test_t *t, once__process_t *self)
{
    char byte = 1;

    CHECK(write_all(self->from, &byte, 1) == 0);
    CHECK(read_all(self->to, &byte, 1) == 0);
}

/* ------------------------------------------------------------------------------------------------------------ parent */

static void start(once__test_t *t, once__process_t *process, unsigned number,
                  void (*body)(once__test_t *t, once__process_t *self, unsigned number))
{
    int from[2], to[2];

    CHECK(t->peers == NULL);
    CHECK(t->child_count < ONCE__PROCESSES_MAX);
    memset(process, 0, sizeof(*process));
    CHECK(pipe(from) == 0);
    CHECK(pipe(to) == 0);
    process->pid = (int)fork();
    CHECK(process->pid >= 0);
    if (process->pid == 0) {
        t->child_count = 0;
        (void)close(from[0]);
        (void)close(to[1]);
        process->from = from[1];
        process->to = to[0];
        run_child(t, process, number, body);
    }
    (void)close(from[1]);
    (void)close(to[0]);
    process->from = from[0];
    process->to = to[1];
    t->children[t->child_count++] = *process;
}

static void await_pause(once__test_t *t, once__process_t *process)
{
    char byte;

    if (read_all(process->from, &byte, 1) != 0) {
        FAIL("process %d ended before its time", process->pid);
    }
}

static void let_go(once__test_t *t, once__process_t *process)
{
    char byte = 1;

    CHECK(write_all(process->to, &byte, 1) == 0);
}

static int bury(once__test_t *t, const once__process_t *process)
{
    int status = 0;

    for (unsigned i = 0; i < t->child_count; i++) {
        if (t->children[i].pid == process->pid) {
            t->children[i] = t->children[--t->child_count];
        }
    }
    (void)close(process->from);
    (void)close(process->to);
    while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static void kill_process(once__test_t *t, once__process_t *process)
{
    CHECK(kill(process->pid, SIGKILL) == 0);
    (void)bury(t, process);
}

void once__process_kill_all(once__test_t *t)
{
    while (t->child_count > 0) {
        once__process_t child = t->children[0];
        (void)kill(child.pid, SIGKILL);
        (void)bury(t, &child);
    }
}

static void end(once__test_t *t, once__process_t *process)
{
    report_t report;
    int complete = read_all(process->from, &report, sizeof(report)) == 0;
    int status = bury(t, process);

    if (!complete) {
        FAIL("process %d ended without a report (wait status %d)", process->pid, status);
    }
    memcpy(process->reported, report.reported, sizeof(process->reported));
    if (report.result != ONCE_CONFORMANCE_PASSED) {
        once__test_note(t, report.result, report.reason);
        once__test_leave();
    }
}

static const char *key_name(char out[16], unsigned key)
{
    (void)snprintf(out, 16, "key %u", key);
    return out;
}

/* ------------------------------------------------------------------------------------------------------------ sharing */

static void write_one(once__test_t *t, once__process_t *self, unsigned number)
{
    once__asked_t ask = {.key = "k"};
    once_response_t response = once__response(201, "from another process");
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, &response));
    self->reported[REPORTED_EFFECTS] = 1;
}

static void shared_store(once__test_t *t)
{
    once__asked_t ask = {.key = "k"}, other = {.key = "k", .bytes = {"other", 5}};
    once_response_t response = once__response(201, "from another process");
    once__process_t child;
    once__peer_t *a;

    needs_processes(t);
    start(t, &child, 0, write_one);
    end(t, &child);
    CHECK_EQ(1, child.reported[REPORTED_EFFECTS]);
    a = once__peer_open(t, "");
    EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
    SAME_RESPONSE(&response, a);
    EXPECT(ONCE_OUTCOME_MISMATCH, once__peer_begin(a, &other));
}

/* -------------------------------------------------------------------------------------------------------------- races */

/* Goes through the keys until each of them is completed; dies and lags on the way where `mortal`. */
static void work(once__test_t *t, once__process_t *self, unsigned number, const char *policy,
                 int mortal)
{
    once__peer_t *peer = once__peer_open(t, "");
    uint64_t random = once__test_seed(t, number);

    pause_here(t, self);
    for (unsigned key = 0; key < KEYS;) {
        char name[16];
        once__asked_t ask = {.key = key_name(name, key), .policy = policy};
        int outcome = once__peer_begin(peer, &ask);
        uint64_t fate = mortal ? once__test_random(&random) % 6 : 5;

        if (outcome == ONCE_OUTCOME_BUSY) {
            once__test_wait(t, 10);
        } else if (outcome != ONCE_OUTCOME_RUN) {
            EXPECT(ONCE_OUTCOME_REPLAY, outcome);
            key++;
        } else if (fate == 0) {
            self->reported[REPORTED_GRANTS]++;
            once__peer_drop(peer);
        } else {
            self->reported[REPORTED_GRANTS]++;
            once__test_wait(t, fate == 1 ? 70 : 0);
            outcome = once__peer_complete(peer, NULL);
            self->reported[REPORTED_EFFECTS] += outcome == ONCE_OUTCOME_DONE;
            self->reported[REPORTED_TOTAL] += outcome == ONCE_OUTCOME_DONE ? key + 1 : 0;
            if (outcome != ONCE_OUTCOME_DONE) {
                EXPECT(ONCE_OUTCOME_LOST, outcome);
            }
        }
    }
}

static void work_immortal(once__test_t *t, once__process_t *self, unsigned number)
{
    work(t, self, number, LONG "recover=hold", 0);
}

static void work_mortal(once__test_t *t, once__process_t *self, unsigned number)
{
    work(t, self, number, SHORT "recover=retry", 1);
}

static void run_race(once__test_t *t, uint64_t sums[ONCE__REPORTED],
                     void (*body)(once__test_t *t, once__process_t *self, unsigned number))
{
    unsigned count = once__test_processes(t);
    once__process_t *children = once__test_alloc(t, count * sizeof(*children));

    for (unsigned i = 0; i < count; i++) {
        start(t, &children[i], i, body);
    }
    for (unsigned i = 0; i < count; i++) {
        await_pause(t, &children[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        let_go(t, &children[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        end(t, &children[i]);
        for (unsigned n = 0; n < ONCE__REPORTED; n++) {
            sums[n] += children[i].reported[n];
        }
    }
}

/* Every key is completed; returns what the epochs of all of them add up to. Removes what the children made. */
static uint64_t sum_epochs(once__test_t *t)
{
    once__peer_t *a = once__peer_open(t, "");
    uint64_t epochs = 0;

    for (unsigned key = 0; key < KEYS; key++) {
        char name[16], token[ONCE_TOKEN_SIZE];
        once__asked_t ask = {.key = key_name(name, key)};
        EXPECT(ONCE_OUTCOME_REPLAY, once__peer_begin(a, &ask));
        epochs += once__peer_epoch(a);
        once_record_token(a->record, token);
        EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, token, 0));
    }
    return epochs;
}

static void one_run(once__test_t *t)
{
    uint64_t sums[ONCE__REPORTED] = {0};

    needs_processes(t);
    run_race(t, sums, work_immortal);
    CHECK_EQ(KEYS, sums[REPORTED_GRANTS]);
    CHECK_EQ(KEYS, sums[REPORTED_EFFECTS]);
    CHECK_EQ(sums[REPORTED_GRANTS], sum_epochs(t));
}

static void mortal(once__test_t *t)
{
    uint64_t sums[ONCE__REPORTED] = {0};

    needs_processes(t);
    run_race(t, sums, work_mortal);
    CHECK_EQ(KEYS, sums[REPORTED_EFFECTS]);
    CHECK_EQ(KEYS * (KEYS + 1) / 2, sums[REPORTED_TOTAL]);
    /* More than were reported: the library releases a grant that comes after half of such a short lease. */
    CHECK(sum_epochs(t) >= sums[REPORTED_GRANTS]);
}

/* ------------------------------------------------------------------------------------------------------------- killed */

static void claim_and_pause(once__test_t *t, once__process_t *self, unsigned number)
{
    once__asked_t ask = {.key = number == 0 ? "retry" : "hold",
                         .policy = number == 0 ? SHORT "recover=retry" : SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, "");

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    pause_here(t, self);
}

/* A holder that is killed at its work: nothing is lost, nothing is locked, nothing is assumed. */
static void killed(once__test_t *t)
{
    once__asked_t retry = {.key = "retry"}, hold = {.key = "hold"};
    once__process_t children[2];
    once__peer_t *a;

    needs_processes(t);
    for (unsigned i = 0; i < 2; i++) {
        start(t, &children[i], i, claim_and_pause);
        await_pause(t, &children[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        kill_process(t, &children[i]);
    }
    a = once__peer_open(t, "");
    once__peer_wait_lease(a, &retry);
    once__peer_wait_lease(a, &hold);
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &retry));
    CHECK_EQ(2, once__peer_epoch(a));
    EXPECT(ONCE_OUTCOME_UNKNOWN, once__peer_begin(a, &hold));
    once_record_token(once__peer_record(a), a->token);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, NULL, 1));
}

static void write_forever(once__test_t *t, once__process_t *self, unsigned number)
{
    once__peer_t *a = once__peer_open(t, "");

    pause_here(t, self);
    for (unsigned i = 0;; i++) {
        char name[32];
        once__asked_t ask = {.key = name};
        (void)snprintf(name, sizeof(name), "doomed %u.%u", number, i);
        EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
        EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, NULL, 0));
    }
}

/* Killed in the middle of writing, again and again: the others go on, and read what they wrote. */
static void killed_while_writing(once__test_t *t)
{
    uint64_t random = once__test_seed(t, 0);
    once__process_t survivor;

    needs_processes(t);
    start(t, &survivor, 0, work_immortal);
    await_pause(t, &survivor);
    for (unsigned i = 0; i < 8; i++) {
        once__process_t child;
        start(t, &child, i, write_forever);
        await_pause(t, &child);
        let_go(t, &child);
        once__test_wait(t, 5 + once__test_random(&random) % 40);
        kill_process(t, &child);
    }
    let_go(t, &survivor);
    end(t, &survivor);
    CHECK_EQ(KEYS, survivor.reported[REPORTED_EFFECTS]);
    CHECK_EQ(KEYS, sum_epochs(t));
}

const once__case_t once__process_cases[] = {
    {"process-shares-the-store", "what one process completes, another replays", shared_store},
    {"process-race", "each key runs once, in one of the processes", one_run},
    {"process-race-mortal-holders", "retry: one effect per key, totals add up", mortal},
    {"process-killed-holder", "retry takes over, hold says unknown", killed},
    {"process-killed-while-writing", "the others go on", killed_while_writing},
    {0},
};
