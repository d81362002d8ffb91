#include "local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

void place_make(place_t *place, const char *options)
{
    snprintf(place->top, sizeof(place->top), "/tmp/once-local-XXXXXX");
    assert_non_null(mkdtemp(place->top));
    snprintf(place->store, sizeof(place->store), "%s/store", place->top);
    snprintf(place->url, sizeof(place->url), "local:%s%s", place->store, options);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

void place_remove(const place_t *place)
{
    assert_int_equal(nftw(place->top, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *inside(const place_t *place, const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", place->store, name);
    return path;
}

int count_names(const char *path)
{
    DIR *stream = opendir(path);
    int count = -2; /* . and .. */

    if (stream == NULL) {
        return -1;
    }
    while (readdir(stream) != NULL) {
        count++;
    }
    closedir(stream);
    return count;
}

void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

void copy_tree(const char *from, const char *to)
{
    char command[512];

    snprintf(command, sizeof(command), "cp -a '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

void spoil(const char *path, long offset, size_t len)
{
    int fd = open(path, O_RDWR);

    assert_true(fd >= 0);
    for (size_t i = 0; i < len; i++) {
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, offset + (long)i), 1);
        byte = (uint8_t)~byte;
        assert_int_equal(pwrite(fd, &byte, 1, offset + (long)i), 1);
    }
    close(fd);
}

void assert_open_fails(const char *url, int code, const char *text)
{
    once_error_t err = {0};
    once_t *once = NULL;
    int got = once_open(url, NULL, &once, &err);

    if (got != code) {
        print_error("%s: %s\n", once_error_name(got), err.text);
    }
    assert_int_equal(got, code);
    assert_int_equal(err.code, code);
    assert_null(once);
    assert_has(err.text, text);
    assert_true(is_harmless(err.text));
}

int in_child(int (*work)(void *data), void *data)
{
    int status;
    pid_t pid;

    fflush(stdout);
    fflush(stderr);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("CMOCKA_TEST_ABORT", "1",
               1); /* an assertion that fails ends the child, not only the test */
        _exit(work(data));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void companion_start(companion_t *companion, int (*work)(int ready, int until, void *data),
                     void *data)
{
    int ready[2], until[2];
    char byte;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(until, O_CLOEXEC), 0);
    companion->pid = fork();
    assert_true(companion->pid >= 0);
    if (companion->pid == 0) {
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        close(ready[0]);
        close(until[1]);
        _exit(work(ready[1], until[0], data));
    }
    close(ready[1]);
    close(until[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    companion->until = until[1];
}

void companion_stop(companion_t *companion)
{
    int status;

    /* A byte, because companions that were started later have this end, too. */
    assert_int_equal(write(companion->until, "", 1), 1);
    close(companion->until);
    assert_int_equal(waitpid(companion->pid, &status, 0), companion->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
