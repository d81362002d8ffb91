#include "store/memory/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/memory/table.h"
#include "store/oplist.h"

#define DEFAULT_MAX_RECORDS 1000000u
#define DEFAULT_MAX_BYTES   ((uint64_t)1 << 30)

/* A table that handles share. */
typedef struct shared {
    struct shared *next;
    char *name; /* empty: private to one handle */
    unsigned users;
    pthread_mutex_t lock;
    once__table_t *table;
} shared_t;

typedef struct memory {
    once__store_t base;
    once__loop_t *loop;
    shared_t *shared;
    once__oplist_t submitted;
} memory_t;

static shared_t *all_shared;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

/* In a child of fork() the tables are the parent's, and any lock may have been held: it starts with none. */
static void forget_all(void)
{
    all_shared = NULL;
    (void)pthread_mutex_init(&all_lock, NULL);
}

static void prepare_for_fork(void)
{
    (void)pthread_atfork(NULL, NULL, forget_all);
}

static shared_t *find_shared(const char *name)
{
    shared_t *shared = all_shared;

    while (shared != NULL && (*name == '\0' || strcmp(shared->name, name) != 0)) {
        shared = shared->next;
    }
    return shared;
}

static shared_t *make_shared(const char *name, const once__limits_t *limits)
{
    shared_t *shared = calloc(1, sizeof(*shared));

    if (shared == NULL) {
        return NULL;
    }
    shared->name = strdup(name);
    shared->table = once__table_new(&once__rules, limits);
    if (shared->name == NULL || shared->table == NULL ||
        pthread_mutex_init(&shared->lock, NULL) != 0) {
        once__table_free(shared->table);
        free(shared->name);
        free(shared);
        return NULL;
    }
    shared->next = all_shared;
    all_shared = shared;
    return shared;
}

static shared_t *join_shared(const char *name, const once__limits_t *limits)
{
    static pthread_once_t prepared = PTHREAD_ONCE_INIT;
    shared_t *shared;

    (void)pthread_once(&prepared, prepare_for_fork);
    (void)pthread_mutex_lock(&all_lock);
    shared = find_shared(name);
    if (shared == NULL) {
        shared = make_shared(name, limits);
    }
    if (shared != NULL) {
        shared->users++;
    }
    (void)pthread_mutex_unlock(&all_lock);
    return shared;
}

static void leave_shared(shared_t *shared)
{
    shared_t **place = &all_shared;

    (void)pthread_mutex_lock(&all_lock);
    shared->users--;
    if (shared->users == 0) {
        while (*place != shared) {
            place = &(*place)->next;
        }
        *place = shared->next;
        (void)pthread_mutex_destroy(&shared->lock);
        once__table_free(shared->table);
        free(shared->name);
        free(shared);
    }
    (void)pthread_mutex_unlock(&all_lock);
}

static int memory_check(const once__store_config_t *config, once_error_t *err)
{
    once__limits_t limits = {0};

    return once__limits_take(&limits, config->url, err);
}

static int memory_open(const once__store_config_t *config, once__store_t **store, once_error_t *err)
{
    once__limits_t limits = {DEFAULT_MAX_RECORDS, DEFAULT_MAX_BYTES};
    int code = once__limits_take(&limits, config->url, err);
    memory_t *memory;

    if (code != ONCE_OK) {
        return code;
    }
    memory = calloc(1, sizeof(*memory));
    if (memory != NULL) {
        memory->shared = join_shared(config->path, &limits);
    }
    if (memory == NULL || memory->shared == NULL) {
        free(memory);
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    memory->base.vt = &once__memory_store;
    memory->loop = config->loop;
    once__oplist_init(&memory->submitted);
    *store = &memory->base;
    return ONCE_OK;
}

static void memory_submit(once__store_t *store, once__op_t *op)
{
    memory_t *memory = (memory_t *)store;

    once__oplist_add(&memory->submitted, op);
    once__loop_wake(memory->loop);
}

static int memory_dispatch(once__store_t *store)
{
    memory_t *memory = (memory_t *)store;
    const once__env_t *env = once__loop_env(memory->loop);
    once__oplist_t batch;

    if (memory->submitted.first == NULL) {
        return 0;
    }
    once__oplist_init(&batch);
    once__oplist_move(&batch, &memory->submitted);
    (void)pthread_mutex_lock(&memory->shared->lock);
    for (once__op_t *op = batch.first; op != NULL; op = op->next) {
        once__table_apply(memory->shared->table, op, env->wall_ms(env->data));
    }
    (void)pthread_mutex_unlock(&memory->shared->lock);
    return once__oplist_finish(&batch);
}

static void memory_usage(once__store_t *store, once_usage_t *usage)
{
    memory_t *memory = (memory_t *)store;

    (void)pthread_mutex_lock(&memory->shared->lock);
    once__table_usage(memory->shared->table, usage);
    (void)pthread_mutex_unlock(&memory->shared->lock);
}

static void memory_close(once__store_t *store)
{
    memory_t *memory = (memory_t *)store;

    once__oplist_close(&memory->submitted);
    leave_shared(memory->shared);
    free(memory);
}

/* The parent's threads may have held the locks at the fork: the table stays as it is, unreachable. */
static void memory_abandon(once__store_t *store)
{
    free(store);
}

const once__store_vt_t once__memory_store = {
    .scheme = "memory",
    .check = memory_check,
    .open = memory_open,
    .submit = memory_submit,
    .dispatch = memory_dispatch,
    .usage = memory_usage,
    .close = memory_close,
    .abandon = memory_abandon,
};
