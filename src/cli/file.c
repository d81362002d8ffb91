#include "cli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/text.h"

#define PIECE ((size_t)4096)

/* Reads to the end, of a pipe as of a file: the length is not known before. 0, or an errno; EFBIG: more than `limit`. */
static int read_all(int fd, size_t limit, once__cli_bytes_t *bytes)
{
    once__buf_t buf = ONCE__BUF(limit + 1);
    ssize_t got = 1;
    int error = 0;

    while (error == 0 && got != 0) {
        size_t more = buf.max - buf.len < PIECE ? buf.max - buf.len : PIECE;
        char *room = once__buf_reserve(&buf, more);
        got = room != NULL ? read(fd, room, more) : -1;
        if (got > 0) {
            once__buf_added(&buf, (size_t)got);
            error = buf.len > limit ? EFBIG : 0;
        } else if (got < 0 && (room == NULL || errno != EINTR)) {
            error = room == NULL ? ENOMEM : errno;
        }
    }
    bytes->len = buf.len;
    bytes->data = error == 0 ? once__buf_take(&buf) : NULL;
    once__buf_free(&buf);
    return error;
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
