/*
 * The audit trail in the directory of a store: the file `audit`, to which lines are only ever appended.
 *
 * A line counts when its newline is in the file; it is synced before the answer. What a crash left of a line that nobody was
 * answered for is cut off by the next one. The lock is that of the file: any process may append.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/audit.h"
#include "store/local/local.h"

#define LOCK_WAIT_MS 1000

/* Reads what is there of `len` bytes from `from` on into new memory, which the caller frees also after an error. */
static int read_part(int fd, uint64_t from, size_t len, char **text, size_t *there)
{
    ssize_t n;

    *there = 0;
    *text = malloc(len);
    if (*text == NULL) {
        return ONCE_E_NOMEM;
    }
    n = once__disk_read(&once__real_disk, fd, *text, len, from);
    *there = n > 0 ? (size_t)n : 0;
    return n < 0 ? once__disk_code() : ONCE_OK;
}

/*
 * The size of the file, the end of the last whole line, and where that line begins. What is not an entry may be of any length: then
 * the window grows.
 */
static int find_end(int fd, uint64_t *size, uint64_t *end, uint64_t *last)
{
    size_t window = 2 * (ONCE__AUDIT_LINE_MAX + 1), len;
    off_t all = lseek(fd, 0, SEEK_END);
    uint64_t from;
    int code;

    *size = all > 0 ? (uint64_t)all : 0;
    *end = *last = 0;
    if (all < 0) {
        return once__disk_code();
    }
    do {
        char *text;
        from = *size > window ? *size - window : 0;
        code = read_part(fd, from, window, &text, &len);
        if (code == ONCE_OK) {
            *end = from + once__audit_whole_lines(text, len);
            *last = from + once__audit_last_line(text, len);
        }
        free(text);
        window *= 2;
    } while (code == ONCE_OK && from > 0 && *last == from);
    return code;
}

static int read_lines(int fd, once__op_t *op)
{
    size_t step = ONCE__AUDIT_STEP, len;
    uint64_t size, end, last;
    char *text = NULL;
    int code = find_end(fd, &size, &end, &last);

    if (code != ONCE_OK) {
        return code;
    }
    op->end = op->place == UINT64_MAX ? last : op->place;
    if (op->end >= end) {
        return ONCE_OK;
    }
    do { /* until a line is whole: one ends at `end` */
        free(text);
        code = read_part(fd, op->end, step, &text, &len);
        op->count = code == ONCE_OK ? once__audit_whole_lines(text, len) : 0;
        step *= 2;
    } while (op->count == 0 && len > 0 && op->end + len < end);
    if (op->count == 0) {
        free(text);
        return code == ONCE_OK ? ONCE_E_CORRUPT : code; /* it was cut meanwhile */
    }
    op->lines = text;
    op->end += op->count;
    return ONCE_OK;
}

/* One write: another process sees the line whole or not at all. */
static int append(int fd, uint64_t end, const once__op_t *op)
{
    char line[ONCE__AUDIT_LINE_MAX + 1];
    size_t len = op->payload.len + 1;
    int code;

    memcpy(line, op->payload.data, op->payload.len);
    line[op->payload.len] = '\n';
    if (!once__disk_allows(end + len)) {
        return ONCE_E_FULL;
    }
    if (once__disk_write(&once__real_disk, fd, line, len, end) == 0 && fdatasync(fd) == 0) {
        return ONCE_OK;
    }
    code = once__disk_code();
    return ftruncate(fd, (off_t)end) == 0 ? code
                                          : ONCE_E_NOREPLY; /* it may count: the caller finds out */
}

static int add_line(const once__local_t *local, int fd, once__op_t *op)
{
    uint64_t size, end, last;
    int code =
        op->payload.len <= ONCE__AUDIT_LINE_MAX ? find_end(fd, &size, &end, &last) : ONCE_E_TOO_BIG;

    if (code != ONCE_OK) {
        return code;
    }
    if (op->place != end) {
        return ONCE_E_CONFLICT;
    }
    if ((size > end && ftruncate(fd, (off_t)end) != 0) ||
        (size == 0 && fsync(local->directory.fd) != 0)) {
        return once__disk_code();
    }
    code = append(fd, end, op);
    op->end = code == ONCE_OK ? end + op->payload.len + 1 : op->end;
    return code;
}

void once__local_audit(const once__local_t *local, once__op_t *op)
{
    int is_add = op->kind == ONCE__OP_AUDIT_ADD;
    int fd =
        openat(local->directory.fd, "audit",
               (is_add ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    once__op_clear(op);
    if (fd < 0) {
        op->error = errno == ENOENT ? ONCE_OK : once__disk_code(); /* nothing was ever decided */
        op->end = errno == ENOENT ? 0 : op->end;
    } else if (once__disk_lock(fd, is_add ? LOCK_EX : LOCK_SH, LOCK_WAIT_MS) != ONCE_OK) {
        op->error = ONCE_E_UNAVAILABLE; /* another process stands still with it; nothing was done */
    } else {
        op->error = is_add ? add_line(local, fd, op) : read_lines(fd, op);
    }
    once__segments_unlock(fd);
}
