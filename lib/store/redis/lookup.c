#include "store/redis/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/thread.h"

struct once__redis_lookup {
    atomic_int users; /* the thread and the connection */
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

struct addrinfo *once__redis_lookup_numeric(const char *host, uint16_t port)
{
    char text[8];

    (void)snprintf(text, sizeof(text), "%u", port);
    return look_up(host, text, AI_NUMERICHOST);
}

static void leave(once__redis_lookup_t *lookup)
{
    if (atomic_fetch_sub(&lookup->users, 1) == 1) {
        struct addrinfo *found = atomic_load(&lookup->found);
        if (found != NULL) {
            freeaddrinfo(found);
        }
        (void)close(lookup->fd);
        free(lookup);
    }
}

static void *run(void *data)
{
    once__redis_lookup_t *lookup = data;
    uint64_t one = 1;

    atomic_store(&lookup->found, look_up(lookup->host, lookup->port, AI_ADDRCONFIG));
    while (write(lookup->fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    leave(lookup);
    return NULL;
}

static int start_thread(once__redis_lookup_t *lookup)
{
    pthread_t thread;

    if (once__spawn(&thread, run, lookup) != 0) {
        return -1;
    }
    (void)pthread_detach(thread);
    return 0;
}

once__redis_lookup_t *once__redis_lookup_start(const char *host, uint16_t port, int *fd)
{
    once__redis_lookup_t *lookup = calloc(1, sizeof(*lookup) + strlen(host) + 1);

    if (lookup == NULL) {
        return NULL;
    }
    (void)snprintf(lookup->port, sizeof(lookup->port), "%u", port);
    memcpy(lookup->host, host, strlen(host) + 1);
    atomic_init(&lookup->users, 2);
    lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->fd < 0 || start_thread(lookup) != 0) {
        if (lookup->fd >= 0) {
            (void)close(lookup->fd);
        }
        free(lookup);
        return NULL;
    }
    *fd = lookup->fd;
    return lookup;
}

struct addrinfo *once__redis_lookup_take(once__redis_lookup_t *lookup)
{
    return atomic_exchange(&lookup->found, NULL);
}

void once__redis_lookup_free(once__redis_lookup_t *lookup)
{
    leave(lookup);
}
