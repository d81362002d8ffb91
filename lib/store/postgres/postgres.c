#include "store/postgres/postgres.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/postgres/traffic.h"

/*
 * Callbacks may take long. Before the first, and whenever so many were told, it is seen to that the server has something to do
 * meanwhile, and the host looks after what has come in. What they submit themselves is sent when all are told.
 */
#define ANSWERS_A_TURN 8

typedef struct postgres {
    once__store_t base;
    once__traffic_t traffic;
} postgres_t;

static void postgres_submit(once__store_t *store, once__op_t *op)
{
    once__traffic_t *traffic = &((postgres_t *)store)->traffic;

    op->error = ONCE_OK;
    if (op->kind == ONCE__OP_REAP) {
        memset(&op->cursor, 0, sizeof(op->cursor));
    }
    once__oplist_add(&traffic->queue, op);
    traffic->prompt += traffic->telling;
    once__loop_wake(traffic->loop);
}

static int postgres_dispatch(once__store_t *store)
{
    once__traffic_t *traffic = &((postgres_t *)store)->traffic;
    int count;

    if (traffic->freed) {
        once__traffic_pump(traffic);
    }
    traffic->telling = 1;
    count = once__oplist_finish_some(&traffic->answers, ANSWERS_A_TURN);
    traffic->telling = 0;
    if (traffic->answers.first == NULL || traffic->prompt == 0) {
        once__traffic_pump(traffic);
    }
    if (traffic->answers.first != NULL) {
        once__loop_pause(traffic->loop);
    }
    return count;
}

static int postgres_check(const once__store_config_t *config, once_error_t *err)
{
    once__limits_t limits = {0};
    int code = once__limits_take(&limits, config->url, err);

    return code == ONCE_OK ? once__traffic_check(config, err) : code;
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
    code = code == ONCE_OK ? once__traffic_open(&pg->traffic, config, err) : code;
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
    once__traffic_close(&((postgres_t *)store)->traffic);
    free(store);
}

static void postgres_abandon(once__store_t *store)
{
    once__traffic_abandon(&((postgres_t *)store)->traffic);
    free(store);
}

static const char *postgres_trouble(const once__store_t *store)
{
    return ((const postgres_t *)store)->traffic.trouble;
}

static int postgres_is_away(const once__store_t *store)
{
    const once__traffic_t *traffic = &((const postgres_t *)store)->traffic;

    return traffic->refused && !traffic->met;
}

const once__store_vt_t once__postgres_store = {
    .scheme = "postgres",
    .shared = 1,
    .check = postgres_check,
    .open = postgres_open,
    .submit = postgres_submit,
    .dispatch = postgres_dispatch,
    .close = postgres_close,
    .abandon = postgres_abandon,
    .trouble = postgres_trouble,
    .is_away = postgres_is_away,
};

const once__store_vt_t once__postgresql_store = {
    .scheme = "postgresql",
    .shared = 1,
    .check = postgres_check,
    .open = postgresql_open,
    .submit = postgres_submit,
    .dispatch = postgres_dispatch,
    .close = postgres_close,
    .abandon = postgres_abandon,
    .trouble = postgres_trouble,
    .is_away = postgres_is_away,
};
