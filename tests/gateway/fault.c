/*
 * A disk that a test can make slow, full or broken: preloaded into nginx, it stands before the calls by which the local store
 * writes its log. The file named by GATEWAY_FAULT holds one word, which is read at every call:
 *
 *   block   nothing is made durable until the word changes; each call that waits adds a line to the file + ".arrived"
 *   full    nothing can be written: ENOSPC
 *   broken  nothing can be made durable: EIO
 *   link    a directory "store" that is made is moved away at once; a link to the file + ".target" stands in its place
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char control[4096];

/* At once: nginx clears the environment of its processes. */
__attribute__((constructor)) static void remember(void)
{
    const char *path = getenv("GATEWAY_FAULT");

    (void)snprintf(control, sizeof(control), "%s", path != NULL ? path : "");
}

static int says(const char *word)
{
    char text[16] = "";
    int fd = open(control, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return 0;
    }
    if (read(fd, text, sizeof(text) - 1) < 0) {
        text[0] = '\0';
    }
    (void)close(fd);
    return strcmp(text, word) == 0;
}

static int is_log(int fd)
{
    char link[64], path[4096];
    ssize_t len;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    len = readlink(link, path, sizeof(path) - 1);
    if (len < 0) {
        return 0;
    }
    path[len] = '\0';
    /* The manifest is also written when a store is opened, before anybody can wait for that. */
    return strstr(path, "/segments/") != NULL && strstr(path, "/manifest") == NULL;
}

static void tell_arrival(void)
{
    char path[4200];
    int fd;

    (void)snprintf(path, sizeof(path), "%s.arrived", control);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)!write(fd, "\n", 1);
        (void)close(fd);
    }
}

int fdatasync(int fd)
{
    int (*real)(int);
    int told = 0;

    *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    while (is_log(fd) && says("block")) {
        struct timespec pause = {.tv_nsec = 1000000};
        if (!told) {
            tell_arrival();
            told = 1;
        }
        (void)nanosleep(&pause, NULL);
    }
    if (is_log(fd) && says("broken")) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

static ssize_t write_at(const char *name, int fd, const void *bytes, size_t len, int64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, int64_t);

    *(void **)&real = dlsym(RTLD_NEXT, name);
    if (is_log(fd) && says("full")) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, len, offset);
}

/* Which of the two a library calls depends on how it was compiled; where off_t has 64 bits they are the same. */
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    return write_at("pwrite", fd, bytes, len, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset)
{
    return write_at("pwrite64", fd, bytes, len, offset);
}

static int is_store(const char *path)
{
    size_t len = strlen(path);

    return len >= 5 && strcmp(path + len - 5, "store") == 0;
}

/* What a user with write access to the directory above can do at the worst moment. */
int mkdirat(int directory, const char *name, mode_t mode)
{
    int (*real)(int, const char *, mode_t);
    char aside[4096], target[4200];
    int rc;

    *(void **)&real = dlsym(RTLD_NEXT, "mkdirat");
    rc = real(directory, name, mode);
    if (rc == 0 && is_store(name) && says("link")) {
        (void)snprintf(aside, sizeof(aside), "%s.aside", name);
        (void)snprintf(target, sizeof(target), "%s.target", control);
        if (renameat(directory, name, directory, aside) != 0 ||
            symlinkat(target, directory, name) != 0) {
            abort();
        }
    }
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}
