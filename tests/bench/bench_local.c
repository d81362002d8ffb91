/*
 * The local store beside the limit of the disk, beside SQLite and LMDB, and as it grows, is killed and expires.
 *
 *   bench_local [--directory DIR] [--records N] [--rounds N] [SECTION...]
 *
 * Sections: pairs, disk, life, expiry, processes; all of them without any. And grow, which is pairs without SQLite and LMDB: for
 * many records. DIR (bench.tmp) must be on the disk meant. It is made, and removed before and after. N records (100,000) are put
 * into each store that is not measured empty.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "local/cost.h"
#include "local/report.h"
#include "local/sections.h"

static const struct section {
    const char *name;
    void (*run)(const settings_t *settings);
    int only_named;
} sections[] = {{"pairs", section_pairs, 0},   {"grow", section_grow, 1},
                {"disk", section_disk, 0},     {"life", section_life, 0},
                {"expiry", section_expiry, 0}, {"processes", section_processes, 0}};

#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

void path_of(char out[PATH_ROOM], const settings_t *settings, const char *name)
{
    (void)snprintf(out, PATH_ROOM, "%s/%s", settings->directory, name);
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: bench_local [--directory DIR] [--records N] [--rounds N] "
                          "[pairs] [grow] [disk] [life] [expiry] [processes]\n");
    return 2;
}

/* Marks the sections that are named; all when none is. 0, or -1. */
static int choose(int count, char **names, int *chosen)
{
    for (size_t s = 0; s < SECTIONS; s++) {
        chosen[s] = count == 0 && !sections[s].only_named;
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

static int run(const settings_t *settings, const int *chosen)
{
    unsigned shorts;

    remove_tree(settings->directory);
    if (mkdir(settings->directory, 0700) != 0) {
        perror(settings->directory);
        return 2;
    }
    for (size_t s = 0; s < SECTIONS; s++) {
        if (chosen[s]) {
            (void)printf("%s\n", sections[s].name);
            (void)fflush(stdout);
            sections[s].run(settings);
        }
    }
    remove_tree(settings->directory);
    shorts = report_print();
    if (shorts > 0) {
        (void)printf("%u of these fall short\n", shorts);
    }
    return shorts > 0;
}

int main(int argc, char **argv)
{
    settings_t settings = {
        .program = "/proc/self/exe", .directory = "bench.tmp", .records = 100000, .rounds = 15};
    int chosen[SECTIONS], i = 1;

    if (argc >= 5 && strcmp(argv[1], "--child") == 0) {
        return child_main(argv + 2);
    }
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--directory") == 0) {
            settings.directory = argv[i + 1];
        } else if (strcmp(argv[i], "--records") == 0) {
            settings.records = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            settings.rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else {
            return usage();
        }
    }
    if (choose(argc - i, argv + i, chosen) != 0 || settings.records == 0 || settings.rounds == 0 ||
        settings.rounds > 64) {
        return usage();
    }
    return run(&settings, chosen);
}
