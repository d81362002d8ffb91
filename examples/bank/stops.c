#include "stops.h"

#ifdef BANK_STOPS

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void stop_at(const char *place, const char *key, int server_pid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("BANK_STOPS");
    char text[512];
    int fd, len;

    if (path == NULL || strlen(path) >= sizeof(address.sun_path) || strncmp(key, "stop-", 5) != 0) {
        return;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
        len = snprintf(text, sizeof(text), "%s %s %d %d\n", place, key, getpid(), server_pid);
        if (send(fd, text, (size_t)len, MSG_NOSIGNAL) == len) {
            (void)!read(fd, text, 1); /* until the other side hangs up */
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}

#else
typedef int stops_are_not_built_in;
#endif
