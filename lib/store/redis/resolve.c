#include "store/redis/resolve.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct once__resolve {
    atomic_int users; /* the thread, and whoever asked */
    int fd;
    _Atomic(struct addrinfo *) found;
    char port[8];
    char host[];
};

static struct addrinfo *look_up(const char *host, const char *port, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;

    return getaddrinfo(host, port, &hints, &found) == 0 ? found : NULL;
}

struct addrinfo *once__resolve_number(const char *host, uint16_t port)
{
    char text[8];

    (void)snprintf(text, sizeof(text), "%u", port);
    return look_up(host, text, AI_NUMERICHOST);
}

static void leave(once__resolve_t *resolve)
{
    if (atomic_fetch_sub(&resolve->users, 1) == 1) {
        struct addrinfo *found = atomic_load(&resolve->found);
        if (found != NULL) {
            freeaddrinfo(found);
        }
        (void)close(resolve->fd);
        free(resolve);
    }
}

static void *run(void *data)
{
    once__resolve_t *resolve = data;
    uint64_t one = 1;

    atomic_store(&resolve->found, look_up(resolve->host, resolve->port, AI_ADDRCONFIG));
    while (write(resolve->fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    leave(resolve);
    return NULL;
}

/* The host's signals are for the host's threads. */
static int start_thread(once__resolve_t *resolve)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int code;

    if (pthread_attr_init(&attributes) != 0) {
        return -1;
    }
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&thread, &attributes, run, resolve);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return code == 0 ? 0 : -1;
}

once__resolve_t *once__resolve_start(const char *host, uint16_t port, int *fd)
{
    once__resolve_t *resolve = calloc(1, sizeof(*resolve) + strlen(host) + 1);

    if (resolve == NULL) {
        return NULL;
    }
    (void)snprintf(resolve->port, sizeof(resolve->port), "%u", port);
    memcpy(resolve->host, host, strlen(host) + 1);
    atomic_init(&resolve->users, 2);
    resolve->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (resolve->fd < 0 || start_thread(resolve) != 0) {
        if (resolve->fd >= 0) {
            (void)close(resolve->fd);
        }
        free(resolve);
        return NULL;
    }
    *fd = resolve->fd;
    return resolve;
}

struct addrinfo *once__resolve_take(once__resolve_t *resolve)
{
    return atomic_exchange(&resolve->found, NULL);
}

void once__resolve_free(once__resolve_t *resolve)
{
    leave(resolve);
}
