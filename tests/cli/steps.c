#include "steps.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int steps_left = -1;
void (*steps_between_locks)(void *data);
void *steps_data;

static void step(void)
{
    if (steps_left >= 0 && steps_left-- == 0) {
        _exit(STEPS_KILLED);
    }
}

/* clang-format off */
#define STEP(type, name, parameters, arguments)    \
    type __real_##name parameters;                 \
    type __wrap_##name parameters;                 \
    type __wrap_##name parameters                  \
    {                                              \
        step();                                    \
        return __real_##name arguments;            \
    }

STEP(int, mkdir, (const char *path, mode_t mode), (path, mode))
STEP(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
STEP(int, renameat, (int from, const char *a, int to, const char *b), (from, a, to, b))
STEP(int, renameat2, (int from, const char *a, int to, const char *b, unsigned flags), (from, a, to, b, flags))
STEP(int, unlinkat, (int fd, const char *name, int flags), (fd, name, flags))
STEP(int, fsync, (int fd), (fd))
STEP(int, fdatasync, (int fd), (fd))
STEP(int, ftruncate, (int fd, off_t size), (fd, size))
STEP(int, fallocate, (int fd, int mode, off_t at, off_t len), (fd, mode, at, len))
STEP(int, link, (const char *from, const char *to), (from, to))
STEP(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len))
STEP(ssize_t, pwrite, (int fd, const void *data, size_t len, off_t at), (fd, data, len, at))
/* clang-format on */

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...)
{
    mode_t mode = 0;

    if (flags & O_CREAT) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
        step();
    }
    return __real_openat(directory, path, flags, mode);
}

/* The kernel changes a lock by giving up the old one first: others may come in between. */
int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
    void (*now)(void *) = steps_between_locks;
    struct stat st;

    step();
    if ((how & LOCK_SH) && now != NULL && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        steps_between_locks = NULL;
        (void)__real_flock(fd, LOCK_UN);
        now(steps_data);
    }
    return __real_flock(fd, how);
}
