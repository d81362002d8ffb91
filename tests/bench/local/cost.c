#include "cost.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../bench.h"

/* The linker sends every call of fdatasync in libonce here (--wrap). */
static _Atomic uint64_t syncs;
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
    atomic_fetch_add(&syncs, 1);
    return __real_fdatasync(fd);
}

static uint64_t system_call_bytes(void)
{
    unsigned long long in = 0, out = 0;
    FILE *file = fopen("/proc/self/io", "r");

    if (file != NULL) {
        if (fscanf(file, "rchar: %llu wchar: %llu", &in, &out) != 2) {
            in = out = 0;
        }
        (void)fclose(file);
    }
    return in + out;
}

cost_t cost_now(void)
{
    struct rusage usage;
    cost_t now = {.seconds = bench_wall(), .syncs = atomic_load(&syncs)};

    (void)getrusage(RUSAGE_SELF, &usage);
    now.cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
              (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    now.pages = (uint64_t)(usage.ru_minflt + usage.ru_majflt);
    now.bytes = system_call_bytes();
    return now;
}

cost_t cost_since(const cost_t *start)
{
    cost_t now = cost_now();

    now.seconds -= start->seconds;
    now.cpu -= start->cpu;
    now.syncs -= start->syncs;
    now.bytes -= start->bytes;
    now.pages -= start->pages;
    return now;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), ascending);
    return count == 0 ? 0 : (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static uint64_t used_of(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    uint64_t used = 0;
    const char *map;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED) {
            used = (uint64_t)st.st_size;
            while (used > 0 && map[used - 1] == 0) {
                used--;
            }
            (void)munmap((void *)(uintptr_t)map, (size_t)st.st_size);
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return used;
}

uint64_t bytes_in(const char *directory)
{
    DIR *stream = opendir(directory);
    const struct dirent *entry;
    uint64_t sum = 0;

    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        char path[1024];
        (void)snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        sum += entry->d_type == DT_REG ? used_of(path) : 0;
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    return sum;
}

uint64_t blocks_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)remove(path);
    return 0;
}

void remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
