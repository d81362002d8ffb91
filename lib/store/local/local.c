/*
 * The host's side of a local store, which never waits for a disk; and how one is opened and closed.
 */
#include "store/local/local_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "store/local/settings.h"
#include "store/local/thread.h"

/* ------------------------------------------------------------------------------------------------------------- host */

static void local_submit(once__store_t *store, once__op_t *op)
{
    once__local_t *local = (once__local_t *)store;

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
static void glance(once__local_t *local, once__oplist_t *answers)
{
    once__records_t *records = &local->glances;
    once__oplist_t all;
    once__op_t *op = local->submitted.first;

    once__oplist_init(&all);
    once__oplist_move(&all, &local->submitted);
    once__local_expect(local, &all);
    if (once__records_begin_glances(records, &local->first_segment)) {
        once__recallers_forget(local);
    }
    while (op != NULL) {
        once__op_t *next = op->next;
        once__oplist_add(once__records_glance(records, op) ? answers : &local->submitted, op);
        op = next;
    }
}

static int local_dispatch(once__store_t *store)
{
    once__local_t *local = (once__local_t *)store;
    once__oplist_t answers;
    int count;

    once__oplist_init(&answers);
    (void)pthread_mutex_lock(&local->lock);
    once__oplist_move(&answers, &local->answers);
    (void)pthread_mutex_unlock(&local->lock);
    if (local->submitted.first != NULL && !atomic_load(&local->failed) &&
        !once__local_is_lost(local)) {
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

static int open_log(once__local_t *local, const once__local_settings_t *settings)
{
    once__log_config_t *config = &local->log_config;

    *config = (once__log_config_t){.directory_fd = local->directory.segments_fd,
                                   .index = local->directory.index,
                                   .disk = &local->disk,
                                   .segment_size = settings->segment_size,
                                   .max_bytes = settings->limits.max_bytes};
    memcpy(config->boot_id, local->directory.boot_id, ONCE__BOOT_ID_SIZE);
    local->records.log = once__log_open(config);
    local->records.index = local->directory.index;
    local->records.rules = &once__rules;
    local->records.limits = settings->limits;
    local->records.relaxed_claims = settings->relaxed_claims;
    local->records.directory_fd = local->directory.fd;
    local->glances = local->records;
    local->glances.log = once__log_open(config);
    once__recallers_open(local);
    if (local->records.log == NULL || local->glances.log == NULL) {
        return ONCE_E_NOMEM;
    }
    return ONCE_OK;
}

static int open_descriptor(once__local_t *local)
{
    local->source.ready = answers_ready;
    local->source.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return local->source.fd < 0 ||
                   once__source_set(local->loop, &local->source, local->source.fd, EPOLLIN) != 0
               ? ONCE_E_IO
               : ONCE_OK;
}

static int open_thread(once__local_t *local)
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
    return local->threadless ||
                   once__local_thread_start(&local->thread, once__local_write, local) == 0
               ? ONCE_OK
               : ONCE_E_NOMEM;
}

/* It opens all the same; but its users should hear why some keys answer with an error. */
static void look_for_damage(once__local_t *local)
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
    once__local_t *local = calloc(1, sizeof(*local));
    once__local_settings_t settings = {0};
    int code;

    if (local == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    local->base.vt = &once__local_store;
    local->loop = config->loop;
    local->disk = *disk;
    local->source.fd = -1;
    code = once__local_settings_take(&settings, config->url, err);
    if (code == ONCE_OK) {
        code = once__directory_open_on(&local->directory, config->path, &local->disk, err);
    }
    if (code != ONCE_OK) {
        free(local);
        return code;
    }
    code = open_log(local, &settings);
    code = code == ONCE_OK ? open_thread(local) : code;
    if (code != ONCE_OK) {
        once__recallers_close(local);
        once__log_abandon(local->glances.log);
        once__log_abandon(local->records.log);
        once__directory_leave(&local->directory);
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

static const char *once__local_trouble(const once__store_t *store)
{
    const once__local_t *local = (const once__local_t *)store;

    return once__log_is_outdated(local->records.log)
               ? "the index is older than the log, so nothing new is written; stop all programs, "
                 "remove the file index, then start them again"
               : local->trouble;
}

static int local_check(const once__store_config_t *config, once_error_t *err)
{
    once__local_settings_t settings;

    return once__local_settings_take(&settings, config->url, err);
}

static int local_open(const once__store_config_t *config, once__store_t **store, once_error_t *err)
{
    return once__local_open(config, &once__real_disk, store, err);
}

static void local_usage(once__store_t *store, once_usage_t *usage)
{
    once__local_t *local = (once__local_t *)store;
    const once__limits_t *limits = &local->records.limits;

    if (!once__local_is_lost(local)) {
        once__index_usage(local->records.index, &usage->records, &usage->bytes);
    }
    usage->max_records = limits->max_records;
    usage->max_bytes = limits->max_bytes;
}

static void stop_thread(once__local_t *local)
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
    once__local_t *local = (once__local_t *)store;

    if (local->threadless) {
        once__local_decide(store);
        once__local_commit(store);
    } else {
        stop_thread(local);
    }
    /* What the writer had was done; what the host still had was not. */
    (void)once__oplist_finish(&local->answers);
    once__oplist_close(&local->submitted);
    once__recallers_close(local);
    once__log_abandon(local->glances.log);
    if (once__local_is_lost(local)) {
        once__log_abandon(local->records.log);
        once__directory_leave(&local->directory);
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
    once__local_t *local = (once__local_t *)store;

    if (local->source.fd >= 0) {
        (void)close(local->source.fd);
    }
    once__recallers_abandon(local);
    once__log_abandon(local->glances.log);
    once__log_abandon(local->records.log);
    once__directory_abandon(&local->directory);
    free(local);
}

const once__store_vt_t once__local_store = {
    .scheme = "local",
    .check = local_check,
    .open = local_open,
    .submit = local_submit,
    .dispatch = local_dispatch,
    .recall = once__local_recall,
    .usage = local_usage,
    .close = local_close,
    .abandon = local_abandon,
    .trouble = once__local_trouble,
};
