/*
 * The host's side of a local store, which never waits for a disk; and how a handle is opened and closed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "store/local/local.h"
#include "store/local/directory.h"
#include "store/thread.h"

#define PIECE 64 /* answers that are delivered before what came of them is handed to the writer */

/* ----------------------------------------------------------------------------------------------------------- answers */

void once__local_answer(once__local_t *local, once__oplist_t *answers)
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

static void answers_ready(once__source_t *source, uint32_t events)
{
    uint64_t ignored;

    while (read(source->fd, &ignored, sizeof(ignored)) < 0 && errno == EINTR) {
    }
}

/* ------------------------------------------------------------------------------------------------------------- looks */

static void forget(once__looker_t *looker)
{
    (void)pthread_mutex_lock(&looker->lock);
    once__reader_forget(looker->records.reader);
    (void)pthread_mutex_unlock(&looker->lock);
}

void once__local_forget(once__local_t *local)
{
    forget(&local->host);
    forget(&local->others);
}

static void local_recall(once__store_t *store, once__lookup_t *looks, size_t count)
{
    once__local_t *local = (once__local_t *)store;
    once__looker_t *looker = &local->others;

    if (atomic_load(&local->failed)) {
        return;
    }
    (void)pthread_mutex_lock(&looker->lock);
    for (size_t i = 0; i < count; i++) {
        looker->records.clock = once__index_now(looker->records.index);
        looks[i].found = once__records_recall(&looker->records, &looks[i]);
    }
    (void)pthread_mutex_unlock(&looker->lock);
}

/* A replay whose record is in memory needs no writer: handing it over and back costs more than the rest of it. */
static void glance(once__local_t *local, once__oplist_t *answers)
{
    once__looker_t *looker = &local->host;
    once__op_t *op = local->submitted.first;

    if (pthread_mutex_trylock(&looker->lock) != 0) {
        return; /* files are being closed, which may wait for the disk */
    }
    looker->records.clock = once__index_now(looker->records.index);
    once__records_expect(&looker->records, op);
    once__oplist_init(&local->submitted);
    while (op != NULL) {
        once__op_t *next = op->next;
        once__oplist_add(once__records_glance(&looker->records, op) ? answers : &local->submitted,
                         op);
        op = next;
    }
    (void)pthread_mutex_unlock(&looker->lock);
}

/* ---------------------------------------------------------------------------------------------- a disk that stands still */

static void watch(once__local_t *local)
{
    if (local->watch.slot == 0 && !local->threadless) {
        local->watched = local->rounds;
        once__timer_set(local->loop, &local->watch,
                        once__loop_now(local->loop) + local->timeout_ms / 2 + 1);
    }
}

/* If the writer has come to no end since the timer was set, nothing waits for it any longer. */
static void watch_is_over(once__timer_t *timer)
{
    once__local_t *local = (once__local_t *)((char *)timer - offsetof(once__local_t, watch));
    once__oplist_t begun, waiting;

    once__oplist_init(&begun);
    once__oplist_init(&waiting);
    (void)pthread_mutex_lock(&local->lock);
    if (local->rounds == local->watched) {
        once__oplist_move(&begun, &local->decided);
        once__oplist_move(&waiting, &local->queue);
    }
    if (local->busy || local->queue.first != NULL) {
        watch(local);
    }
    (void)pthread_mutex_unlock(&local->lock);
    once__local_doubt(&begun);
    once__local_refuse(&waiting);
    once__local_answer(local, &begun);
    once__local_answer(local, &waiting);
}

/* -------------------------------------------------------------------------------------------------------------- host */

static void local_submit(once__store_t *store, once__op_t *op)
{
    once__local_t *local = (once__local_t *)store;

    once__oplist_add(&local->submitted, op);
    once__loop_wake(local->loop);
}

static int local_dispatch(once__store_t *store)
{
    once__local_t *local = (once__local_t *)store;
    once__oplist_t answers;
    int count = 0;

    once__oplist_init(&answers);
    (void)pthread_mutex_lock(&local->lock);
    once__oplist_move(&answers, &local->answers);
    (void)pthread_mutex_unlock(&local->lock);
    if (local->submitted.first != NULL && !atomic_load(&local->failed)) {
        glance(local, &answers);
    }
    do { /* the writer decides what came of the first answers while the others are delivered */
        count += once__oplist_finish_some(&answers, PIECE);
        if (local->submitted.first != NULL || local->more) {
            (void)pthread_mutex_lock(&local->lock);
            once__oplist_move(&local->queue, &local->submitted);
            local->more = answers.first != NULL;
            watch(local);
            (void)pthread_mutex_unlock(&local->lock);
            /* Without the lock, or the writer would wake up only to wait for it. */
            (void)pthread_cond_signal(&local->work);
        }
    } while (answers.first != NULL);
    return count;
}

static void local_usage(once__store_t *store, once_usage_t *usage)
{
    once__local_t *local = (once__local_t *)store;
    const once__limits_t *limits = &local->records.limits;

    once__index_usage(local->directory.log.index, &usage->records, &usage->bytes);
    usage->max_records = limits->max_records;
    usage->max_bytes = limits->max_bytes;
}

/* It works all the same; but its users should know why some keys answer with an error. */
static const char *local_trouble(const once__store_t *store)
{
    const once__local_t *local = (const once__local_t *)store;
    const once__index_t *index = local->directory.log.index;

    if (!once__index_is_named(index)) {
        return "other programs use another index of this store, so nothing is written; stop all of "
               "them, then start them again";
    }
    for (uint32_t slot = 0; slot < once__index_slot_end(index); slot++) {
        const once__segment_t *segment = once__index_segment(index, slot);
        if (atomic_load(&segment->state) >= ONCE__SEGMENT_ACTIVE &&
            atomic_load(&segment->damaged)) {
            return "the log is damaged, and the keys in the damaged ranges answer with an error; "
                   "see once fsck";
        }
    }
    return local->directory.exclusive ? "no tmpfs for the index: one program at a time can use the "
                                        "store; name one with index=DIR"
                                      : "";
}

/* ----------------------------------------------------------------------------------------------------------- opening */

static int open_log(once__local_t *local, const once__local_settings_t *settings)
{
    once__log_config_t *config = &local->directory.log;
    once__records_t looks = {.index = local->directory.log.index,
                             .rules = &once__rules,
                             .log_config = config,
                             .limits = settings->limits,
                             .relaxed_claims = settings->relaxed_claims,
                             .tried_slot = UINT32_MAX,
                             .erasing = ONCE__ERASING_NONE};

    config->segment_size = settings->segment_size;
    config->max_bytes = settings->limits.max_bytes;
    local->host.records = local->others.records = local->own = local->records = looks;
    local->records.log = once__log_open(config);
    return local->records.log != NULL &&
                   (local->records.reader = once__reader_open(config)) != NULL &&
                   (local->own.reader = once__reader_open(config)) != NULL &&
                   (local->host.records.reader = once__reader_open(config)) != NULL &&
                   (local->others.records.reader = once__reader_open(config)) != NULL
               ? ONCE_OK
               : ONCE_E_NOMEM;
}

static void init_queues(once__local_t *local)
{
    pthread_condattr_t attributes;

    once__oplist_init(&local->submitted);
    once__oplist_init(&local->queue);
    once__oplist_init(&local->chores);
    once__oplist_init(&local->answers);
    once__oplist_init(&local->deferred);
    once__oplist_init(&local->handed);
    once__oplist_init(&local->decided);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&local->lock, NULL);
    (void)pthread_mutex_init(&local->host.lock, NULL);
    (void)pthread_mutex_init(&local->others.lock, NULL);
    (void)pthread_cond_init(&local->work, &attributes);
    (void)pthread_cond_init(&local->upkeep, NULL);
    (void)pthread_condattr_destroy(&attributes);
}

static void stop_writer(once__local_t *local)
{
    (void)pthread_mutex_lock(&local->lock);
    local->stop = 1;
    (void)pthread_cond_broadcast(&local->work);
    (void)pthread_cond_broadcast(&local->upkeep);
    (void)pthread_mutex_unlock(&local->lock);
    (void)pthread_join(local->writer, NULL);
}

static int start(once__local_t *local)
{
    if (local->threadless) {
        return ONCE_OK;
    }
    local->source.ready = answers_ready;
    local->source.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (local->source.fd < 0 ||
        once__source_set(local->loop, &local->source, local->source.fd, EPOLLIN) != 0) {
        return ONCE_E_IO;
    }
    if (once__timers_reserve(local->loop) != 0) {
        return ONCE_E_NOMEM;
    }
    local->watch.fire = watch_is_over;
    if (once__spawn(&local->writer, once__local_write, local) != 0) {
        return ONCE_E_NOMEM;
    }
    if (once__spawn(&local->maintainer, once__local_maintain, local) != 0) {
        stop_writer(local);
        return ONCE_E_NOMEM;
    }
    return ONCE_OK;
}

static void close_source(once__local_t *local)
{
    if (local->watch.fire != NULL) {
        once__timer_stop(local->loop, &local->watch);
        once__timers_release(local->loop);
    }
    if (local->source.fd >= 0) {
        (void)once__source_set(local->loop, &local->source, local->source.fd, 0);
        (void)close(local->source.fd);
    }
}

/* Frees what belongs to this process alone, whether it was opened or not. */
static void free_handle(once__local_t *local, void (*leave)(once__directory_t *))
{
    once__reader_close(local->host.records.reader);
    once__reader_close(local->others.records.reader);
    once__reader_close(local->records.reader);
    once__reader_close(local->own.reader);
    once__log_abandon(local->records.log);
    once__log_abandon(local->own.log);
    if (local->records.index != NULL) {
        once__erasing_close(&local->records.erasing);
    }
    leave(&local->directory);
    free(local);
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
    local->timeout_ms = config->timeout_ms;
    local->source.fd = -1;
    local->threadless = once__loop_env(local->loop)->simulated;
    code = once__local_settings_take(&settings, config->url, err);
    if (code == ONCE_OK) {
        settings.directory.disk = &local->disk;
        settings.directory.timeout_ms = config->timeout_ms;
        settings.directory.progress = config->progress;
        settings.directory.data = config->data;
        code = once__directory_open(&local->directory, &settings.directory, err);
    }
    if (code != ONCE_OK) {
        free(local);
        return code;
    }
    init_queues(local);
    code = open_log(local, &settings);
    code = code == ONCE_OK ? start(local) : code;
    if (code != ONCE_OK) {
        close_source(local);
        free_handle(local, once__directory_leave);
        return once__fail(err, code, "local store: cannot start: %s", once_error_text(code));
    }
    *store = &local->base;
    return ONCE_OK;
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

/* ----------------------------------------------------------------------------------------------------------- closing */

/* What the writer had was done; what the host still had was not. */
static void local_close(once__store_t *store)
{
    once__local_t *local = (once__local_t *)store;
    int code;

    if (local->threadless) {
        once__local_decide(store);
        once__local_commit(store);
    } else {
        stop_writer(local);
        (void)pthread_join(local->maintainer, NULL);
        close_source(local);
    }
    (void)once__oplist_finish(&local->answers);
    once__oplist_close(&local->deferred);
    once__oplist_close(&local->chores);
    once__oplist_close(&local->submitted);
    code = once__log_close(local->records.log);
    code = once__log_close(local->own.log) == ONCE_OK ? code : ONCE_E_IO;
    local->records.log = local->own.log = NULL;
    (void)pthread_cond_destroy(&local->upkeep);
    (void)pthread_cond_destroy(&local->work);
    (void)pthread_mutex_destroy(&local->others.lock);
    (void)pthread_mutex_destroy(&local->host.lock);
    (void)pthread_mutex_destroy(&local->lock);
    free_handle(local, code == ONCE_OK ? once__directory_close : once__directory_leave);
}

/* In a child of fork(): no thread, and locks in whatever state. The flock() of a segment goes with the last descriptor of it. */
static void local_abandon(once__store_t *store)
{
    once__local_t *local = (once__local_t *)store;

    once__close(local->source.fd);
    free_handle(local, once__directory_abandon);
}

const once__store_vt_t once__local_store = {
    .scheme = "local",
    .scrubs = 1,
    .check = local_check,
    .open = local_open,
    .submit = local_submit,
    .dispatch = local_dispatch,
    .recall = local_recall,
    .usage = local_usage,
    .close = local_close,
    .abandon = local_abandon,
    .trouble = local_trouble,
};
