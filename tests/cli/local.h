/*
 * Local stores in directories of their own, and other processes that use them.
 */
#ifndef TESTS_CLI_LOCAL_H
#define TESTS_CLI_LOCAL_H

#include <sys/types.h>

#include <once/once.h>

typedef struct place {
    char top[64];   /* a new directory */
    char store[80]; /* in it; not made */
    char url[256];  /* of the store */
} place_t;

/* `options` come behind the path: "" or "?segment=64k". */
void place_make(place_t *place, const char *options);
void place_remove(const place_t *place);

/* The path of a file in the store; in one buffer. */
const char *inside(const place_t *place, const char *name);

/* How many names a directory has; -1: there is none. */
int count_names(const char *path);
void write_text(const char *path, const char *text);
void copy_tree(const char *from, const char *to);

/* Changes bytes of a file. */
void spoil(const char *path, long offset, size_t len);

/* Opens the store with nothing running by itself, and expects this error. */
void assert_open_fails(const char *url, int code, const char *text);

/* Runs `work` in a child and returns its exit code, or -1 when it was killed. */
int in_child(int (*work)(void *data), void *data);

/* Starts `work` in a child that stops when a byte arrives on `until`, and waits until it has said that it is ready. */
typedef struct companion {
    pid_t pid;
    int until; /* the parent's end */
} companion_t;

void companion_start(companion_t *companion, int (*work)(int ready, int until, void *data),
                     void *data);
/* Tells it to stop and expects exit code 0. */
void companion_stop(companion_t *companion);

#endif
