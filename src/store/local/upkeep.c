/*
 * What concerns the store as a whole: its secrets, its expired records, its size.
 */
#include "store/local/local_inside.h"
#include "store/local/look.h"
#include "store/secret_file.h"

#define PATIENCE_MS 100   /* for so long others wait while a handle drops segments by itself */
#define SWEEP_STEP  10000 /* records that a handle looks at when it reaps by itself */

/* Without the secrets that made their ids nobody finds them: with new ones, every key would count as never used. */
static int has_records(const once__local_t *local)
{
    once__index_stats_t stats;

    once__index_stats(local->records.index, &stats);
    return stats.entries > 0;
}

static int read_secrets(const once__local_t *local, once__op_t *op)
{
    const char *path = local->directory.secrets_path;
    int code = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);

    if (code == ONCE_E_NOT_FOUND && has_records(local)) {
        /* Once more: somebody may have made them since then, and those records with them. */
        code = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);
        code = code == ONCE_E_NOT_FOUND ? ONCE_E_SECRET : code;
    }
    return code;
}

void once__local_secrets(once__local_t *local, once__op_t *op)
{
    const char *path = local->directory.secrets_path;

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
