/*
 * `once gate` is stopped, reloaded or killed: nothing is lost, nothing is done twice, nothing is left behind.
 */
#include "gateway.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAYMENT "{\"amount\": 4200}"

/* INT and QUIT let the request that is there end; its answer is sent and recorded. */
static void ending_waits_for_requests(void **state)
{
    static const int signals[] = {SIGQUIT, SIGINT};
    gateway_t *g = *state;

    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? "slow-0" : "slow-1";
        reply_t reply;
        int fd;
        gateway_start(g, NULL, NULL);
        process_expect(&g->gate, "once gate: ready\n");
        fd = request_send(g->port, "/payments?delay=700", key, PAYMENT);
        process_expect(&g->backend, key); /* it has been forwarded */
        assert_int_equal(kill(g->gate.pid, signals[i]), 0);
        reply = request_receive(fd);
        assert_int_equal(reply.status, 201);
        gateway_stop(g, 0, 0);
    }
    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_has(request(g->port, "/payments?delay=700", "slow-1", PAYMENT).text,
               "Idempotent-Replayed");
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 2);
}

/* The second INT does not wait, and neither does TERM: what was forwarded is in doubt, and is not forwarded again under hold. */
static void ending_at_once(void **state)
{
    gateway_t *g = *state;
    reply_t reply;
    int fd;

    gateway_start(g, "--set", "once_recover hold", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    fd = request_send(g->port, "/payments?delay=60000", "slow", PAYMENT);
    process_expect(&g->backend, "key slow");
    assert_int_equal(kill(g->gate.pid, SIGINT), 0);
    process_expect(&g->gate, "once gate: stopping as soon as");
    gateway_stop(g, SIGINT, 0);
    close(fd);
    gateway_start(g, "--set", "once_recover hold", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    reply = request(g->port, "/payments?delay=60000", "slow", PAYMENT);
    assert_int_equal(reply.status, 409);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 1);
}

/* HUP starts new workers and loses nothing. */
static void reloading_keeps_serving(void **state)
{
    gateway_t *g = *state;
    reply_t reply;
    int fd;

    gateway_start(g, "--set", "error_log stderr notice", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "before", PAYMENT).status, 201);
    fd = request_send(g->port, "/payments?delay=500", "during", PAYMENT);
    process_expect(&g->backend, "key during");
    assert_int_equal(kill(g->gate.pid, SIGHUP), 0);
    reply = request_receive(fd);
    assert_int_equal(reply.status, 201);
    assert_has(request(g->port, "/payments", "before", PAYMENT).text, "Idempotent-Replayed");
    assert_int_equal(request(g->port, "/payments", "after", PAYMENT).status, 201);
    gateway_stop(g, SIGTERM, 0);
    assert_int_equal(executions(g), 3);
}

/* Opens the one private directory that is there. */
static int open_folder(const gateway_t *g)
{
    char pattern[128];
    glob_t found;
    int fd;

    snprintf(pattern, sizeof(pattern), "%s/once-gate-*", g->scratch);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    fd = open(found.gl_pathv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    globfree(&found);
    return fd;
}

/* nginx does not outlive a gate that is killed; the next one can listen there, and removes what the first has left. */
static void a_killed_gate_takes_nginx_along(void **state)
{
    gateway_t *g = *state;
    int folder;

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    folder = open_folder(g);
    kill(g->gate.pid, SIGKILL);
    assert_int_equal(process_wait(&g->gate), -SIGKILL);
    while (is_answered(g->port)) { /* until the system has ended it */
    }
    assert_int_equal(flock(folder, LOCK_EX), 0); /* and all of its processes */
    close(folder);
    assert_int_equal(count_names(g->scratch), 1);
    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    gateway_stop(g, SIGTERM, 0);
}

/* What a gate uses, what is not a gate's, and what is just being made is left alone by the next one. */
static void directories_in_use_stay(void **state)
{
    gateway_t *g = *state;
    gateway_t other = *g;
    char path[160];

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    snprintf(path, sizeof(path), "%s/once-gate-new", g->scratch);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/once-gate-file", g->scratch);
    write_text(path, "a file");
    snprintf(path, sizeof(path), "%s/once-gate-open", g->scratch);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof(path), "%s/once-gate-open/nginx.conf", g->scratch);
    write_text(path, "somebody's own");
    assert_int_equal(count_names(g->scratch), 4);
    other.port = free_port();
    snprintf(other.listen, sizeof(other.listen), "127.0.0.1:%d", other.port);
    gateway_start(&other, NULL, NULL);
    process_expect(&other.gate, "once gate: ready\n");
    assert_int_equal(count_names(g->scratch), 5);
    kill(other.gate.pid, SIGTERM);
    assert_int_equal(process_wait(&other.gate), 0);
    assert_int_equal(count_names(g->scratch), 4);
    assert_int_equal(request(g->port, "/payments", "a", PAYMENT).status, 201);
    kill(g->gate.pid, SIGTERM);
    assert_int_equal(process_wait(&g->gate), 0);
    assert_int_equal(count_names(g->scratch), 3);
}

#define PAIRS 16
#define FILES 100

static void make_files(const char *path)
{
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < FILES; i++) {
        char name[200];
        snprintf(name, sizeof(name), "%s/%d", path, i);
        write_text(name, "");
    }
}

/* What a worker that was taken over could do: directories become links to another's, and directories again. */
static pid_t exchange_for_ever(const char *folder)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid != 0) {
        return pid;
    }
    for (int i = 0;; i = (i + 1) % PAIRS) {
        char name[160], link[160];
        snprintf(name, sizeof(name), "%s/body%d", folder, i);
        snprintf(link, sizeof(link), "%s/link%d", folder, i);
        renameat2(AT_FDCWD, name, AT_FDCWD, link, RENAME_EXCHANGE);
    }
}

/* Temporary files lie in directories of the workers' user, and root may be the one that removes them: it goes through no link. */
static void nothing_else_is_removed(void **state)
{
    gateway_t *g = *state;
    char left[128], path[160], victim[128];
    pid_t pid;

    snprintf(victim, sizeof(victim), "%s/victim", g->place.top);
    make_files(victim);
    snprintf(left, sizeof(left), "%s/once-gate-left", g->scratch);
    assert_int_equal(mkdir(left, 0700), 0);
    snprintf(path, sizeof(path), "%s/nginx.conf", left);
    write_text(path, "of a gate that was killed");
    for (int i = 0; i < PAIRS; i++) {
        snprintf(path, sizeof(path), "%s/body%d", left, i);
        make_files(path);
        snprintf(path, sizeof(path), "%s/link%d", left, i);
        assert_int_equal(symlink(victim, path), 0);
    }
    pid = exchange_for_ever(left);
    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(count_names(victim), FILES);
    kill(g->gate.pid, SIGTERM);
    assert_int_equal(process_wait(&g->gate), 0);
}

static pid_t master_of(const gateway_t *g)
{
    char pattern[128];
    glob_t found;
    char pid[32] = "";
    int fd;

    snprintf(pattern, sizeof(pattern), "%s/once-gate-*/nginx.pid", g->scratch);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    fd = open(found.gl_pathv[0], O_RDONLY);
    assert_true(read(fd, pid, sizeof(pid) - 1) > 0);
    close(fd);
    globfree(&found);
    return atoi(pid);
}

/* Workers of a master that is gone must not go on without it. */
static void a_killed_nginx_ends_the_gate(void **state)
{
    gateway_t *g = *state;

    gateway_start(g, NULL, NULL);
    process_expect(&g->gate, "once gate: ready\n");
    assert_int_equal(kill(master_of(g), SIGKILL), 0);
    assert_int_equal(process_wait(&g->gate), ONCE__CLI_STORE);
    assert_has(g->gate.text, "nginx was killed by signal 9");
    assert_int_equal(count_names(g->scratch), 0);
    assert_false(is_answered(g->port));
}

/* Of the master; how many. */
static int workers_of(pid_t master, pid_t workers[8])
{
    char path[64];
    int count = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)master, (int)master);
    file = fopen(path, "r");
    assert_non_null(file);
    while (count < 8 && fscanf(file, "%d", &workers[count]) == 1) {
        count++;
    }
    fclose(file);
    return count;
}

/* Until those of before are gone, and the others there. */
static void reload(const gateway_t *g)
{
    pid_t master = master_of(g), before[8], after[8];

    while (workers_of(master, before) != 2) {
        usleep(10000); /* one of them answers before the other is there */
    }
    kill(g->gate.pid, SIGHUP);
    do {
        usleep(10000);
    } while (workers_of(master, after) != 2 || after[0] == before[0] || after[0] == before[1] ||
             after[1] == before[0] || after[1] == before[1]);
}

/* Nor when no master is left to stop them: also not those of a reload. */
static void workers_end_when_all_above_are_killed(void **state)
{
    gateway_t *g = *state;
    int folder;

    gateway_start(g, "--workers", "2", NULL);
    process_expect(&g->gate, "once gate: ready\n");
    reload(g);
    folder = open_folder(g);
    kill(g->gate.pid, SIGSTOP); /* so that it does not tell them */
    assert_int_equal(kill(master_of(g), SIGKILL), 0);
    kill(g->gate.pid, SIGKILL);
    assert_int_equal(process_wait(&g->gate),
                     -SIGKILL); /* the log's pipe ends with the last of them */
    while (is_answered(g->port)) {
    }
    assert_int_equal(flock(folder, LOCK_EX), 0);
    close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GATEWAY(ending_waits_for_requests),
        WITH_GATEWAY(ending_at_once),
        WITH_GATEWAY(reloading_keeps_serving),
        WITH_GATEWAY(a_killed_gate_takes_nginx_along),
        WITH_GATEWAY(directories_in_use_stay),
        WITH_GATEWAY(nothing_else_is_removed),
        WITH_GATEWAY(nothing_else_is_removed),
        WITH_GATEWAY(a_killed_nginx_ends_the_gate),
        WITH_GATEWAY(workers_end_when_all_above_are_killed),
    };
    unsetenv("ONCE_STORE");
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
