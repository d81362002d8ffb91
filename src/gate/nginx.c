/*
 * once gate: nginx as a process, in a directory of its own.
 *
 * Everything that nginx writes is in that directory. Its log goes to a pipe that belongs to this process, so that nginx can open
 * it as /dev/stdout whoever owns the real one. It is in a process group of its own: Ctrl-C on a terminal reaches this process
 * only. When this process dies, the system ends nginx.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gate/gate.h"
#include "cli/text.h"

#define REASON_MAX 2000

/* ---------------------------------------------------------------------------------------------------------- processes */

/* In the child: becomes nginx. Signals are as they were before this process began to watch them. */
static void become_nginx(const once__gate_nginx_t *nginx, int output, pid_t parent, int test)
{
    char name[] = "nginx";
    char *arguments[] = {name,
                         strdup("-p"),
                         strdup(nginx->folder),
                         strdup("-c"),
                         strdup(nginx->config),
                         strdup("-e"),
                         strdup("stderr"),
                         NULL,
                         NULL,
                         NULL};
    int nothing = open("/dev/null", O_RDONLY);
    sigset_t none;

    if (test) {
        arguments[7] = strdup("-t");
        arguments[8] = strdup("-q");
    }
    unsetenv("NGINX"); /* nginx would take it for sockets that it inherits */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(1); /* it died before that could be asked for */
    }
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv(nginx->plan->nginx, arguments);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", nginx->plan->nginx, strerror(errno));
    _exit(127);
}

/* Starts nginx; `log` becomes the end of the pipe to read from. */
pid_t once__gate_start(const once__gate_nginx_t *nginx, int test, int *log)
{
    pid_t parent = getpid();
    pid_t pid;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        once__cli_say("cannot create a pipe: %s", strerror(errno));
        return -1;
    }
    fflush(stdout);
    fflush(stderr);
    pid = fork();
    if (pid == 0) {
        become_nginx(nginx, ends[1], parent, test);
    }
    if (pid < 0) {
        once__cli_say("cannot start nginx: %s", strerror(errno));
        close(ends[0]);
    } else {
        *log = ends[0];
    }
    close(ends[1]);
    return pid;
}

/* "nginx version: nginx/1.22.1" */
static unsigned read_version(const char *text)
{
    const char *slash = strchr(text, '/');
    unsigned long parts[3] = {0};
    char *end = NULL;

    for (int i = 0; slash != NULL && i < 3; i++) {
        parts[i] = strtoul(slash + 1, &end, 10);
        slash = *end == '.' ? end : NULL;
    }
    return (unsigned)(parts[0] * 1000000 + parts[1] * 1000 + parts[2]);
}

unsigned once__gate_version(const char *nginx)
{
    char text[200] = "";
    ssize_t got;
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return 0;
    }
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        execl(nginx, "nginx", "-v", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    got = pid > 0 ? read(ends[0], text, sizeof(text) - 1) : 0;
    close(ends[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    text[got > 0 ? got : 0] = '\0';
    return read_version(text);
}

/* ---------------------------------------------------------------------------------------------------------- the trial */

/* "nginx: [emerg] what in FILE:LINE" without the parts that say nothing here. */
static void tell_line(const once__gate_nginx_t *nginx, char *line)
{
    char *mark = strstr(line, "] ");
    char *where = strstr(line, nginx->config);

    if (line[0] == '\0' || strstr(line, "test failed") != NULL) {
        return;
    }
    if (where != NULL && where - line > 4 && strncmp(where - 4, " in ", 4) == 0) {
        where[-4] = '\0';
    }
    if (mark != NULL) {
        line = mark + 2; /* behind time and level; a process id may follow: 12#12: */
        line += strspn(line, "0123456789#") > 0 && strchr(line, '#') != NULL
                    ? strspn(line, "0123456789#: ")
                    : 0;
    }
    once__cli_say("nginx: %s", line);
}

static void tell_reason(const once__gate_nginx_t *nginx, char *text)
{
    int foreign = strstr(text, "binary compatible") != NULL || strstr(text, "instead of") != NULL;
    char *rest = text;
    char *line;

    while ((line = strsep(&rest, "\n")) != NULL) {
        tell_line(nginx, line);
    }
    if (foreign) {
        once__cli_say(
            "the module was built for another nginx: rebuild it with scripts/build-module");
    }
}

/* Lets nginx read the configuration before it is run: what is wrong with it is an answer, not a log. */
int once__gate_try(const once__gate_nginx_t *nginx)
{
    char text[REASON_MAX + 1];
    size_t len = 0;
    ssize_t got;
    int log, status;
    pid_t pid = once__gate_start(nginx, 1, &log);

    if (pid < 0) {
        return ONCE__CLI_STORE;
    }
    while (len < REASON_MAX && (got = read(log, text + len, REASON_MAX - len)) != 0) {
        if (got > 0) {
            len += (size_t)got;
        } else if (errno != EINTR) {
            break;
        }
    }
    text[len] = '\0';
    close(log);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return ONCE__CLI_OK;
    }
    once__cli_say("nginx rejects the configuration made from this command line");
    tell_reason(nginx, text);
    return ONCE__CLI_USAGE;
}
