/*
 * Processes of a test: forked, so that they share nothing but the store.
 *
 * Two pipes per child. On `from` the child writes one byte at every pause and its report at the end; on `to` it waits to be
 * let go. A child that is killed leaves an end of file.
 */
#include "conformance/test.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct report {
    uint64_t told[ONCE__TOLD];
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

void once__test_needs_processes(once__test_t *t)
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
    memcpy(report.told, self->told, sizeof(report.told));
    report.result = t->result;
    memcpy(report.reason, t->reason, sizeof(report.reason));
    _exit(write_all(self->from, &report, sizeof(report)) == 0 ? 0 : 1);
}

void once__process_pause(once__test_t *t, once__process_t *self)
{
    char byte = 1;

    CHECK(write_all(self->from, &byte, 1) == 0);
    CHECK(read_all(self->to, &byte, 1) == 0);
}

/* ------------------------------------------------------------------------------------------------------------ parent */

void once__process_start(once__test_t *t, once__process_t *process, unsigned number,
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

void once__process_await(once__test_t *t, once__process_t *process)
{
    char byte;

    if (read_all(process->from, &byte, 1) != 0) {
        FAIL("process %d ended before its time", process->pid);
    }
}

void once__process_go(once__test_t *t, once__process_t *process)
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

void once__process_kill(once__test_t *t, once__process_t *process)
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

void once__process_end(once__test_t *t, once__process_t *process)
{
    report_t report;
    int complete = read_all(process->from, &report, sizeof(report)) == 0;
    int status = bury(t, process);

    if (!complete) {
        FAIL("process %d ended without a report (wait status %d)", process->pid, status);
    }
    memcpy(process->told, report.told, sizeof(process->told));
    if (report.result != ONCE_CONFORMANCE_PASSED) {
        once__test_note(t, report.result, report.reason);
        once__test_leave();
    }
}
