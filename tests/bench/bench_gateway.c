/*
 * The gateway beside bare nginx: throughput, latency, CPU per request, memory.
 *
 *   bench_gateway [--directory DIR] [--module FILE] [--requests N] [--rounds N] [--turn SECONDS] [SECTION...]
 *
 * Sections: speed, redis, postgres, workers, memory, growth; all of them without any. DIR (gateway.tmp) must be on the disk meant
 * for the local store. It is made, and removed before and after. N requests (100,000) are sent to see whether anything grows.
 * Everything talks over the loopback interface.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/sections.h"
#include "gateway/wire.h"
#include "local/cost.h"
#include "local/report.h"

static const struct section {
    const char *name;
    void (*run)(settings_t *settings);
} sections[] = {{"speed", section_speed},       {"redis", section_redis},
                {"postgres", section_postgres}, {"workers", section_workers},
                {"memory", section_memory},     {"growth", section_growth}};

#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

uint64_t next_keys(uint64_t count)
{
    static uint64_t next = 1;
    uint64_t first = next;

    next += count;
    return first;
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: bench_gateway [--directory DIR] [--module FILE] [--requests N] "
                          "[--rounds N] [--turn SECONDS] [speed] [redis] [postgres] [workers] "
                          "[memory] [growth]\n");
    return 2;
}

static int choose(int count, char **names, int *chosen)
{
    for (size_t s = 0; s < SECTIONS; s++) {
        chosen[s] = count == 0;
    }
    for (int i = 0; i < count; i++) {
        size_t s = 0;
        while (s < SECTIONS && strcmp(names[i], sections[s].name) != 0) {
            s++;
        }
        if (s == SECTIONS) {
            return -1;
        }
        chosen[s] = 1;
    }
    return 0;
}

/* Many connections are open at once. */
static void allow_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static const char *find_nginx(void)
{
    static const char *const places[] = {"/usr/sbin/nginx", "/usr/local/sbin/nginx",
                                         "/usr/local/nginx/sbin/nginx", "/usr/bin/nginx"};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (access(places[i], X_OK) == 0) {
            return places[i];
        }
    }
    (void)fprintf(stderr, "bench_gateway: there is no nginx; Debian has it in the package nginx\n");
    exit(2);
}

static int run(settings_t *settings, const int *chosen)
{
    static char module[PATH_MAX], directory[PATH_MAX];
    unsigned shorts;

    remove_tree(settings->directory);
    if (mkdir(settings->directory, 0700) != 0 || realpath(settings->directory, directory) == NULL) {
        wire_die(settings->directory);
    }
    if (realpath(settings->module, module) == NULL) {
        wire_die(settings->module);
    }
    settings->directory = directory;
    settings->module = module;
    settings->nginx = find_nginx();
    allow_files();
    (void)signal(SIGPIPE, SIG_IGN);
    upstream_start(&settings->upstream);
    for (size_t s = 0; s < SECTIONS; s++) {
        if (chosen[s]) {
            (void)printf("%s\n", sections[s].name);
            (void)fflush(stdout);
            sections[s].run(settings);
        }
    }
    upstream_stop(&settings->upstream);
    remove_tree(directory);
    shorts = report_print();
    if (shorts > 0) {
        (void)printf("%u of these fall short\n", shorts);
    }
    if (settings->troubles > 0) {
        (void)printf("%u troubles: see above\n", settings->troubles);
    }
    return shorts > 0 || settings->troubles > 0;
}

int main(int argc, char **argv)
{
    settings_t settings = {.module = "ngx_http_once_module.so",
                           .directory = "gateway.tmp",
                           .requests = 100000,
                           .rounds = 15,
                           .seconds = 0.1};
    int chosen[SECTIONS], i = 1;

    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--directory") == 0) {
            settings.directory = argv[i + 1];
        } else if (strcmp(argv[i], "--module") == 0) {
            settings.module = argv[i + 1];
        } else if (strcmp(argv[i], "--requests") == 0) {
            settings.requests = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            settings.rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--turn") == 0) {
            settings.seconds = strtod(argv[i + 1], NULL);
        } else {
            return usage();
        }
    }
    if (choose(argc - i, argv + i, chosen) != 0 || settings.requests == 0 || settings.rounds == 0 ||
        settings.rounds > 64 || settings.seconds <= 0) {
        return usage();
    }
    return run(&settings, chosen);
}
