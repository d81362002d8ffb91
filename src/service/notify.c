/*
 * The protocol is a datagram to the socket that the environment names; it is documented and stable, and not worth a library.
 */
#include "service/notify.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"

static struct {
    int asked;            /* the environment was looked at */
    int ready;            /* systemd knows */
    uint64_t interval_ms; /* of signs of life; 0: no watchdog */
    uint64_t due_ms;
} state;

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Best effort: a lost sign of life is followed by another one. */
static void tell(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path != NULL ? strlen(path) : 0;
    int fd;

    if (len < 2 || len >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    memcpy(address.sun_path, path, len);
    if (path[0] == '@') {
        address.sun_path[0] = '\0'; /* an abstract socket */
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
        close(fd);
    }
}

/* WATCHDOG_USEC is for the process that WATCHDOG_PID names. */
static void look_at_environment(void)
{
    const char *text = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t usec = 0, number = 0;

    state.asked = 1;
    if (text == NULL || once__number_parse(text, strlen(text), &usec) != 0) {
        return;
    }
    if (pid == NULL ||
        (once__number_parse(pid, strlen(pid), &number) == 0 && number == (uint64_t)getpid())) {
        state.interval_ms = usec / 2000 < 3600000 ? usec / 2000 : 3600000;
    }
}

int once__service_notify_turn(void)
{
    uint64_t now;

    if (!state.asked) {
        look_at_environment();
    }
    if (!state.ready) {
        state.ready = 1;
        tell("READY=1");
    }
    if (state.interval_ms == 0) {
        return -1;
    }
    now = now_ms();
    if (now >= state.due_ms) {
        state.due_ms = now + state.interval_ms;
        tell("WATCHDOG=1");
    }
    return (int)(state.due_ms - now);
}

void once__service_notify_stopping(void)
{
    tell("STOPPING=1");
}
