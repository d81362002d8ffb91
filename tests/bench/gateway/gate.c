#include "gate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

#include "sections.h"
#include "wire.h"

#define PATH_ROOM 600

/* ------------------------------------------------------------------------------------------------------ configuration */

/* A port that was free a moment ago. */
static unsigned free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
        wire_die("free port");
    }
    (void)close(fd);
    return ntohs(address.sin_port);
}

static int is_guarded(gate_kind_t kind)
{
    return kind != GATE_BARE && kind != GATE_SLOW;
}

static void write_once(FILE *file, const char *path, gate_kind_t kind)
{
    if (!is_guarded(kind)) {
        return;
    }
    switch (kind) {
    case GATE_REDIS:
        (void)fprintf(file, "  once_store \"%s\";\n", getenv("ONCE_REDIS_URL"));
        break;
    case GATE_POSTGRES:
        (void)fprintf(file, "  once_store \"%s\";\n", getenv("ONCE_PG_GATEWAY_URL"));
        break;
    case GATE_LOCAL:
        (void)fprintf(file, "  once_store local:%s/store;\n", path);
        break;
    default:
        (void)fputs("  once_store memory:;\n", file);
        break;
    }
    (void)fputs("  once_scope $http_authorization;\n", file);
}

/* The same for all, but for what the module needs. Connections stay open on both sides, as a busy gateway's do. */
static void write_configuration(const gate_t *gate, const settings_t *settings, const char *path,
                                gate_kind_t kind)
{
    char name[PATH_ROOM + 16];
    FILE *file;

    (void)snprintf(name, sizeof(name), "%s/nginx.conf", path);
    file = fopen(name, "we");
    if (file == NULL) {
        wire_die(name);
    }
    if (is_guarded(kind)) {
        (void)fprintf(file, "load_module %s;\n", settings->module);
    }
    (void)fprintf(file,
                  "%sdaemon off;\nworker_processes %u;\nworker_rlimit_nofile 20000;\n"
                  "pid %s/pid;\nerror_log %s/error.log info;\n"
                  "events { worker_connections 9000; }\nhttp {\n  access_log off;\n"
                  "  client_body_temp_path %s/body;\n  proxy_temp_path %s/proxy;\n"
                  "  fastcgi_temp_path %s/fastcgi;\n  uwsgi_temp_path %s/uwsgi;\n"
                  "  scgi_temp_path %s/scgi;\n  keepalive_timeout 1h;\n"
                  "  keepalive_requests 1000000000;\n",
                  geteuid() == 0 ? "user root;\n" : "", gate->workers, path, path, path, path, path,
                  path, path);
    write_once(file, path, kind);
    (void)fprintf(file,
                  "  upstream backend {\n    server 127.0.0.1:%u;\n    keepalive 512;\n"
                  "    keepalive_requests 1000000000;\n    keepalive_timeout 1h;\n  }\n"
                  "  server {\n    listen 127.0.0.1:%u backlog=4096 reuseport;\n    location / {\n"
                  "      %sproxy_pass http://backend;\n      proxy_http_version 1.1;\n"
                  "      proxy_set_header Connection \"\";\n    }\n  }\n}\n",
                  settings->upstream.port, gate->port,
                  is_guarded(kind)    ? "once on;\n      "
                  : kind == GATE_SLOW ? "limit_rate 2k;\n      "
                                      : "");
    if (fclose(file) != 0) {
        wire_die(name);
    }
}

/* --------------------------------------------------------------------------------------------------- start and stop */

static void pause_briefly(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static int answers(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    yes = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    (void)close(fd);
    return yes;
}

static unsigned find_workers(gate_t *gate)
{
    char name[64];
    unsigned count = 0;
    FILE *file;

    (void)snprintf(name, sizeof(name), "/proc/%d/task/%d/children", (int)gate->master,
                   (int)gate->master);
    file = fopen(name, "re");
    while (file != NULL && count < GATE_WORKERS && fscanf(file, "%d", &gate->worker[count]) == 1) {
        count++;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return count;
}

static void run_nginx(const settings_t *settings, const char *path)
{
    char name[PATH_ROOM + 16], log[PATH_ROOM + 16];
    int fd;

    (void)snprintf(name, sizeof(name), "%s/nginx.conf", path);
    (void)snprintf(log, sizeof(log), "%s/error.log", path);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)dup2(fd, STDERR_FILENO);
    (void)execl(settings->nginx, "nginx", "-p", path, "-c", name, (char *)NULL);
    wire_die(settings->nginx);
}

static unsigned print_log(const char *path, const char *const *marks)
{
    char name[PATH_ROOM + 16], line[2000];
    unsigned found = 0;
    FILE *file;

    (void)snprintf(name, sizeof(name), "%s/error.log", path);
    file = fopen(name, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        int bad = 0;
        for (unsigned i = 0; marks[i] != NULL; i++) {
            bad |= strstr(line, marks[i]) != NULL;
        }
        if (bad && found++ < 10) {
            (void)printf("%s", line);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

void gate_start(gate_t *gate, const settings_t *settings, const char *name, gate_kind_t kind,
                unsigned workers)
{
    static const char *const all[] = {"", NULL};
    char path[PATH_ROOM];

    *gate = (gate_t){.name = name, .workers = workers, .port = free_port()};
    (void)snprintf(path, sizeof(path), "%s/%s", settings->directory, name);
    if (mkdir(path, 0700) != 0) {
        wire_die(path);
    }
    write_configuration(gate, settings, path, kind);
    gate->master = fork();
    if (gate->master == 0) {
        run_nginx(settings, path);
    }
    for (int i = 0; i < 1000; i++) {
        if (waitpid(gate->master, NULL, WNOHANG) != 0) {
            break;
        }
        if (find_workers(gate) == workers && answers(gate->port)) {
            return;
        }
        pause_briefly();
    }
    (void)printf("bench_gateway: nginx (%s) did not start:\n", name);
    (void)print_log(path, all);
    exit(2);
}

unsigned gate_stop(gate_t *gate, const settings_t *settings)
{
    static const char *const bad[] = {"[error]", "[crit]", "[alert]", "[emerg]", NULL};
    char path[PATH_ROOM];

    (void)kill(gate->master, SIGTERM);
    (void)waitpid(gate->master, NULL, 0);
    (void)snprintf(path, sizeof(path), "%s/%s", settings->directory, gate->name);
    return print_log(path, bad);
}

/* ---------------------------------------------------------------------------------------------------- what they use */

static double cpu_of(pid_t pid)
{
    char name[300];
    double sum = 0;
    const struct dirent *entry;
    DIR *threads;

    (void)snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
    threads = opendir(name);
    while (threads != NULL && (entry = readdir(threads)) != NULL) {
        unsigned long long ns;
        FILE *file;
        (void)snprintf(name, sizeof(name), "/proc/%d/task/%s/schedstat", (int)pid, entry->d_name);
        file = entry->d_name[0] == '.' ? NULL : fopen(name, "re");
        if (file != NULL) {
            sum += fscanf(file, "%llu", &ns) == 1 ? (double)ns / 1e9 : 0;
            (void)fclose(file);
        }
    }
    if (threads != NULL) {
        (void)closedir(threads);
    }
    return sum;
}

double process_cpu(pid_t pid)
{
    char name[64];
    double sum = pid != 0 ? cpu_of(pid) : 0;
    FILE *file;
    int child;

    (void)snprintf(name, sizeof(name), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    file = pid != 0 ? fopen(name, "re") : NULL;
    while (file != NULL && fscanf(file, "%d", &child) == 1) {
        sum += cpu_of(child);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return sum;
}

double gate_cpu(const gate_t *gate)
{
    double sum = 0;

    pause_briefly(); /* what a thread used is counted when it stops to run */
    for (unsigned i = 0; i < gate->workers; i++) {
        sum += cpu_of(gate->worker[i]);
    }
    return sum;
}

gate_memory_t gate_memory(const gate_t *gate)
{
    gate_memory_t memory = {0};

    for (unsigned i = 0; i < gate->workers; i++) {
        char name[64], line[256];
        unsigned long long kb;
        FILE *file;
        (void)snprintf(name, sizeof(name), "/proc/%d/status", (int)gate->worker[i]);
        file = fopen(name, "re");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            if (sscanf(line, "RssAnon: %llu", &kb) == 1) {
                memory.anonymous += (double)kb * 1024;
            } else if (sscanf(line, "VmRSS: %llu", &kb) == 1) {
                memory.resident += (double)kb * 1024;
            }
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    return memory;
}
