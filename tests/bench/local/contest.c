#include "contest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "load.h"

void contest_die(const char *who, const char *what)
{
    (void)fprintf(stderr, "bench_local: %s: %s\n", who, what);
    exit(2);
}

void contest_id(uint8_t id[CONTEST_ID_SIZE], uint64_t n)
{
    for (unsigned i = 0; i < 4; i++) {
        uint64_t word = load_mix(n * 4 + i + 1);
        memcpy(id + i * 8, &word, 8);
    }
}

/* ---------------------------------------------------------------------------------------------------------- the limit */

#define FILE_SIZE   ((uint64_t)64 << 20)
#define FIRST_FRAME 64
#define BATCH_MAX   ((size_t)8 << 20)

uint32_t contest_claim_bytes, contest_completion_bytes;

typedef struct limit {
    contestant_t base;
    char directory[512];
    unsigned files;
    int fd;
    char *map;
    uint64_t tail;
    char *bytes; /* a batch, ready to be written */
} limit_t;

static void next_file(limit_t *limit)
{
    char path[600];

    if (limit->map != NULL) {
        (void)munmap(limit->map, FILE_SIZE);
        (void)close(limit->fd);
    }
    (void)snprintf(path, sizeof(path), "%s/%u", limit->directory, limit->files++);
    limit->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (limit->fd < 0 || fallocate(limit->fd, 0, 0, (off_t)FILE_SIZE) != 0) {
        contest_die(path, "no room for it");
    }
    limit->map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, limit->fd, 0);
    if (limit->map == MAP_FAILED) {
        contest_die(path, "cannot be mapped");
    }
    limit->tail = FIRST_FRAME;
}

static contestant_t *limit_open(const contestant_t *kind, const char *directory)
{
    limit_t *limit = calloc(1, sizeof(*limit));

    if (limit == NULL || (limit->bytes = malloc(BATCH_MAX)) == NULL) {
        contest_die("limit", "out of memory");
    }
    memset(limit->bytes, 'x', BATCH_MAX);
    limit->base = *kind;
    (void)snprintf(limit->directory, sizeof(limit->directory), "%s", directory);
    (void)mkdir(directory, 0700);
    next_file(limit);
    return &limit->base;
}

/* With a batch of one size: by one write, or frame by frame into the mapping. */
static void append(limit_t *limit, uint32_t size, unsigned count, int by_map)
{
    if (limit->tail + (uint64_t)size * count > FILE_SIZE) {
        next_file(limit);
    }
    if (by_map) {
        for (unsigned i = 0; i < count; i++) {
            memcpy(limit->map + limit->tail + (uint64_t)i * size, limit->bytes + (size_t)i * size,
                   size);
        }
    } else if (pwrite(limit->fd, limit->bytes, (size_t)size * count, (off_t)limit->tail) < 0) {
        contest_die("limit", "cannot write");
    }
    limit->tail += (uint64_t)size * count;
    if (fdatasync(limit->fd) != 0) {
        contest_die("limit", "cannot sync");
    }
}

static void limit_run(contestant_t *self, uint64_t pairs, unsigned batch)
{
    limit_t *limit = (limit_t *)self;
    int by_map = limit->base.name == contest_limit_map.name;

    for (uint64_t done = 0; done < pairs; done += batch) {
        append(limit, contest_claim_bytes, batch, by_map);
        append(limit, contest_completion_bytes, batch, by_map);
    }
}

static void limit_close(contestant_t *self)
{
    limit_t *limit = (limit_t *)self;

    (void)munmap(limit->map, FILE_SIZE);
    (void)close(limit->fd);
    free(limit->bytes);
    free(limit);
}

const contestant_t contest_limit_write = {"limit, one write a batch", limit_open, limit_run,
                                          limit_close};
const contestant_t contest_limit_map = {"limit, through a mapping", limit_open, limit_run,
                                        limit_close};

/* ---------------------------------------------------------------------------------------------------------- our store */

typedef struct ours {
    contestant_t base;
    load_t load;
} ours_t;

static contestant_t *ours_open(const contestant_t *kind, const char *directory)
{
    ours_t *ours = calloc(1, sizeof(*ours));

    if (ours == NULL) {
        contest_die("once", "out of memory");
    }
    ours->base = *kind;
    load_open(&ours->load, directory, "?reap=off");
    return &ours->base;
}

static void ours_run(contestant_t *self, uint64_t pairs, unsigned batch)
{
    load_run(&((ours_t *)self)->load, pairs, batch);
}

static void ours_close(contestant_t *self)
{
    load_close(&((ours_t *)self)->load);
    free(self);
}

const contestant_t contest_once = {"once, local store", ours_open, ours_run, ours_close};
