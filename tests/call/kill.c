/*
 * Preloaded into `once call`: kills it with SIGKILL at the call number CALL_KILL_AT of those by which it touches the outside world:
 * before the call if the number is odd, after it if it is even. CALL_KILL_AT=0 only counts, into the file CALL_KILL_COUNT.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static unsigned long at, calls;

__attribute__((constructor)) static void prepare(void)
{
    const char *text = getenv("CALL_KILL_AT");

    at = text != NULL ? strtoul(text, NULL, 10) : 0;
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("CALL_KILL_COUNT");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;

    if (file != NULL) {
        fprintf(file, "%lu\n", calls);
        fclose(file);
    }
}

static void step(void)
{
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) == at) {
        kill(getpid(), SIGKILL);
    }
}

#define STAND_IN(result, name, parameters, arguments)                                              \
    result name parameters                                                                         \
    {                                                                                              \
        static result(*real) parameters;                                                           \
        result got;                                                                                \
        if (real == NULL) {                                                                        \
            real = (result(*) parameters)dlsym(RTLD_NEXT, #name);                                  \
        }                                                                                          \
        step();                                                                                    \
        got = real arguments;                                                                      \
        step();                                                                                    \
        return got;                                                                                \
    }

STAND_IN(int, fdatasync, (int fd), (fd))
STAND_IN(int, connect, (int fd, const struct sockaddr *address, socklen_t len), (fd, address, len))
STAND_IN(ssize_t, send, (int fd, const void *data, size_t len, int flags), (fd, data, len, flags))
STAND_IN(ssize_t, recv, (int fd, void *data, size_t len, int flags), (fd, data, len, flags))
