#include "store/postgres/statements.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/uuid.h"

#define COLUMNS                                                                                    \
    "id, outcome, now, created, changed, lease_until, lease_ms, expires, ttl_ms, epoch, schema, "  \
    "state, recover, flags, kind, status, claim, fingerprint, scope, key, payload, about, cause"

#define REAP_STEP      10000 /* rows that one transaction removes at most */
#define REAP_BUDGET_MS 100   /* and how long it may take */
#define TIME_MAX       (INT64_MAX / 4)

once__postgres_statement_t once__postgres_statement_of(const once__op_t *op)
{
    if (op->kind == ONCE__OP_EVENT) {
        return op->event.kind == ONCE__CLAIM ? ONCE__POSTGRES_CLAIM : ONCE__POSTGRES_APPLY;
    }
    return op->kind == ONCE__OP_GET ? ONCE__POSTGRES_GET : ONCE__POSTGRES_SINGLE;
}

uint64_t once__postgres_clamp(uint64_t ms)
{
    return ms > (uint64_t)TIME_MAX ? (uint64_t)TIME_MAX : ms;
}

/* ---------------------------------------------------------------------------------------------------------- arrays */

/* Writes one operation's element of a column. */
typedef void (*column_t)(once__pg_value_t *value, const once__op_t *op,
                         once__postgres_packing_t *packing);

static void put_id(once__pg_value_t *value, const once__op_t *op, once__postgres_packing_t *packing)
{
    once__pg_element(value, op->id, ONCE_ID_SIZE);
}

static void put_claim(once__pg_value_t *value, const once__op_t *op,
                      once__postgres_packing_t *packing)
{
    once__pg_element(value, op->event.claim.id, ONCE_CLAIM_ID_SIZE);
}

static void put_recover(once__pg_value_t *value, const once__op_t *op,
                        once__postgres_packing_t *packing)
{
    once__pg_element_int(value, op->event.recover, 2);
}

static void put_lease(once__pg_value_t *value, const once__op_t *op,
                      once__postgres_packing_t *packing)
{
    once__pg_element_int(value, once__postgres_clamp(op->event.lease_ms), 8);
}

static void put_ttl(once__pg_value_t *value, const once__op_t *op,
                    once__postgres_packing_t *packing)
{
    once__pg_element_int(value, once__postgres_clamp(op->event.ttl_ms), 8);
}

static void put_fingerprints(once__pg_value_t *value, const once__op_t *op,
                             once__postgres_packing_t *packing)
{
    uint8_t bytes[ONCE__FINGERPRINTS_MAX * ONCE__POSTGRES_FINGERPRINT_SIZE] = {0};
    unsigned count = op->event.fingerprint_count;

    for (unsigned i = 0; i < count; i++) {
        const once__fingerprint_t *from = &op->event.fingerprints[i];
        uint8_t *to = bytes + (size_t)i * ONCE__POSTGRES_FINGERPRINT_SIZE;
        once__put32(to, from->secret);
        to[4] = from->mode;
        memcpy(to + 5, from->mac, sizeof(from->mac));
    }
    once__pg_element(value, bytes,
                     (size_t)(count > 0 ? count : 1) * ONCE__POSTGRES_FINGERPRINT_SIZE);
}

static void put_scope(once__pg_value_t *value, const once__op_t *op,
                      once__postgres_packing_t *packing)
{
    once__pg_element(value, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
}

static void put_key(once__pg_value_t *value, const once__op_t *op,
                    once__postgres_packing_t *packing)
{
    once_slice_t key = once__postgres_pack_key(packing, (once_slice_t){op->key, op->key_len});

    once__pg_element(value, key.data, key.len);
}

static void put_about(once__pg_value_t *value, const once__op_t *op,
                      once__postgres_packing_t *packing)
{
    once_slice_t about = once__postgres_pack_about(packing, op->about);

    once__pg_element(value, about.data, about.len);
}

static void put_cause(once__pg_value_t *value, const once__op_t *op,
                      once__postgres_packing_t *packing)
{
    once__pg_element(value, op->cause.data, op->cause.len);
}

static void put_event(once__pg_value_t *value, const once__op_t *op,
                      once__postgres_packing_t *packing)
{
    once__pg_element_int(value, op->event.kind, 2);
}

static void put_epoch(once__pg_value_t *value, const once__op_t *op,
                      once__postgres_packing_t *packing)
{
    once__pg_element_int(value, op->event.claim.epoch, 4);
}

static void put_force(once__pg_value_t *value, const once__op_t *op,
                      once__postgres_packing_t *packing)
{
    once__pg_element_int(value, op->event.force != 0, 1);
}

static void put_kind(once__pg_value_t *value, const once__op_t *op,
                     once__postgres_packing_t *packing)
{
    once__pg_element_int(value, op->payload.kind, 2);
}

static void put_status(once__pg_value_t *value, const once__op_t *op,
                       once__postgres_packing_t *packing)
{
    once__pg_element_int(value, op->payload.status, 2);
}

static void put_payload(once__pg_value_t *value, const once__op_t *op,
                        once__postgres_packing_t *packing)
{
    if (op->payload.kind == ONCE__PAYLOAD_NONE) {
        once__pg_element_null(value);
    } else {
        once_slice_t payload = once__postgres_pack_payload(packing, &op->payload);
        once__pg_element(value, payload.data, payload.len);
    }
}

typedef struct array {
    Oid type;
    column_t put;
} array_t;

static const array_t claim_arrays[] = {
    {ONCE__PG_BYTEAS, put_id},    {ONCE__PG_BYTEAS, put_claim}, {ONCE__PG_INT2S, put_recover},
    {ONCE__PG_INT8S, put_lease},  {ONCE__PG_INT8S, put_ttl},    {ONCE__PG_BYTEAS, put_fingerprints},
    {ONCE__PG_BYTEAS, put_scope}, {ONCE__PG_BYTEAS, put_key},   {ONCE__PG_BYTEAS, put_about},
};
static const array_t apply_arrays[] = {
    {ONCE__PG_BYTEAS, put_id},      {ONCE__PG_INT2S, put_event},  {ONCE__PG_INT4S, put_epoch},
    {ONCE__PG_BYTEAS, put_claim},   {ONCE__PG_BOOLS, put_force},  {ONCE__PG_INT8S, put_lease},
    {ONCE__PG_INT8S, put_ttl},      {ONCE__PG_INT2S, put_kind},   {ONCE__PG_INT2S, put_status},
    {ONCE__PG_BYTEAS, put_payload}, {ONCE__PG_BYTEAS, put_cause},
};
static const array_t get_arrays[] = {{ONCE__PG_BYTEAS, put_id}};

static const struct {
    once__postgres_text_t text;
    const array_t *arrays;
    size_t count;
    int with_schema, with_mark;
} batches[] = {
    [ONCE__POSTGRES_CLAIM] = {{"SELECT " COLUMNS " FROM once.store_claim($1, $2, $3, $4, $5, $6, "
                               "$7, $8, $9, $11, $10, $12)",
                               "once_claim"},
                              claim_arrays,
                              sizeof(claim_arrays) / sizeof(claim_arrays[0]),
                              1,
                              1},
    [ONCE__POSTGRES_APPLY] =
        {{"SELECT " COLUMNS " FROM once.store_apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
          "$12, $13)",
          "once_apply"},
         apply_arrays,
         sizeof(apply_arrays) / sizeof(apply_arrays[0]),
         1,
         0},
    [ONCE__POSTGRES_GET] = {{"SELECT " COLUMNS " FROM once.store_get($1, $2)", "once_record_get"},
                            get_arrays,
                            1,
                            0,
                            0},
};

/* The mark of the secrets is the same for all claims of a handle. */
static void put_mark(once__pg_params_t *params, const once__oplist_t *list)
{
    const once__op_t *op = list->first;

    while (op != NULL && once__postgres_statement_of(op) != ONCE__POSTGRES_CLAIM) {
        op = op->next;
    }
    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), op != NULL ? op->mark : NULL,
                 op != NULL && op->mark != NULL ? ONCE__MARK_SIZE : 0);
}

const once__postgres_text_t *once__postgres_fill(once__pg_params_t *params,
                                                 once__postgres_statement_t which,
                                                 const once__oplist_t *list,
                                                 once__postgres_packing_t *packing)
{
    once__pg_params_reset(params);
    if (batches[which].with_schema) {
        once__pg_param_int(params, ONCE__PG_INT2, ONCE__SCHEMA, 2);
    }
    for (size_t i = 0; i < batches[which].count; i++) {
        const array_t *array = &batches[which].arrays[i];
        once__pg_value_t *value = once__pg_array(params, array->type);
        for (const once__op_t *op = list->first; op != NULL; op = op->next) {
            if (once__postgres_statement_of(op) == which) {
                array->put(value, op, packing);
            }
        }
    }
    if (batches[which].with_mark) {
        put_mark(params, list);
    }
    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), packing->name, packing->name_len);
    return &batches[which].text;
}

static int send_with_timeout(PGconn *conn, once__pg_params_t *params, const char *statement,
                             uint64_t timeout_ms)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)timeout_ms);
    once__pg_params_reset(params);
    once__pg_param_text(params, text);
    return once__pg_put_statement(conn, statement, params, 1);
}

int once__postgres_send_timeout(PGconn *conn, once__pg_params_t *params, uint64_t timeout_ms)
{
    return send_with_timeout(conn, params,
                             "SELECT pg_catalog.set_config('statement_timeout', $1, true), "
                             "pg_catalog.current_setting('transaction_isolation'), "
                             "pg_catalog.pg_backend_pid()",
                             timeout_ms);
}

int once__postgres_send_settings(PGconn *conn, once__pg_params_t *params, uint64_t timeout_ms)
{
    return send_with_timeout(
        conn, params,
        "SELECT pg_catalog.set_config('statement_timeout', $1, false), "
        "pg_catalog.set_config('default_transaction_isolation', 'read committed', false)",
        timeout_ms);
}

/*
 * The level can only be set before the first snapshot. SHOW takes none, and after it the server knows that it is in a pipeline: as
 * the first statement, SET TRANSACTION would leave a warning in the server's log.
 */
int once__postgres_send_level(PGconn *conn, once__pg_params_t *params)
{
    once__pg_params_reset(params);
    return once__pg_put_statement(conn, "SHOW transaction_isolation", params, 1) == 0 &&
                   once__pg_put_statement(conn, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
                                          params, 1) == 0
               ? 0
               : -1;
}

/* --------------------------------------------------------------------------------------------------------- singles */

static int send_scan(PGconn *conn, once__pg_params_t *params, const once__op_t *op,
                     const once__postgres_packing_t *packing)
{
    const once_filter_t *filter = op->filter;

    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), op->cursor.bytes, ONCE_ID_SIZE);
    once__pg_param_int(params, ONCE__PG_INT8, once__postgres_clamp(op->limit), 8);
    once__pg_param_int(params, ONCE__PG_INT4, filter->states, 4);
    once__pg_param_int(params, ONCE__PG_BOOL, filter->stuck != 0, 1);
    once__pg_param_int(params, ONCE__PG_INT8, once__postgres_clamp(filter->older_than_ms), 8);
    once__pg_param_int(params, ONCE__PG_INT8, once__postgres_clamp(filter->younger_than_ms), 8);
    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), filter->scope_hash,
                 filter->scope_hash_len);
    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), packing->name, packing->name_len);
    return once__pg_put_statement(
        conn,
        op->bare ? "SELECT " COLUMNS " FROM once.store_list($1, $2, $3, $4, $5, $6, $7, $8)"
                 : "SELECT " COLUMNS " FROM once.store_scan($1, $2, $3, $4, $5, $6, $7, $8)",
        params, 1);
}

static uint64_t reap_limit(const once__op_t *op)
{
    uint64_t left = op->limit == 0 ? REAP_STEP : op->limit - op->count;

    return left < REAP_STEP ? left : REAP_STEP;
}

/* What is erased goes from the dictionaries as well. */
static int send_scrub(PGconn *conn, once__pg_params_t *params, const uint8_t *cursor)
{
    char after[ONCE_UUID_SIZE] = "";

    if (cursor[ONCE__POSTGRES_CURSOR_BEGUN]) {
        once__uuid_text(after, cursor + ONCE__POSTGRES_CURSOR_AFTER);
    }
    once__pg_param_text(params, after);
    once__pg_param_int(params, ONCE__PG_INT8, once__get64(cursor + ONCE__POSTGRES_CURSOR_STILL), 8);
    return once__pg_put_statement(conn,
                                  "SELECT pg_catalog.uuid_send(after), still FROM "
                                  "once.store_scrub(nullif($1, '')::pg_catalog.uuid, $2)",
                                  params, 1);
}

/* A handle's own reaping takes a turn of the schedule; an explicit one goes through both tables. */
static int send_reap(PGconn *conn, once__pg_params_t *params, const once__op_t *op)
{
    if (op->scrub) {
        return send_scrub(conn, params, op->cursor.bytes);
    }
    if (!op->thorough) {
        return once__pg_put_statement(
            conn, "SELECT removed, pause_ms, behind_ms, messages_behind_ms FROM once.reap_turn()",
            params, 1);
    }
    once__pg_param_int(params, ONCE__PG_INT8, once__get64(op->cursor.bytes), 8);
    once__pg_param_int(params, ONCE__PG_INT8, reap_limit(op), 8);
    once__pg_param_int(params, ONCE__PG_INT4, REAP_BUDGET_MS, 4);
    return once__pg_put_statement(
        conn,
        op->cursor.bytes[ONCE__POSTGRES_CURSOR_TABLE] == 0
            ? "SELECT removed, next_block FROM once.sweep($1, $2, $3)"
            : "SELECT removed, next_block FROM once.sweep_inbox($1, $2, $3)",
        params, 1);
}

static int send_dictionary(PGconn *conn, once__pg_params_t *params,
                           const once__postgres_packing_t *packing)
{
    once__pg_param_int(params, ONCE__PG_INT2, packing->number, 2);
    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), packing->proposal, packing->proposal_len);
    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), packing->about_proposal,
                 packing->about_proposal_len);
    return once__pg_put_statement(
        conn, "SELECT name, bytes, about FROM once.store_dictionary($1, $2, $3)", params, 1);
}

int once__postgres_send_single(PGconn *conn, once__pg_params_t *params, const once__op_t *op,
                               const once__postgres_packing_t *packing)
{
    once__pg_params_reset(params);
    if (op == &packing->op) {
        return send_dictionary(conn, params, packing);
    }
    switch (op->kind) {
    case ONCE__OP_SCAN:
        return send_scan(conn, params, op, packing);
    case ONCE__OP_REAP:
        return send_reap(conn, params, op);
    case ONCE__OP_STATS:
        return once__pg_put_statement(conn,
                                      op->thorough
                                          ? "SELECT pending, completed, failed, unknown, stuck, "
                                            "expired, oldest_ms, bytes, now, s.behind_ms, "
                                            "messages, messages_behind_ms "
                                            "FROM once.stats() AS s, once.expiry() AS e"
                                          : "SELECT records, bytes FROM once.size()",
                                      params, 1);
    case ONCE__OP_SECRETS_LOAD:
        once__pg_param_text(params, op->secrets_new);
        once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), op->mark, ONCE__MARK_SIZE);
        return once__pg_put_statement(conn, "SELECT once.store_secrets_load($1, $2)", params, 1);
    case ONCE__OP_SECRETS_SWAP:
        once__pg_param_text(params, op->secrets_old);
        once__pg_param_text(params, op->secrets_new);
        return once__pg_put_statement(conn, "SELECT once.store_secrets_swap($1, $2)", params, 1);
    case ONCE__OP_AUDIT_READ:
        once__pg_param_int(params, ONCE__PG_INT8, op->place, 8); /* the last one: -1 */
        return once__pg_put_statement(conn, "SELECT place, lines FROM once.audit_read($1)", params,
                                      1);
    case ONCE__OP_AUDIT_ADD:
        once__pg_param_int(params, ONCE__PG_INT8, op->place, 8);
        once__pg_put(once__pg_param(params, ONCE__PG_TEXT), op->payload.data, op->payload.len);
        return once__pg_put_statement(conn, "SELECT once.audit_add($1, $2)", params, 1);
    default:
        return -1;
    }
}
