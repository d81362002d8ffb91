/*
 * What concerns the store as a whole: its secrets, its expired records, its size.
 */
#include "store/local/local_inside.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "core/secrets.h"
#include "store/local/look.h"
#include "store/secret_file.h"

#define PATIENCE_MS 100   /* for so long others wait while a handle drops segments by itself */
#define SWEEP_STEP  10000 /* records that a handle looks at when it reaps by itself */

/* ----------------------------------------------------------------------------------------------------------- secrets */

/* Another directory has taken our place: others work in that one. One that is only gone may come back. */
static int is_moved(const once__local_t *local)
{
    char path[PATH_MAX];
    struct stat here, there;
    int len = (int)strlen(local->directory.secrets_path) - (int)strlen("/secrets");

    (void)snprintf(path, sizeof(path), "%.*s", len, local->directory.secrets_path);
    return fstat(local->directory.fd, &here) == 0 && stat(path, &there) == 0 &&
           (here.st_ino != there.st_ino || here.st_dev != there.st_dev);
}

static int is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads them again when the file has changed: a rotation, or somebody else's. */
static void look_at_secrets(once__local_t *local)
{
    once__local_mark_t *mark = &local->mark;
    char text[ONCE__SECRETS_TEXT_SIZE];
    once__secrets_t secrets;
    struct stat st;

    if (fstatat(local->directory.fd, "secrets", &st, 0) != 0) {
        mark->is_there = 0;
        return;
    }
    if (mark->is_there && is_same_file(&st, &mark->file)) {
        return;
    }
    mark->is_there = once__secret_file_read(local->directory.secrets_path, text, sizeof(text),
                                            NULL) == ONCE_OK &&
                     once__secrets_parse(&secrets, text, strlen(text), NULL) == ONCE_OK;
    if (mark->is_there) {
        once__secrets_mark(&secrets, mark->bytes);
        once__secrets_wipe(&secrets);
        mark->file = st;
    }
    OPENSSL_cleanse(text, sizeof(text));
}

int once__local_fits(once__local_t *local, const once__op_t *op)
{
    once__local_mark_t *mark = &local->mark;

    if (mark->fits < 0) {
        mark->fits = !is_moved(local);
        if (mark->fits && op->mark != NULL) {
            look_at_secrets(local);
            mark->fits = mark->is_there && once__equal(mark->bytes, op->mark, ONCE__MARK_SIZE);
        }
    }
    return mark->fits;
}

/* Without the secrets that made their ids nobody finds them: with new ones, every key would count as never used. */
static int has_records(const once__local_t *local)
{
    once__index_stats_t stats;

    once__index_stats(local->records.index, &stats);
    return stats.entries > 0;
}

/* The file was removed, and its secrets are brought back by whoever has used them. */
static int brings_back(const once__local_t *local, const once__op_t *op)
{
    return once__equal(local->mark.bytes, op->mark, ONCE__MARK_SIZE);
}

static int read_secrets(const once__local_t *local, once__op_t *op)
{
    const char *path = local->directory.secrets_path;
    int code = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);

    if (code == ONCE_E_NOT_FOUND && has_records(local) && !brings_back(local, op)) {
        /* Once more: somebody may have made them since then, and those records with them. */
        code = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);
        code = code == ONCE_E_NOT_FOUND ? ONCE_E_SECRET : code;
    }
    return code;
}

void once__local_secrets(once__local_t *local, once__op_t *op)
{
    const char *path = local->directory.secrets_path;

    if (is_moved(local)) {
        op->error = ONCE_E_SECRET;
        return;
    }
    if (op->kind == ONCE__OP_SECRETS_SWAP) {
        op->error = once__secret_file_swap(path, op->secrets_old, op->secrets_new, NULL);
        return;
    }
    op->error = read_secrets(local, op);
    if (op->error == ONCE_E_NOT_FOUND) {
        op->error = once__secret_file_create(path, op->secrets_new, NULL);
        if (op->error == ONCE_OK) {
            op->error = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);
        }
    } else if (op->error == ONCE_OK) {
        op->error = once__secret_file_keep(path, NULL);
    }
}

static int carry(void *data, uint32_t segment, int everything)
{
    return once__records_carry(data, segment, everything);
}

/*
 * Expiry goes by segments: whole files, without a look at any record, so `limit` has no meaning for that. What expired in
 * segments that must stay is taken out of the index: all of it when somebody asks, a little at a time otherwise.
 */
void once__local_reap(once__local_t *local, once__op_t *op)
{
    const once__index_t *index = local->records.index;
    uint64_t now = once__index_now(index);
    uint32_t end = once__index_end_segment(index); /* not what we carry records to meanwhile */
    int code = ONCE_OK;

    op->now = now;
    op->count = 0;
    while (code == ONCE_OK && once__index_first_segment(index) < end) {
        code = once__log_drop(local->records.log, now, carry, &local->records, &op->count);
        if (code == ONCE_OK && !op->thorough && !local->threadless &&
            once__index_now(index) - now > PATIENCE_MS) {
            op->count = op->limit; /* as if that were reached: then it is asked for again soon */
            op->error = ONCE_OK;
            return;
        }
    }
    op->error = code == ONCE_E_NOT_FOUND ? ONCE_OK : code;
    if (once__log_failed(local->records.log) || (op->limit != 0 && op->count >= op->limit)) {
        return;
    }
    /* Also when a segment cannot go for now: what expired in the others need not wait for that. */
    if (op->thorough || op->count == 0) {
        op->count += once__records_sweep(&local->records, op->thorough ? 0 : SWEEP_STEP,
                                         op->limit == 0 ? 0 : op->limit - op->count);
    }
}

void once__local_stats(once__local_t *local, once__op_t *op)
{
    const once__index_t *index = local->records.index;
    once__sizes_t sizes;

    once__records_stats(&local->records, op);
    once__directory_sizes(&local->directory, &sizes);
    op->stats.segments = once__index_end_segment(index) - once__index_first_segment(index);
    op->stats.index_bytes = sizes.index_bytes;
    op->stats.spare_bytes = sizes.spare_bytes;
    op->stats.summary_bytes = sizes.summary_bytes;
    op->stats.quarantined = sizes.quarantined;
}
