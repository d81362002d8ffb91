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

static int fail(once__op_t *op)
{
    op->error = once__disk_code();
    return -1;
}

/* Reads what is there of `len` bytes from `from` on into new memory. -1 after an error. */
static ssize_t read_part(int fd, uint64_t from, size_t len, char **text, once__op_t *op)
{
    ssize_t there;

    *text = malloc(len);
    if (*text == NULL) {
        op->error = ONCE_E_NOMEM;
        return -1;
    }
    there = once__disk_read(&once__real_disk, fd, *text, len, from);
    return there < 0 ? fail(op) : there;
}

/*
 * The end of the last whole line, and where that line begins. Returns 0, or -1 after an error. What is not an entry may be of any
 * length: then the window grows.
 */
static int find_end(int fd, uint64_t size, uint64_t *end, uint64_t *last, once__op_t *op)
{
    size_t window = 2 * (ONCE__AUDIT_LINE_MAX + 1);
    uint64_t from;
    ssize_t len;

    do {
        char *text;
        from = size > window ? size - window : 0;
        len = read_part(fd, from, window, &text, op);
        if (len >= 0) {
            *end = from + once__audit_whole_lines(text, (size_t)len);
            *last = from + once__audit_last_line(text, (size_t)len);
        }
        free(text);
        window *= 2;
    } while (len >= 0 && from > 0 && *last == from);
    return len >= 0 ? 0 : -1;
}

static void read_lines(int fd, once__op_t *op)
{
    uint64_t end, last;
    off_t size = lseek(fd, 0, SEEK_END);
    size_t step = ONCE__AUDIT_STEP;
    char *text = NULL;
    ssize_t len;

    if (size < 0 || find_end(fd, (uint64_t)size, &end, &last, op) != 0) {
        (void)(size < 0 ? fail(op) : 0);
        return;
    }
    op->end = op->place == UINT64_MAX ? last : op->place;
    if (op->end >= end) {
        return;
    }
    do { /* until a line is whole: one ends at `end` */
        free(text);
        len = read_part(fd, op->end, step, &text, op);
        op->count = len > 0 ? once__audit_whole_lines(text, (size_t)len) : 0;
        step *= 2;
    } while (op->count == 0 && len > 0 && op->end + (uint64_t)len < end);
    if (op->count == 0) {
        op->error = op->error == ONCE_OK ? ONCE_E_CORRUPT : op->error; /* it was cut meanwhile */
        free(text);
        return;
    }
    op->lines = text;
    op->end += op->count;
}

/* One write: another process sees the line whole or not at all. */
static int append(int fd, uint64_t end, once__op_t *op)
{
    char line[ONCE__AUDIT_LINE_MAX + 1];
    size_t len = op->payload.len + 1;

    memcpy(line, op->payload.data, op->payload.len);
    line[op->payload.len] = '\n';
    if (!once__disk_allows(end + len)) {
        op->error = ONCE_E_FULL;
        return -1;
    }
    if (once__disk_write(&once__real_disk, fd, line, len, end) != 0 || fdatasync(fd) != 0) {
        (void)fail(op);
        if (ftruncate(fd, (off_t)end) != 0) {
            op->error = ONCE_E_NOREPLY; /* it may count: the caller finds out */
        }
        return -1;
    }
    return 0;
}

static void add_line(const once__local_t *local, int fd, once__op_t *op)
{
    uint64_t end, last;
    off_t size = lseek(fd, 0, SEEK_END);

    if (op->payload.len > ONCE__AUDIT_LINE_MAX) {
        op->error = ONCE_E_TOO_BIG;
        return;
    }
    if (size < 0 || find_end(fd, (uint64_t)size, &end, &last, op) != 0) {
        (void)(size < 0 ? fail(op) : 0);
        return;
    }
    if (op->place != end) {
        op->error = ONCE_E_CONFLICT;
        return;
    }
    if (((uint64_t)size > end && ftruncate(fd, (off_t)end) != 0) ||
        (size == 0 && fsync(local->directory.fd) != 0)) {
        (void)fail(op);
        return;
    }
    if (append(fd, end, op) == 0) {
        op->end = end + op->payload.len + 1;
    }
}

void once__local_audit(const once__local_t *local, once__op_t *op)
{
    int is_add = op->kind == ONCE__OP_AUDIT_ADD;
    int fd =
        openat(local->directory.fd, "audit",
               (is_add ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    once__op_clear(op);
    if (fd < 0 && errno == ENOENT) { /* nothing was ever decided */
        op->end = 0;
        return;
    }
    if (fd < 0) {
        (void)fail(op);
        return;
    }
    if (once__disk_lock(fd, is_add ? LOCK_EX : LOCK_SH, LOCK_WAIT_MS) != ONCE_OK) {
        op->error = ONCE_E_UNAVAILABLE; /* another process stands still with it; nothing was done */
    } else if (is_add) {
        add_line(local, fd, op);
    } else {
        read_lines(fd, op);
    }
    once__segments_unlock(fd);
}
