/*
 * once gate: staying with nginx until it ends.
 *
 * Signals come through a descriptor, and the log through a pipe: one loop passes both on.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gate/gate.h"
#include "cli/text.h"

#define CHUNK     4096 /* a pipe that can be written to has room for so much: writing never blocks */
#define LOOK_MS   20   /* how often it is looked whether nginx answers by now */
#define LOOKS_MAX 500
#define ENDING_MS 2000 /* how long the rest of the log is waited for when nginx has ended */

typedef struct gate_run {
    once__gate_nginx_t nginx;
    pid_t pid;
    int log;     /* what nginx writes; -1: it has ended */
    int signals; /* signalfd */
    int stopping;
    int interrupted; /* Ctrl-C was seen before */
    int ready;
    int looks;
    int ended;         /* nginx has */
    int status;        /* of waitpid */
    char chunk[CHUNK]; /* of the log, on its way to standard output */
    size_t chunk_len;
} gate_run_t;

static void pass_on(gate_run_t *run, int signal_number)
{
    if (run->pid > 0 && !run->ended) {
        kill(run->pid, signal_number);
    }
}

/* The first Ctrl-C lets requests end, the second does not wait. */
static int meaning(gate_run_t *run, int signal_number)
{
    if (signal_number == SIGINT && run->interrupted) {
        return SIGTERM;
    }
    if (signal_number != SIGTERM && !run->stopping) {
        puts("once gate: stopping as soon as all requests have been answered");
        fflush(stdout);
    }
    run->interrupted |= signal_number == SIGINT;
    return signal_number == SIGINT ? SIGQUIT : signal_number;
}

static void reap(gate_run_t *run)
{
    if (waitpid(run->pid, &run->status, WNOHANG) == run->pid) {
        run->ended = 1;
        /* Workers of a master that was killed would go on for ever, and keep the address. */
        kill(-run->pid, SIGTERM);
    }
}

static void take_signal(gate_run_t *run)
{
    struct signalfd_siginfo info;

    if (read(run->signals, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return;
    }
    if (info.ssi_signo == SIGCHLD) {
        reap(run);
        return;
    }
    if (info.ssi_signo == SIGHUP) {
        /* Before, everything is as new as it can be, and nginx would die of it. */
        if (run->ready || run->looks == LOOKS_MAX) {
            pass_on(run, SIGHUP);
        }
        return;
    }
    pass_on(run, meaning(run, (int)info.ssi_signo));
    run->stopping = 1;
}

static void look(gate_run_t *run)
{
    const once__gate_plan_t *plan = run->nginx.plan;

    run->looks++;
    for (size_t i = 0; i < plan->listen_count; i++) {
        if (!once__gate_answers(&plan->listen[i])) {
            return;
        }
    }
    once__gate_keep_private(plan, &plan->status);
    for (size_t i = 0; i < plan->listen_count; i++) {
        once__gate_keep_private(plan, &plan->listen[i]);
    }
    run->ready = 1;
    puts("once gate: ready");
    fflush(stdout);
}

/* One chunk at a time, and only when it can be written: a reader that is slow must not keep signals waiting. */
static void pump(gate_run_t *run, const struct pollfd *log, const struct pollfd *out)
{
    if (run->chunk_len > 0 && out->revents != 0) {
        ssize_t written = write(STDOUT_FILENO, run->chunk, run->chunk_len);
        if (written < 0 && errno != EAGAIN && errno != EINTR) {
            written = (ssize_t)run->chunk_len; /* nobody reads it any more */
        }
        if (written > 0) {
            run->chunk_len -= (size_t)written;
            memmove(run->chunk, run->chunk + written, run->chunk_len);
        }
    } else if (run->chunk_len == 0 && log->revents != 0) {
        ssize_t got = read(run->log, run->chunk, CHUNK);
        if (got > 0) {
            run->chunk_len = (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            close(run->log);
            run->log = -1;
        }
    }
}

static void turn(gate_run_t *run)
{
    int looking = !run->ready && !run->ended && run->looks < LOOKS_MAX;
    struct pollfd polls[3] = {
        {run->signals, POLLIN, 0},
        {run->chunk_len == 0 ? run->log : -1, POLLIN, 0},
        {run->chunk_len > 0 ? STDOUT_FILENO : -1, POLLOUT, 0},
    };
    int timeout = looking ? LOOK_MS : run->ended ? ENDING_MS : -1;
    int got = poll(polls, 3, timeout);

    if (got == 0 && run->ended && run->log >= 0) {
        close(run->log); /* somebody else holds the pipe */
        run->log = -1;
        run->chunk_len = 0;
    }
    if (got > 0 && polls[0].revents != 0) {
        take_signal(run);
    }
    if (got > 0) {
        pump(run, &polls[1], &polls[2]);
    }
    if (looking && !run->ended) {
        look(run);
    }
}

static int watch_signals(sigset_t *before)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A signal that comes before nginx is prepared for it ends it, too. */
static int was_told_to_end(int status)
{
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status) == 0;
    }
    return WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGQUIT;
}

static int serve(gate_run_t *run)
{
    run->pid = once__gate_start(&run->nginx, 0, &run->log);
    if (run->pid < 0) {
        return ONCE__CLI_STORE;
    }
    setpgid(run->pid, run->pid);
    while (!run->ended || run->log >= 0 || run->chunk_len > 0) {
        turn(run);
    }
    if (run->stopping && was_told_to_end(run->status)) {
        return ONCE__CLI_OK;
    }
    if (WIFEXITED(run->status)) {
        once__cli_say("nginx exited with code %d", WEXITSTATUS(run->status));
    } else {
        once__cli_say("nginx was killed by signal %d", WTERMSIG(run->status));
    }
    return ONCE__CLI_STORE;
}

int once__gate_run(const once__gate_plan_t *plan)
{
    gate_run_t run = {.nginx = {.plan = plan, .lock = -1}, .log = -1};
    void (*pipe_before)(int) = signal(SIGPIPE, SIG_IGN);
    sigset_t before;
    int code;

    run.signals = watch_signals(&before);
    code = once__gate_make_folder(&run.nginx);
    if (code == ONCE__CLI_OK) {
        code = once__gate_try(&run.nginx);
    }
    if (code == ONCE__CLI_OK) {
        code = serve(&run);
    }
    once__gate_remove_folder(&run.nginx);
    close(run.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGPIPE, pipe_before);
    return code;
}
