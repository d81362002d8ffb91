/*
 * once gate: nginx as a process, from the trial of its configuration until it ends.
 *
 * Everything that nginx writes is in a directory of its own. Its log goes through a pipe of this process (log.c), so that nginx can
 * open it as /dev/stdout, even if another user owns the real one. It is in its own process group: Ctrl-C on a terminal
 * reaches this process only. When this process dies, the system ends nginx.
 *
 * Signals come through a descriptor, and the log through the pipe: one loop passes both on. It uses poll() and not lib/loop,
 * because standard output may be a regular file, which epoll does not take.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/text.h"
#include "gate/internal.h"
#include "service/notify.h"

#define REASON_MAX 2000
#define LOOK_MS    20 /* how often it is looked whether nginx answers by now */
#define LOOKS_MAX  500
#define ENDING_MS  2000 /* how long the rest of the log is waited for when nginx has ended */
#define NAME       "once-gate-"
#define CONFIG     "nginx.conf"
#define NEXT       "nginx.conf.next" /* of a reload */
#define RELOAD_S   60                /* how long it may take to prepare one */
#define OPEN_MODE  (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
#define DEPTH      8 /* nginx makes temporary files three levels down at most */

/* --------------------------------------------------------------------------------------------------- the directory */

/*
 * The private directory of a run, with the configuration in it. The gate and every process of its nginx hold a lock on it. A gate
 * that is killed cannot remove its directory, and the configuration may hold a password: the next gate of the same user removes
 * directories without a lock.
 */
typedef struct folder {
    const once__gate_plan_t *plan;
    char path[ONCE__GATE_PATH_SIZE]; /* "": not made */
    int lock;                        /* holds the directory, -1: none */
    char config[ONCE__GATE_PATH_SIZE + 16];
} folder_t;

/*
 * By descriptors, and through no link: the directories of temporary files belong to the user of the workers, which could put a link
 * in the place of one while root looks through them.
 */
static void remove_inside(int fd, unsigned depth)
{
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    if (folder == NULL && fd >= 0) {
        close(fd);
    }
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || unlinkat(fd, name, 0) == 0 ||
            depth == 0) {
            continue;
        }
        remove_inside(openat(fd, name, OPEN_MODE | O_CLOEXEC), depth - 1);
        unlinkat(fd, name, AT_REMOVEDIR);
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* `fd` is open on it, and stays so; -1: nothing is in it yet. */
static void remove_tree(int fd, const char *folder)
{
    if (fd >= 0) {
        remove_inside(openat(fd, ".", OPEN_MODE | O_CLOEXEC), DEPTH);
    }
    rmdir(folder);
}

static void remove_folder(folder_t *folder)
{
    if (folder->path[0] != '\0') {
        remove_tree(folder->lock, folder->path);
    }
    if (folder->lock >= 0) {
        close(folder->lock);
        folder->lock = -1;
    }
}

/* Ours and unlocked. One without a configuration may just be being made: it is locked before that is written. */
static int is_left_behind(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 0767) == 0700 &&
           flock(fd, LOCK_EX | LOCK_NB) == 0 &&
           fstatat(fd, CONFIG, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static void sweep(const char *top)
{
    DIR *folders = opendir(top);
    struct dirent *entry;

    while (folders != NULL && (entry = readdir(folders)) != NULL) {
        char path[ONCE__GATE_PATH_SIZE];
        int fd;
        if (strncmp(entry->d_name, NAME, strlen(NAME)) != 0 ||
            snprintf(path, sizeof(path), "%s/%s", top, entry->d_name) >= (int)sizeof(path)) {
            continue;
        }
        fd = open(path, OPEN_MODE | O_CLOEXEC);
        if (fd >= 0 && is_left_behind(fd)) {
            remove_tree(fd, path);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (folders != NULL) {
        closedir(folders);
    }
}

/* The lock is handed down to nginx: its workers may outlive a gate and a master that are killed together. */
static int take_folder(folder_t *folder, const char *top)
{
    snprintf(folder->path, sizeof(folder->path), "%s/" NAME "XXXXXX", top);
    if (mkdtemp(folder->path) == NULL) {
        once__cli_say("cannot create a directory in %s: %s", top, strerror(errno));
        folder->path[0] = '\0';
        return ONCE__CLI_STORE;
    }
    folder->lock = open(folder->path, OPEN_MODE);
    if (folder->lock < 0 || flock(folder->lock, LOCK_EX) != 0) {
        once__cli_say("cannot lock %s: %s", folder->path, strerror(errno));
        return ONCE__CLI_STORE;
    }
    /* Workers of another user pass through it to their temporary files; the configuration stays out of their sight. */
    if (folder->plan->user[0] != '\0' && (fchown(folder->lock, (uid_t)-1, folder->plan->gid) != 0 ||
                                          fchmod(folder->lock, 0710) != 0)) {
        once__cli_say("cannot give %s to the group of %s: %s", folder->path, folder->plan->user,
                      strerror(errno));
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

/* Can only root replace the directory, or one above it? */
static int is_roots(const char *path)
{
    char above[ONCE__GATE_PATH_SIZE];
    struct stat st;
    size_t len = strlen(path);

    while (len > 0 && len < sizeof(above)) {
        snprintf(above, len + 1, "%s", path);
        if (lstat(above, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != 0 ||
            ((st.st_mode & 022) != 0 && (st.st_mode & S_ISVTX) == 0)) {
            return 0;
        }
        while (len > 0 && path[--len] != '/') {
        }
    }
    return len == 0;
}

/* Beside the store, unless others could replace it: root's nginx reads its configuration again, and gives away directories. */
static int is_beside(const once__gate_plan_t *plan, char top[ONCE__GATE_PATH_SIZE])
{
    char *slash;

    if (plan->folder[0] == '\0' || realpath(plan->folder, top) == NULL) {
        return 0;
    }
    if (plan->user[0] != '\0') {
        slash = strrchr(top, '/');
        slash[slash == top] = '\0';
        if (!is_roots(top)) {
            return 0;
        }
    }
    return access(top, W_OK | X_OK) == 0;
}

/*
 * Bodies of requests are written there before their sender is authenticated, and /tmp may be memory: so on the disk of the store,
 * or where files may be large.
 */
static void choose_top(const once__gate_plan_t *plan, char top[ONCE__GATE_PATH_SIZE])
{
    const char *named = getenv("TMPDIR");

    if (named != NULL && named[0] == '/') {
        snprintf(top, ONCE__GATE_PATH_SIZE, "%s", named);
    } else if (!is_beside(plan, top)) {
        snprintf(top, ONCE__GATE_PATH_SIZE, "%s",
                 access("/var/tmp", W_OK | X_OK) == 0 ? "/var/tmp" : "/tmp");
    }
}

/* Makes the directory with the configuration in it, and removes those that were left behind. */
static int make_folder(folder_t *folder)
{
    char top[ONCE__GATE_PATH_SIZE];
    FILE *out = NULL;
    int fd;

    choose_top(folder->plan, top);
    sweep(top);
    if (take_folder(folder, top) != ONCE__CLI_OK) {
        return ONCE__CLI_STORE;
    }
    snprintf(folder->config, sizeof(folder->config), "%s/" CONFIG, folder->path);
    fd = open(folder->config, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out != NULL) {
        once__gate_write_config(folder->plan, out);
    }
    if (out == NULL || fclose(out) != 0) {
        once__cli_say("cannot write %s: %s", folder->config, strerror(errno));
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

/* ---------------------------------------------------------------------------------------------------------- processes */

/* In the child: becomes nginx. Signals are as they were before this process began to watch them. */
static void become_nginx(const folder_t *folder, int output, int errors, pid_t parent, int test)
{
    int nothing = open("/dev/null", O_RDONLY);
    sigset_t none;

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
    dup2(errors, STDERR_FILENO);
    execl(folder->plan->nginx, "nginx", "-p", folder->path, "-c", folder->config, "-e", "stderr",
          test ? "-tq" : (char *)NULL, (char *)NULL);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", folder->plan->nginx, strerror(errno));
    _exit(127);
}

static void close_both(const int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
}

/* Starts nginx; `log` and `errors` become the ends of the pipes to read from. `errors` NULL: all goes into the first. */
static pid_t start(const folder_t *folder, int test, int *log, int *errors)
{
    pid_t parent = getpid();
    pid_t pid;
    int ends[2], error_ends[2] = {-1, -1};

    if (pipe2(ends, O_CLOEXEC) != 0) {
        once__cli_say("cannot create a pipe: %s", strerror(errno));
        return -1;
    }
    if (errors != NULL && pipe2(error_ends, O_CLOEXEC) != 0) {
        once__cli_say("cannot create a pipe: %s", strerror(errno));
        close_both(ends);
        return -1;
    }
    fflush(stdout);
    fflush(stderr);
    pid = fork();
    if (pid == 0) {
        become_nginx(folder, ends[1], errors != NULL ? error_ends[1] : ends[1], parent, test);
    }
    if (pid < 0) {
        once__cli_say("cannot start nginx: %s", strerror(errno));
        close_both(ends);
        close_both(error_ends);
        return pid;
    }
    close(ends[1]);
    *log = ends[0];
    if (errors != NULL) {
        close(error_ends[1]);
        *errors = error_ends[0];
    }
    return pid;
}

/* Reads what a program says until its end or for as much as there is room, and terminates it. */
static void read_words(int fd, char *text, size_t size)
{
    size_t len = 0;
    ssize_t got;

    while (len < size - 1 && (got = read(fd, text + len, size - 1 - len)) != 0) {
        if (got > 0) {
            len += (size_t)got;
        } else if (errno != EINTR) {
            break;
        }
    }
    text[len] = '\0';
}

/* "nginx version: nginx/1.22.1"; Angie says its own version before, and OpenResty has a fourth number. */
static unsigned read_version(const char *text)
{
    const char *line = strstr(text, "nginx version: ");
    const char *slash = line != NULL ? strchr(line, '/') : NULL;
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
    char text[512] = "";
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return 0;
    }
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        execl(nginx, "nginx", "-V", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (pid > 0) {
        read_words(ends[0], text, sizeof(text));
    }
    close(ends[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return read_version(text);
}

/* ---------------------------------------------------------------------------------------------------------- the trial */

/* "nginx: [emerg] what in FILE:LINE" without the parts that say nothing here. */
static void tell_line(const folder_t *folder, char *line)
{
    char *level = strstr(line, "] ");
    char *where = strstr(line, folder->config);

    if (line[0] == '\0' || strstr(line, "test failed") != NULL) {
        return;
    }
    if (where != NULL && where - line > 4 && strncmp(where - 4, " in ", 4) == 0) {
        where[-4] = '\0';
    }
    if (level != NULL) {
        line = level + 2; /* behind time and level; a process id may follow: 12#12: */
        line += strspn(line, "0123456789#") > 0 && strchr(line, '#') != NULL
                    ? strspn(line, "0123456789#: ")
                    : 0;
    }
    once__cli_say("nginx: %s", line);
}

static void tell_reason(const folder_t *folder, char *text)
{
    int foreign = strstr(text, "binary compatible") != NULL || strstr(text, "instead of") != NULL;
    char *rest = text;
    char *line;

    while ((line = strsep(&rest, "\n")) != NULL) {
        tell_line(folder, line);
    }
    if (foreign) {
        once__cli_say("the module was built for another nginx: in the source of once, run "
                      "\"make module NGINX=%s\", and give what it built with --module",
                      folder->plan->nginx);
    }
}

/* Lets nginx read the configuration before it is run: what is wrong with it is an answer, not a log. */
static int try_config(const folder_t *folder)
{
    char text[REASON_MAX + 1];
    int log, status;
    pid_t pid = start(folder, 1, &log, NULL);

    if (pid < 0) {
        return ONCE__CLI_STORE;
    }
    read_words(log, text, sizeof(text));
    close(log);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return ONCE__CLI_OK;
    }
    once__cli_say("nginx rejects the configuration made from these options");
    tell_reason(folder, text);
    return ONCE__CLI_USAGE;
}

/* -------------------------------------------------------------------------------------------------------------- the run */

/*
 * From start() until serve() returns, and between turns (assert_run_state):
 *   I-1  the folder is made and locked: another gate that sweeps does not take it for one left behind
 *   I-2  nginx was started, and signals come through the descriptor: its end is noticed
 *   I-3  what nginx writes has a way to standard output (log.c asserts that what is on it fits)
 *   I-4  looking whether nginx answers ends: after LOOKS_MAX looks at the latest
 *   I-5  an interrupt is remembered only while stopping: the second one does not wait
 *   I-6  a reload is remembered only while another one is prepared, or nginx does not hear signals yet: it is prepared after that
 */
typedef struct gate_run {
    folder_t folder;
    pid_t pid;
    once__gate_log_t *log; /* what nginx writes */
    int signals;           /* signalfd */
    int stopping;
    int interrupted; /* Ctrl-C was seen before */
    int ready;
    int looks;
    int ended;    /* nginx has */
    int status;   /* of waitpid */
    pid_t reload; /* the process that prepares a reload; 0: none */
    int reload_again;
} gate_run_t;

static void assert_run_state(const gate_run_t *run)
{
    assert(run->folder.path[0] != '\0' && run->folder.lock >= 0); /* I-1 */
    assert(run->pid > 0 && run->signals >= 0);                    /* I-2 */
    assert(run->log != NULL);                                     /* I-3 */
    assert(run->looks >= 0 && run->looks <= LOOKS_MAX);           /* I-4 */
    assert(!run->interrupted || run->stopping);                   /* I-5 */
    assert(!run->reload_again || run->reload > 0 || !run->ready); /* I-6 */
}

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
        once__gate_log_say(run->log,
                           "once gate: stopping as soon as all requests have been answered",
                           "stopping as soon as all requests have been answered");
    }
    run->interrupted |= signal_number == SIGINT;
    return signal_number == SIGINT ? SIGQUIT : signal_number;
}

/*
 * A reload has its configuration written and tried by a process of its own: to look up a host or to run nginx takes time, during
 * which the log has to be passed on.
 */
static void prepare_reload(gate_run_t *run)
{
    folder_t next = run->folder;
    pid_t parent = getpid();

    if (run->reload > 0) {
        run->reload_again = 1;
        return;
    }
    fflush(stdout);
    fflush(stderr);
    run->reload = fork();
    if (run->reload == 0) {
        int code;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        alarm(
            RELOAD_S); /* what it waits for may never come, and no other reload would be prepared */
        snprintf(next.config, sizeof(next.config), "%s/" NEXT, next.path);
        code = once__gate_write_again(next.plan, next.config);
        fflush(stderr);
        _exit(code == ONCE__CLI_OK ? try_config(&next) : code);
    }
    if (run->reload < 0) {
        run->reload = 0;
        once__gate_log_say(run->log, "once gate: not reloaded: cannot start a process",
                           "not reloaded: cannot start a process");
    }
}

static void end_reload(gate_run_t *run, int status)
{
    int good = WIFEXITED(status) && WEXITSTATUS(status) == ONCE__CLI_OK;

    run->reload = 0;
    if (good && renameat(run->folder.lock, NEXT, run->folder.lock, CONFIG) == 0) {
        once__gate_log_say(run->log, "once gate: reloaded", "reloaded");
        pass_on(run, SIGHUP);
    } else {
        once__gate_log_say(run->log, "once gate: not reloaded: it goes on as it was",
                           "not reloaded: it goes on as it was");
    }
    if (run->reload_again) {
        run->reload_again = 0;
        if (!run->stopping) {
            prepare_reload(run);
        }
    }
}

/* A process that prepares a reload must not write to the folder when it is being removed. */
static void stop_reload(gate_run_t *run)
{
    if (run->reload > 0) {
        kill(run->reload, SIGKILL);
        while (waitpid(run->reload, NULL, 0) < 0 && errno == EINTR) {
        }
        run->reload = 0;
    }
}

static void reap(gate_run_t *run)
{
    int status;

    if (run->reload > 0 && waitpid(run->reload, &status, WNOHANG) == run->reload) {
        end_reload(run, status);
    }
    if (waitpid(run->pid, &run->status, WNOHANG) == run->pid) {
        run->ended = 1;
        /* Workers of a master that was killed would go on forever, and keep the address. */
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
        if (run->stopping) {
            return;
        }
        if (run->ready || run->looks == LOOKS_MAX) {
            prepare_reload(run);
        } else {
            run->reload_again = 1; /* nginx would die of it now: when it is ready */
        }
        return;
    }
    pass_on(run, meaning(run, (int)info.ssi_signo));
    run->stopping = 1;
    once__service_notify_stopping();
}

/*
 * nginx listens before it has handlers for signals, and writes its pid after that: only then does a SIGHUP mean a reload.
 */
static int hears_signals(const folder_t *folder)
{
    struct stat st;

    return fstatat(folder->lock, "nginx.pid", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0;
}

static void look(gate_run_t *run)
{
    const once__gate_plan_t *plan = run->folder.plan;

    run->looks++;
    if (!hears_signals(&run->folder)) {
        return;
    }
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
    once__gate_log_say(run->log, "once gate: ready", "ready");
    if (run->reload_again && run->reload == 0) {
        run->reload_again = 0;
        prepare_reload(run);
    }
}

static void turn(gate_run_t *run)
{
    int looking = !run->ready && !run->ended && run->looks < LOOKS_MAX;
    struct pollfd polls[1 + ONCE__GATE_LOG_POLLS] = {{run->signals, POLLIN, 0}};
    int notify = run->ready && !run->stopping ? once__service_notify_turn() : -1;
    int timeout = looking ? LOOK_MS : run->ended ? ENDING_MS : notify;
    int got;

    once__gate_log_poll(run->log, polls + 1);
    got = poll(polls, sizeof(polls) / sizeof(polls[0]), timeout);
    if (got == 0 && run->ended) {
        once__gate_log_cut(run->log);
    }
    if (got > 0 && polls[0].revents != 0) {
        take_signal(run);
    }
    if (got > 0) {
        once__gate_log_turn(run->log, polls + 1);
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
static int ended_as_asked(int status)
{
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status) == 0;
    }
    return WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGQUIT;
}

static int serve(gate_run_t *run)
{
    int json = run->folder.plan->options->log_json, output = -1, errors = -1;

    run->pid = start(&run->folder, 0, &output, json ? &errors : NULL);
    if (run->pid < 0) {
        return ONCE__CLI_STORE;
    }
    setpgid(run->pid, run->pid);
    run->log = once__gate_log_new(output, errors, json);
    if (run->log == NULL) {
        once__cli_say("out of memory");
        kill(-run->pid, SIGKILL);
        return ONCE__CLI_STORE;
    }
    while (!run->ended || !once__gate_log_is_done(run->log)) {
        assert_run_state(run);
        turn(run);
    }
    assert_run_state(run);
    if (run->stopping && ended_as_asked(run->status)) {
        return ONCE__CLI_OK;
    }
    if (WIFEXITED(run->status)) {
        once__cli_say("nginx exited with code %d", WEXITSTATUS(run->status));
    } else {
        once__cli_say("nginx was killed by signal %d", WTERMSIG(run->status));
    }
    return ONCE__CLI_STORE;
}

int once__gate_check(const once__gate_plan_t *plan)
{
    folder_t folder = {.plan = plan, .lock = -1};
    int code = make_folder(&folder);

    if (code == ONCE__CLI_OK) {
        code = try_config(&folder);
    }
    remove_folder(&folder);
    return code;
}

int once__gate_run(const once__gate_plan_t *plan)
{
    gate_run_t run = {.folder = {.plan = plan, .lock = -1}};
    void (*pipe_before)(int) = signal(SIGPIPE, SIG_IGN);
    sigset_t before;
    int code;

    run.signals = watch_signals(&before);
    if (run.signals < 0) {
        once__cli_say("cannot watch signals: %m");
    }
    code = run.signals >= 0 ? make_folder(&run.folder) : ONCE__CLI_STORE;
    if (code == ONCE__CLI_OK) {
        code = try_config(&run.folder);
    }
    if (code == ONCE__CLI_OK) {
        code = serve(&run);
    }
    stop_reload(&run);
    once__gate_log_free(run.log);
    remove_folder(&run.folder);
    if (run.signals >= 0) {
        close(run.signals);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGPIPE, pipe_before);
    return code;
}
