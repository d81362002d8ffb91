#include "cli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/text.h"

#define FIRST_ROOM 4096

/* Makes room for at least one more byte and the terminator. 0 or -1. */
static int grow(once__cli_bytes_t *bytes, size_t *room)
{
    char *data;

    if (bytes->len + 1 < *room) {
        return 0;
    }
    data = realloc(bytes->data, *room == 0 ? FIRST_ROOM : *room * 2);
    if (data == NULL) {
        return -1;
    }
    bytes->data = data;
    *room = *room == 0 ? FIRST_ROOM : *room * 2;
    return 0;
}

/* Reads to the end. 0, or an errno; EFBIG: more than `limit`. */
static int read_all(int fd, size_t limit, once__cli_bytes_t *bytes)
{
    size_t room = 0;

    for (;;) {
        ssize_t got;
        if (grow(bytes, &room) != 0) {
            return ENOMEM;
        }
        got = read(fd, bytes->data + bytes->len, room - bytes->len - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return errno;
        }
        bytes->len += (size_t)got;
        bytes->data[bytes->len] = '\0';
        if (bytes->len > limit) {
            return EFBIG;
        }
        if (got == 0) {
            return 0;
        }
    }
}

int once__cli_read_file(const char *path, size_t limit, once__cli_bytes_t *bytes)
{
    int is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : 0;

    memset(bytes, 0, sizeof(*bytes));
    if (error == 0) {
        error = read_all(fd, limit, bytes);
    }
    if (fd >= 0 && !is_stdin) {
        close(fd);
    }
    if (error == 0) {
        return ONCE__CLI_OK;
    }
    once__cli_bytes_free(bytes);
    if (error == EFBIG) {
        once__cli_say("%s is larger than the limit of %zu bytes",
                      is_stdin ? "standard input" : once__cli_shown(path).text, limit);
        return ONCE__CLI_USAGE;
    }
    once__cli_say("cannot read %s: %s", is_stdin ? "standard input" : once__cli_shown(path).text,
                  strerror(error));
    return ONCE__CLI_STORE;
}

void once__cli_bytes_free(once__cli_bytes_t *bytes)
{
    free(bytes->data);
    memset(bytes, 0, sizeof(*bytes));
}

void once__cli_chomp(once__cli_bytes_t *bytes)
{
    if (bytes->len > 0 && bytes->data[bytes->len - 1] == '\n') {
        bytes->len--;
        if (bytes->len > 0 && bytes->data[bytes->len - 1] == '\r') {
            bytes->len--;
        }
        bytes->data[bytes->len] = '\0';
    }
}
