#include "support/memory.h"

#include <errno.h>
#include <stddef.h>

static unsigned countdown;
static int failed;

void memory_fail_at(unsigned n)
{
    countdown = n;
    failed = 0;
}

int memory_failed(void)
{
    return failed;
}

static int must_fail(void)
{
    if (countdown == 0 || --countdown > 0) {
        return 0;
    }
    failed = 1;
    errno = ENOMEM;
    return 1;
}

/* The linker's names: every call to NAME in the program's objects becomes one to __wrap_NAME. */
#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return must_fail() ? NULL : __real_##name arguments;                                       \
    }

WRAP(void *, malloc, (size_t size), (size))
WRAP(void *, calloc, (size_t count, size_t size), (count, size))
WRAP(void *, realloc, (void *old, size_t size), (old, size))
WRAP(char *, strdup, (const char *text), (text))
