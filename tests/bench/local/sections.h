/*
 * The parts of the benchmark. Each makes what it needs below `directory`, reports, and removes it again.
 */
#ifndef TESTS_BENCH_LOCAL_SECTIONS_H
#define TESTS_BENCH_LOCAL_SECTIONS_H

#include <stdint.h>

typedef struct settings {
    const char *program; /* to run itself as another process */
    const char *directory;
    uint64_t records; /* present in a store that is not empty */
    unsigned rounds;
} settings_t;

/* against the limit and the libraries; flat as it grows */
void section_pairs(const settings_t *settings);
/* the same without the libraries, which take long to be filled */
void section_grow(const settings_t *settings);
void section_disk(const settings_t *settings);      /* bytes for each kind of response */
void section_life(const settings_t *settings);      /* killing, reopening, rebuilding, looking up */
void section_expiry(const settings_t *settings);    /* what expiring costs */
void section_processes(const settings_t *settings); /* four against one */

/* How this program runs as a child: NULL-terminated arguments after "--child". */
int child_main(char **arguments);

/* PATH/name in a buffer of the section's. */
#define PATH_ROOM 600
void path_of(char out[PATH_ROOM], const settings_t *settings, const char *name);

#endif
