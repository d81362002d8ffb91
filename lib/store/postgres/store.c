#include "store/postgres/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/postgres/queue.h"
#include "store/postgres/url.h"

/*
 * Callbacks may take long. Before the first one, and each time this many were called, the server is given something to do, and the
 * host looks after what has come in. What the callbacks submit themselves is sent when all have been called.
 */
#define ANSWERS_A_TURN 8

/* The schedule is in the database: the handle asks for it when it has begun its work. */
#define REAP_FIRST_MS 1000

typedef struct postgres {
    once__store_t base;
    once__postgres_queue_t queue;
} postgres_t;

static void postgres_submit(once__store_t *store, once__op_t *op)
{
    once__postgres_queue_t *queue = &((postgres_t *)store)->queue;
    once__op_t *question = once__postgres_packing_ask(&queue->packing, op);

    op->error = ONCE_OK;
    if (op->kind == ONCE__OP_REAP) {
        memset(&op->cursor, 0, sizeof(op->cursor));
    }
    once__oplist_add(&queue->waiting, op);
    if (question != NULL) {
        once__oplist_add(&queue->waiting, question);
    }
    queue->prompt += queue->answering;
    once__loop_wake(queue->loop);
}

static int postgres_dispatch(once__store_t *store)
{
    once__postgres_queue_t *queue = &((postgres_t *)store)->queue;
    int count;

    if (queue->freed) {
        once__postgres_queue_pump(queue);
    }
    queue->answering = 1;
    count = once__oplist_finish_some(&queue->answers, ANSWERS_A_TURN);
    queue->answering = 0;
    if (queue->answers.first == NULL || queue->prompt == 0) {
        once__postgres_queue_pump(queue);
    }
    if (queue->answers.first != NULL) {
        once__loop_pause(queue->loop);
    }
    return count;
}

static int postgres_check(const once__store_config_t *config, once_error_t *err)
{
    once__limits_t limits = {0};
    once__pg_conninfo_t conninfo;
    once__postgres_options_t options;
    int code = once__limits_take(&limits, config->url, err);

    code = code == ONCE_OK ? once__postgres_url_read(&conninfo, &options, config->url, err) : code;
    if (code == ONCE_OK) {
        once__pg_conninfo_free(&conninfo);
    }
    return code;
}

static int open_any(const once__store_config_t *config, const once__store_vt_t *vt,
                    once__store_t **store, once_error_t *err)
{
    postgres_t *pg = calloc(1, sizeof(*pg));
    int code;

    if (pg == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    pg->base.vt = vt;
    code = once__limits_take(&pg->base.limits, config->url, err);
    code = code == ONCE_OK ? once__postgres_queue_open(&pg->queue, config, err) : code;
    if (code != ONCE_OK) {
        free(pg);
        return code;
    }
    *store = &pg->base;
    return ONCE_OK;
}

static int postgres_open(const once__store_config_t *config, once__store_t **store,
                         once_error_t *err)
{
    return open_any(config, &once__postgres_store, store, err);
}

static int postgresql_open(const once__store_config_t *config, once__store_t **store,
                           once_error_t *err)
{
    return open_any(config, &once__postgresql_store, store, err);
}

static void postgres_close(once__store_t *store)
{
    once__postgres_queue_close(&((postgres_t *)store)->queue);
    free(store);
}

static void postgres_abandon(once__store_t *store)
{
    once__postgres_queue_abandon(&((postgres_t *)store)->queue);
    free(store);
}

static const char *postgres_server(const once__store_t *store)
{
    return ((const postgres_t *)store)->queue.server;
}

static const char *postgres_trouble(const once__store_t *store)
{
    return ((const postgres_t *)store)->queue.trouble;
}

static int postgres_is_away(const once__store_t *store)
{
    const once__postgres_queue_t *queue = &((const postgres_t *)store)->queue;

    return queue->refused && !queue->met;
}

const once__store_vt_t once__postgres_store = {
    .scheme = "postgres",
    .audit_unit = ONCE__AUDIT_NUMBERS,
    .scrubs = 1,
    .reap_first_ms = REAP_FIRST_MS,
    .check = postgres_check,
    .open = postgres_open,
    .submit = postgres_submit,
    .dispatch = postgres_dispatch,
    .close = postgres_close,
    .abandon = postgres_abandon,
    .trouble = postgres_trouble,
    .server = postgres_server,
    .is_away = postgres_is_away,
};

const once__store_vt_t once__postgresql_store = {
    .scheme = "postgresql",
    .audit_unit = ONCE__AUDIT_NUMBERS,
    .scrubs = 1,
    .reap_first_ms = REAP_FIRST_MS,
    .check = postgres_check,
    .open = postgresql_open,
    .submit = postgres_submit,
    .dispatch = postgres_dispatch,
    .close = postgres_close,
    .abandon = postgres_abandon,
    .trouble = postgres_trouble,
    .server = postgres_server,
    .is_away = postgres_is_away,
};
