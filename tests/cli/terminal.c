#include "terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define PATIENCE_MS 20000

typedef struct job {
    int argc;
    char *argv[64];
    int code;
} job_t;

static void *run_job(void *data)
{
    job_t *job = data;

    job->code = once_cli_main(job->argc, job->argv);
    fflush(stdout);
    fflush(stderr);
    return NULL;
}

/* A terminal that shows bytes as they are written. */
static void open_terminal(int *master, int *slave)
{
    struct termios settings;

    *master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*master >= 0);
    assert_int_equal(grantpt(*master), 0);
    assert_int_equal(unlockpt(*master), 0);
    *slave = open(ptsname(*master), O_RDWR | O_NOCTTY);
    assert_true(*slave >= 0);
    assert_int_equal(tcgetattr(*slave, &settings), 0);
    settings.c_oflag &= ~(tcflag_t)OPOST;
    assert_int_equal(tcsetattr(*slave, TCSANOW, &settings), 0);
}

/* Reads what is there, until `until` has been shown (NULL: until nothing more comes). */
static void read_terminal(int master, terminal_run_t *result, const char *until)
{
    size_t len = strlen(result->text);

    for (;;) {
        struct pollfd fd = {.fd = master, .events = POLLIN};
        ssize_t got;
        if (until != NULL && strstr(result->text, until) != NULL) {
            return;
        }
        if (poll(&fd, 1, until != NULL ? PATIENCE_MS : 0) <= 0 || !(fd.revents & POLLIN)) {
            return;
        }
        got = read(master, result->text + len, sizeof(result->text) - len - 1);
        if (got <= 0) {
            return;
        }
        len += (size_t)got;
        result->text[len] = '\0';
    }
}

void run_on_terminal(terminal_run_t *result, const char *answer, void (*meanwhile)(void *data),
                     void *data, const char *const *arguments)
{
    int master, slave;
    int saved[3];
    pthread_t thread;
    job_t job = {0};

    result->text[0] = '\0';
    job.argv[job.argc++] = strdup("once");
    for (size_t i = 0; arguments[i] != NULL && job.argc < 60; i++) {
        job.argv[job.argc++] = strdup(arguments[i]);
    }
    open_terminal(&master, &slave);
    fflush(stdout);
    fflush(stderr);
    for (int fd = 0; fd < 3; fd++) {
        saved[fd] = dup(fd);
        dup2(slave, fd);
    }
    pthread_create(&thread, NULL, run_job, &job);
    if (answer != NULL) {
        read_terminal(master, result, "[y/N]");
        if (meanwhile != NULL) {
            meanwhile(data);
        }
        (void)!write(master, answer, strlen(answer));
    }
    pthread_join(thread, NULL);
    for (int fd = 0; fd < 3; fd++) {
        dup2(saved[fd], fd);
        close(saved[fd]);
    }
    read_terminal(master, result, NULL);
    close(slave);
    close(master);
    result->code = job.code;
    for (int i = 0; i < job.argc; i++) {
        free(job.argv[i]);
    }
}
