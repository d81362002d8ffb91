#include "cli/cmd/bench_limit.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "cli/histogram.h"

#define FILE_SIZE  (UINT64_C(16) << 20) /* written from the beginning again when it is full */
#define CHUNK      (UINT64_C(1) << 20)
#define TIME_NS    UINT64_C(1000000000)
#define CLAIM      232 /* bytes of a claim's frame with a key like ours (docs/format.md) */
#define COMPLETION 136 /* of a completion's, beside the body */

typedef struct file {
    int fd;
    uint8_t *bytes; /* CHUNK of them */
    uint64_t tail;
} file_t;

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t cpu_ns(void)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
}

/* The directory in the URL. 0: it is another store's, or one with an escape, which is not worth it here. */
static int directory_of(const char *url, char out[PATH_MAX])
{
    static const char scheme[] = "local:";
    const char *path = url + strlen(scheme);
    size_t len;

    if (strncmp(url, scheme, strlen(scheme)) != 0) {
        return 0;
    }
    len = strcspn(path, "?");
    if (len == 0 || len >= PATH_MAX || memchr(path, '%', len) != NULL) {
        return 0;
    }
    memcpy(out, path, len);
    out[len] = '\0';
    return 1;
}

/* Appends so many bytes and syncs. 0, or -1. */
static int append(file_t *file, uint64_t len)
{
    while (len > 0) {
        uint64_t part = len < CHUNK ? len : CHUNK;
        if (file->tail + part > FILE_SIZE) {
            file->tail = 0;
        }
        if (pwrite(file->fd, file->bytes, part, (off_t)file->tail) != (ssize_t)part) {
            return -1;
        }
        file->tail += part;
        len -= part;
    }
    return fdatasync(file->fd);
}

/* All of it is written once before: to overwrite is what a store does that is in use. */
static int prepare(file_t *file, const char *directory)
{
    file->fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    file->bytes = malloc(CHUNK);
    if (file->fd < 0 || file->bytes == NULL) {
        return -1;
    }
    memset(file->bytes, 'x', CHUNK);
    return append(file, FILE_SIZE);
}

static int measure(file_t *file, uint64_t inflight, uint64_t value_size, once__cli_limit_t *limit,
                   once__cli_histogram_t *latency)
{
    uint64_t start = clock_ns(), cpu = cpu_ns(), pairs = 0, now = start;

    while (now - start < TIME_NS) {
        uint64_t began = now;
        if (append(file, inflight * CLAIM) != 0 ||
            append(file, inflight * (COMPLETION + value_size)) != 0) {
            return 0;
        }
        now = clock_ns();
        once__cli_histogram_add(latency, now - began);
        pairs += inflight;
    }
    limit->pairs_per_second = (double)pairs * 1e9 / (double)(now - start);
    limit->cpu_us_per_pair = (double)(cpu_ns() - cpu) / 1000.0 / (double)pairs;
    limit->latency_us = (double)once__cli_histogram_at(latency, 0.5) / 1000.0;
    return 1;
}

int once__cli_bench_limit(const char *url, uint64_t inflight, uint64_t value_size,
                          once__cli_limit_t *limit)
{
    once__cli_histogram_t *latency = calloc(1, sizeof(*latency));
    file_t file = {.fd = -1};
    char directory[PATH_MAX];
    int measured = latency != NULL && directory_of(url, directory) &&
                   prepare(&file, directory) == 0 &&
                   measure(&file, inflight, value_size, limit, latency);

    if (file.fd >= 0) {
        (void)close(file.fd);
    }
    free(file.bytes);
    free(latency);
    return measured;
}
