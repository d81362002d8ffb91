#include "store/local/local.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/units.h"
#include "core/url.h"
#include "store/local/decide.h"
#include "store/local/directory.h"
#include "store/local/look.h"
#include "store/local/summariser.h"
#include "store/local/thread.h"
#include "store/oplist.h"
#include "store/secret_file.h"

#define SEGMENT_SIZE     ((uint64_t)64 << 20)
#define SEGMENT_SIZE_MIN ((uint64_t)64 << 10)
#define SEGMENT_SIZE_MAX ((uint64_t)1 << 30)
#define SWEEP_STEP       10000 /* records that a handle looks at when it reaps by itself */

typedef struct local {
    once__store_t base;
    once__loop_t *loop;
    once__source_t source; /* the eventfd: answers are there */
    once__directory_t directory;
    once__records_t records;
    once__disk_t disk;

    once__oplist_t submitted; /* the host's, until dispatch hands it over */
    once__records_t glances;  /* of the host: its own log, for reading only */
    uint32_t first_segment;   /* when it last looked */
    _Atomic int failed;       /* the log has: nothing is answered any more but that */
    _Atomic int lost;         /* the index was cut short */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    once__oplist_t queue;   /* for the writer; under the lock, like `answers` */
    once__oplist_t answers; /* for the host */
    int stop;

    once__summariser_t summariser;
    char trouble[128]; /* when it was opened */

    int threadless;         /* over a simulated loop: its owner does the writer's work */
    once__oplist_t decided; /* waits for the commit then */
} local_t;

/* ----------------------------------------------------------------------------------------------------------- writer */

static void give_answers(local_t *local, once__oplist_t *answers)
{
    static const uint64_t one = 1;
    int was_empty;

    if (answers->first == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&local->lock);
    was_empty = local->answers.first == NULL;
    once__oplist_move(&local->answers, answers);
    (void)pthread_mutex_unlock(&local->lock);
    if (was_empty && !local->threadless) {
        while (write(local->source.fd, &one, sizeof(one)) < 0 && errno == EINTR) {
        }
    }
}

/* Without the secrets that made their ids nobody finds them: with new ones, every key would count as never used. */
static int has_records(const local_t *local)
{
    once__index_stats_t stats;

    once__index_stats(local->records.index, &stats);
    return stats.entries > 0;
}

static void apply_secrets(local_t *local, once__op_t *op)
{
    const char *path = local->directory.secrets_path;

    if (op->kind == ONCE__OP_SECRETS_SWAP) {
        op->error = once__secret_file_swap(path, op->secrets_old, op->secrets_new, NULL);
        return;
    }
    op->error = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);
    if (op->error == ONCE_E_NOT_FOUND && has_records(local)) {
        op->error = ONCE_E_SECRET;
    } else if (op->error == ONCE_E_NOT_FOUND) {
        op->error = once__secret_file_create(path, op->secrets_new, NULL);
        if (op->error == ONCE_OK) {
            op->error = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);
        }
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
static void apply_reap(local_t *local, once__op_t *op)
{
    const once__index_t *index = local->records.index;
    uint64_t now = once__index_now(index);
    uint32_t end = once__index_end_segment(index); /* not what we carry records to meanwhile */
    int code = ONCE_OK;

    op->now = now;
    op->count = 0;
    while (code == ONCE_OK && once__index_first_segment(index) < end) {
        code = once__log_drop(local->records.log, now, carry, &local->records, &op->count);
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

static void add_sizes(const local_t *local, once__op_t *op)
{
    const once__index_t *index = local->records.index;
    once__sizes_t sizes;

    once__directory_sizes(&local->directory, &sizes);
    op->stats.segments = once__index_end_segment(index) - once__index_first_segment(index);
    op->stats.index_bytes = sizes.index_bytes;
    op->stats.spare_bytes = sizes.spare_bytes;
    op->stats.quarantined = sizes.quarantined;
}

/* Whether the answer waits for the sync. */
static int apply(local_t *local, once__op_t *op)
{
    switch (op->kind) {
    case ONCE__OP_EVENT:
    case ONCE__OP_GET:
        return once__records_apply(&local->records, op);
    case ONCE__OP_SCAN:
        once__records_scan(&local->records, op);
        return 0;
    case ONCE__OP_REAP:
        apply_reap(local, op);
        once__summariser_go(&local->summariser);
        return 0;
    case ONCE__OP_STATS:
        once__records_stats(&local->records, op);
        add_sizes(local, op);
        return 0;
    case ONCE__OP_SECRETS_LOAD:
    case ONCE__OP_SECRETS_SWAP:
        apply_secrets(local, op);
        return 0;
    }
    return 0;
}

/* After a failed sync nobody knows what is on the disk: whoever waited is told that, and nothing more is done. */
static void fail_all(once__oplist_t *list, int error)
{
    for (once__op_t *op = list->first; op != NULL; op = op->next) {
        free(op->record);
        op->record = NULL;
        op->error = error;
    }
}

/* Tells the processor what is coming: it fetches many records at a time, where we would wait for each. */
static void expect_batch(const local_t *local, const once__oplist_t *batch)
{
    for (const once__op_t *op = batch->first; op != NULL; op = op->next) {
        for (size_t at = 64; at < offsetof(once__op_t, filter); at += 64) {
            __builtin_prefetch((const char *)op + at, 1);
        }
        once__index_expect_shard(local->records.index, op->id);
    }
    for (const once__op_t *op = batch->first; op != NULL; op = op->next) {
        once__index_expect(local->records.index, op->id);
    }
}

/* Without all of its index the store cannot be used any more: not even to close it. */
static int is_lost(local_t *local)
{
    if (!atomic_load(&local->lost) &&
        !once__index_is_whole(local->records.index, local->directory.fd)) {
        atomic_store(&local->lost, 1);
        atomic_store(&local->failed, 1);
    }
    return atomic_load(&local->lost);
}

static void refuse_all(once__oplist_t *list)
{
    for (once__op_t *op = list->first; op != NULL; op = op->next) {
        op->record = NULL;
        op->error = ONCE_E_UNAVAILABLE;
    }
}

/* Answers what need not wait; the rest is moved to `later`. */
static void decide_batch(local_t *local, once__oplist_t *batch, once__oplist_t *later)
{
    once__oplist_t now;
    once__op_t *op = batch->first;

    once__oplist_init(&now);
    if (is_lost(local)) {
        refuse_all(batch);
        give_answers(local, batch);
        return;
    }
    expect_batch(local, batch);
    local->records.clock = once__index_now(local->records.index);
    while (op != NULL) {
        once__op_t *next = op->next;
        if (once__log_failed(local->records.log)) {
            op->error = ONCE_E_UNAVAILABLE;
            op->record = NULL;
            once__oplist_add(&now, op);
        } else {
            once__oplist_add(apply(local, op) ? later : &now, op);
        }
        op = next;
    }
    give_answers(local, &now);
}

/* The sync is also for what nobody waits for: until then, other processes take the record for busy. */
static void commit_batch(local_t *local, once__oplist_t *later)
{
    if (is_lost(local)) {
        fail_all(later, ONCE_E_NOREPLY);
    } else if (once__log_sync(local->records.log) != ONCE_OK) {
        fail_all(later, ONCE_E_NOREPLY);
        atomic_store(&local->failed, once__log_failed(local->records.log));
    }
    give_answers(local, later);
}

static void run_batch(local_t *local, once__oplist_t *batch)
{
    once__oplist_t later;

    once__oplist_init(&later);
    decide_batch(local, batch, &later);
    commit_batch(local, &later);
}

static void *write_batches(void *data)
{
    local_t *local = data;
    once__oplist_t batch;

    once__oplist_init(&batch);
    (void)pthread_mutex_lock(&local->lock);
    for (;;) {
        while (local->queue.first == NULL && !local->stop) {
            (void)pthread_cond_wait(&local->work, &local->lock);
        }
        if (local->queue.first == NULL) {
            break;
        }
        once__oplist_move(&batch, &local->queue);
        (void)pthread_mutex_unlock(&local->lock);
        run_batch(local, &batch);
        once__oplist_init(&batch);
        (void)pthread_mutex_lock(&local->lock);
    }
    (void)pthread_mutex_unlock(&local->lock);
    return NULL;
}

void once__local_decide(once__store_t *store)
{
    local_t *local = (local_t *)store;
    once__oplist_t batch;

    once__oplist_init(&batch);
    once__oplist_move(&batch, &local->queue);
    decide_batch(local, &batch, &local->decided);
}

void once__local_commit(once__store_t *store)
{
    local_t *local = (local_t *)store;

    commit_batch(local, &local->decided);
}

/* ------------------------------------------------------------------------------------------------------------- host */

static void local_submit(once__store_t *store, once__op_t *op)
{
    local_t *local = (local_t *)store;

    once__oplist_add(&local->submitted, op);
    once__loop_wake(local->loop);
}

static void answers_ready(once__source_t *source, uint32_t events)
{
    uint64_t ignored;

    while (read(source->fd, &ignored, sizeof(ignored)) < 0 && errno == EINTR) {
    }
}

/*
 * A replay needs no writer if what it wants is at hand: to hand it over and back costs more than all the rest of it. What can be
 * answered goes to `answers`.
 */
static void glance(local_t *local, once__oplist_t *answers)
{
    once__records_t *records = &local->glances;
    once__oplist_t all;
    once__op_t *op = local->submitted.first;

    once__oplist_init(&all);
    once__oplist_move(&all, &local->submitted);
    expect_batch(local, &all);
    records->clock = once__index_now(records->index);
    once__log_never_wait(records->log, records->clock);
    if (local->first_segment != once__index_first_segment(records->index)) {
        local->first_segment = once__index_first_segment(records->index);
        once__log_forget_readers(records->log);
    }
    while (op != NULL) {
        once__op_t *next = op->next;
        once__oplist_add(once__records_glance(records, op) ? answers : &local->submitted, op);
        op = next;
    }
}

static int local_dispatch(once__store_t *store)
{
    local_t *local = (local_t *)store;
    once__oplist_t answers;
    int count;

    once__oplist_init(&answers);
    (void)pthread_mutex_lock(&local->lock);
    once__oplist_move(&answers, &local->answers);
    (void)pthread_mutex_unlock(&local->lock);
    if (local->submitted.first != NULL && !atomic_load(&local->failed) && !is_lost(local)) {
        glance(local, &answers);
    }
    count = once__oplist_finish(&answers);
    if (local->submitted.first != NULL) {
        (void)pthread_mutex_lock(&local->lock);
        once__oplist_move(&local->queue, &local->submitted);
        (void)pthread_mutex_unlock(&local->lock);
        /* Unlocked: or the writer wakes up only to wait for the lock. */
        (void)pthread_cond_signal(&local->work);
    }
    return count;
}

/* ---------------------------------------------------------------------------------------------------------- opening */

static int read_config(const once__store_config_t *config, local_t *local, uint64_t *segment_size,
                       once_error_t *err)
{
    const char *size = once__url_take(config->url, "segment");
    const char *durability = once__url_take(config->url, "durability");

    *segment_size = SEGMENT_SIZE;
    if (config->path[0] == '\0') {
        return once__fail(err, ONCE_E_CONFIG, "local store: name a directory: local:PATH");
    }
    if (size != NULL &&
        (once__size_parse(size, segment_size) != 0 || *segment_size < SEGMENT_SIZE_MIN ||
         *segment_size > SEGMENT_SIZE_MAX || *segment_size % 4096 != 0)) {
        return once__fail(err, ONCE_E_CONFIG,
                          "segment: \"%.40s\" is not a size from 64k to 1g in steps of 4k", size);
    }
    if (durability != NULL && strcmp(durability, "full") != 0 &&
        strcmp(durability, "claims-relaxed") != 0) {
        return once__fail(err, ONCE_E_CONFIG,
                          "durability: \"%.40s\" is neither full nor claims-relaxed", durability);
    }
    local->records.relaxed_claims = durability != NULL && strcmp(durability, "claims-relaxed") == 0;
    return ONCE_OK;
}

static int open_log(local_t *local, uint64_t segment_size)
{
    once__log_config_t config = {.directory_fd = local->directory.segments_fd,
                                 .index = local->directory.index,
                                 .disk = &local->disk,
                                 .segment_size = segment_size};

    memcpy(config.boot_id, local->directory.boot_id, ONCE__BOOT_ID_SIZE);
    local->records.log = once__log_open(&config);
    local->records.index = local->directory.index;
    local->records.rules = &once__rules;
    local->records.directory_fd = local->directory.fd;
    local->glances = local->records;
    local->glances.log = once__log_open(&config);
    if (local->records.log == NULL || local->glances.log == NULL) {
        return ONCE_E_NOMEM;
    }
    return ONCE_OK;
}

static int open_descriptor(local_t *local)
{
    local->source.ready = answers_ready;
    local->source.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return local->source.fd < 0 ||
                   once__source_set(local->loop, &local->source, local->source.fd, EPOLLIN) != 0
               ? ONCE_E_IO
               : ONCE_OK;
}

static int open_thread(local_t *local)
{
    once__oplist_init(&local->submitted);
    once__oplist_init(&local->queue);
    once__oplist_init(&local->answers);
    once__oplist_init(&local->decided);
    local->threadless = once__loop_env(local->loop)->simulated;
    local->summariser.threadless = local->threadless;
    local->summariser.segments_fd = local->directory.segments_fd;
    local->summariser.index = local->records.index;
    if (!local->threadless && open_descriptor(local) != ONCE_OK) {
        return ONCE_E_IO;
    }
    (void)pthread_mutex_init(&local->lock, NULL);
    (void)pthread_cond_init(&local->work, NULL);
    return local->threadless || once__local_thread_start(&local->thread, write_batches, local) == 0
               ? ONCE_OK
               : ONCE_E_NOMEM;
}

/* It opens all the same; but its users should hear why some keys answer with an error. */
static void look_for_damage(local_t *local)
{
    once__index_stats_t stats;

    once__index_stats(local->records.index, &stats);
    if (stats.damaged > 0) {
        (void)snprintf(local->trouble, sizeof(local->trouble),
                       "%llu ranges of the log are damaged, and the keys in them answer with an "
                       "error; see once fsck",
                       (unsigned long long)stats.damaged);
    }
}

int once__local_open(const once__store_config_t *config, const once__disk_t *disk,
                     once__store_t **store, once_error_t *err)
{
    local_t *local = calloc(1, sizeof(*local));
    uint64_t segment_size;
    int code;

    if (local == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    local->base.vt = &once__local_store;
    local->loop = config->loop;
    local->disk = *disk;
    local->source.fd = -1;
    code = read_config(config, local, &segment_size, err);
    if (code == ONCE_OK) {
        code = once__directory_open_on(&local->directory, config->path, &local->disk, err);
    }
    if (code != ONCE_OK) {
        free(local);
        return code;
    }
    code = open_log(local, segment_size);
    code = code == ONCE_OK ? open_thread(local) : code;
    if (code != ONCE_OK) {
        once__log_abandon(local->glances.log);
        once__log_abandon(local->records.log);
        once__directory_abandon(&local->directory);
        if (local->source.fd >= 0) {
            (void)close(local->source.fd);
        }
        free(local);
        return once__fail(err, code, "local store: cannot start: %s", once_error_text(code));
    }
    look_for_damage(local);
    *store = &local->base;
    return ONCE_OK;
}

static const char *local_trouble(const once__store_t *store)
{
    return ((const local_t *)store)->trouble;
}

static int local_open(const once__store_config_t *config, once__store_t **store, once_error_t *err)
{
    return once__local_open(config, &once__real_disk, store, err);
}

static void stop_thread(local_t *local)
{
    (void)pthread_mutex_lock(&local->lock);
    local->stop = 1;
    (void)pthread_cond_signal(&local->work);
    (void)pthread_mutex_unlock(&local->lock);
    (void)pthread_join(local->thread, NULL);
    once__summariser_stop(&local->summariser);
    (void)once__source_set(local->loop, &local->source, local->source.fd, 0);
    (void)close(local->source.fd);
}

static void local_close(once__store_t *store)
{
    local_t *local = (local_t *)store;

    if (local->threadless) {
        once__local_decide(store);
        once__local_commit(store);
    } else {
        stop_thread(local);
    }
    /* What the writer had was done; what the host still had was not. */
    (void)once__oplist_finish(&local->answers);
    once__oplist_close(&local->submitted);
    once__log_abandon(local->glances.log);
    if (is_lost(local)) {
        once__log_abandon(local->records.log);
        once__directory_abandon(&local->directory);
    } else {
        (void)once__log_close(local->records.log);
        once__directory_close(&local->directory);
    }
    (void)pthread_cond_destroy(&local->work);
    (void)pthread_mutex_destroy(&local->lock);
    free(local);
}

/* In a child of fork(): no thread, and locks in whatever state. The lock of a segment goes with the last descriptor of it. */
static void local_abandon(once__store_t *store)
{
    local_t *local = (local_t *)store;

    if (local->source.fd >= 0) {
        (void)close(local->source.fd);
    }
    once__log_abandon(local->glances.log);
    once__log_abandon(local->records.log);
    once__directory_abandon(&local->directory);
    free(local);
}

const once__store_vt_t once__local_store = {
    .scheme = "local",
    .shared = 1,
    .open = local_open,
    .submit = local_submit,
    .dispatch = local_dispatch,
    .close = local_close,
    .abandon = local_abandon,
    .trouble = local_trouble,
};
