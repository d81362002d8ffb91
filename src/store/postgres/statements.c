#include "store/postgres/statements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"

#define COLUMNS                                                                                    \
    "id, outcome, now, created, changed, lease_until, lease_ms, expires, ttl_ms, epoch, schema, "  \
    "state, recover, flags, kind, status, claim, fingerprint, scope, key, payload"

#define FINGERPRINT_SIZE 37
#define REAP_STEP        10000 /* records in one transaction */
#define REAP_BUDGET_MS   500   /* and how long it may take */
#define TIME_MAX         (INT64_MAX / 4)

once__pg_statement_t once__pg_statement_of(const once__op_t *op)
{
    if (op->kind == ONCE__OP_EVENT) {
        return op->event.kind == ONCE__CLAIM ? ONCE__PG_CLAIM : ONCE__PG_APPLY;
    }
    return op->kind == ONCE__OP_GET ? ONCE__PG_GET : ONCE__PG_SINGLE;
}

static uint64_t clamp(uint64_t ms)
{
    return ms > (uint64_t)TIME_MAX ? (uint64_t)TIME_MAX : ms;
}

/* ---------------------------------------------------------------------------------------------------------- arrays */

/* Writes one operation's element of a column. */
typedef void (*column_t)(once__pg_value_t *value, const once__op_t *op);

static void put_id(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element(value, op->id, ONCE_ID_SIZE);
}

static void put_claim(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element(value, op->event.claim.id, ONCE_CLAIM_ID_SIZE);
}

static void put_recover(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element_int(value, op->event.recover, 2);
}

static void put_lease(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element_int(value, clamp(op->event.lease_ms), 8);
}

static void put_ttl(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element_int(value, clamp(op->event.ttl_ms), 8);
}

static void put_fingerprints(once__pg_value_t *value, const once__op_t *op)
{
    uint8_t bytes[ONCE__FINGERPRINTS_MAX * FINGERPRINT_SIZE] = {0};
    unsigned count = op->event.fingerprint_count;

    for (unsigned i = 0; i < count; i++) {
        const once__fingerprint_t *from = &op->event.fingerprints[i];
        uint8_t *to = bytes + (size_t)i * FINGERPRINT_SIZE;
        once__put32(to, from->secret);
        to[4] = from->mode;
        memcpy(to + 5, from->mac, sizeof(from->mac));
    }
    once__pg_element(value, bytes, (size_t)(count > 0 ? count : 1) * FINGERPRINT_SIZE);
}

static void put_scope(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element(value, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
}

static void put_key(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element(value, op->key, op->key_len);
}

static void put_event(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element_int(value, op->event.kind, 2);
}

static void put_epoch(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element_int(value, op->event.claim.epoch, 4);
}

static void put_force(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element_int(value, op->event.force != 0, 1);
}

static void put_kind(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element_int(value, op->payload.kind, 2);
}

static void put_status(once__pg_value_t *value, const once__op_t *op)
{
    once__pg_element_int(value, op->payload.status, 2);
}

static void put_payload(once__pg_value_t *value, const once__op_t *op)
{
    if (op->payload.kind == ONCE__PAYLOAD_NONE) {
        once__pg_element_null(value);
    } else {
        once__pg_element(value, op->payload.data, op->payload.len);
    }
}

typedef struct array {
    Oid type;
    column_t put;
} array_t;

static const array_t claim_arrays[] = {
    {ONCE__PG_BYTEAS, put_id},    {ONCE__PG_BYTEAS, put_claim}, {ONCE__PG_INT2S, put_recover},
    {ONCE__PG_INT8S, put_lease},  {ONCE__PG_INT8S, put_ttl},    {ONCE__PG_BYTEAS, put_fingerprints},
    {ONCE__PG_BYTEAS, put_scope}, {ONCE__PG_BYTEAS, put_key},
};
static const array_t apply_arrays[] = {
    {ONCE__PG_BYTEAS, put_id},      {ONCE__PG_INT2S, put_event}, {ONCE__PG_INT4S, put_epoch},
    {ONCE__PG_BYTEAS, put_claim},   {ONCE__PG_BOOLS, put_force}, {ONCE__PG_INT8S, put_lease},
    {ONCE__PG_INT8S, put_ttl},      {ONCE__PG_INT2S, put_kind},  {ONCE__PG_INT2S, put_status},
    {ONCE__PG_BYTEAS, put_payload},
};
static const array_t get_arrays[] = {{ONCE__PG_BYTEAS, put_id}};

static const struct {
    const char *text;
    const array_t *arrays;
    size_t count;
    int with_schema;
} batches[] = {
    [ONCE__PG_CLAIM] = {"SELECT " COLUMNS
                        " FROM once.store_claim($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                        claim_arrays, sizeof(claim_arrays) / sizeof(claim_arrays[0]), 1},
    [ONCE__PG_APPLY] = {"SELECT " COLUMNS
                        " FROM once.store_apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                        apply_arrays, sizeof(apply_arrays) / sizeof(apply_arrays[0]), 1},
    [ONCE__PG_GET] = {"SELECT " COLUMNS " FROM once.store_get($1)", get_arrays, 1, 0},
};

int once__pg_send_batch(PGconn *conn, once__pg_params_t *params, once__pg_statement_t which,
                        const once__oplist_t *list, uint32_t count)
{
    once__pg_params_reset(params);
    if (batches[which].with_schema) {
        once__pg_put_int(once__pg_param(params, ONCE__PG_INT2), ONCE__SCHEMA, 2);
    }
    for (size_t i = 0; i < batches[which].count; i++) {
        const array_t *array = &batches[which].arrays[i];
        once__pg_value_t *value = once__pg_array(params, array->type, count);
        for (const once__op_t *op = list->first; op != NULL; op = op->next) {
            if (once__pg_statement_of(op) == which) {
                array->put(value, op);
            }
        }
    }
    return once__pg_send(conn, batches[which].text, params);
}

int once__pg_send_timeout(PGconn *conn, once__pg_params_t *params, uint64_t timeout_ms)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)timeout_ms);

    once__pg_params_reset(params);
    once__pg_put(once__pg_param(params, ONCE__PG_TEXT), text, (size_t)len);
    return once__pg_send(conn, "SELECT set_config('statement_timeout', $1, true)", params);
}

/* --------------------------------------------------------------------------------------------------------- results */

enum {
    AT_ID,
    AT_OUTCOME,
    AT_NOW,
    AT_CREATED,
    AT_CHANGED,
    AT_LEASE_UNTIL,
    AT_LEASE_MS,
    AT_EXPIRES,
    AT_TTL_MS,
    AT_EPOCH,
    AT_SCHEMA,
    AT_STATE,
    AT_RECOVER,
    AT_FLAGS,
    AT_KIND,
    AT_STATUS,
    AT_CLAIM,
    AT_FINGERPRINT,
    AT_SCOPE,
    AT_KEY,
    AT_PAYLOAD,
    COLUMN_COUNT
};

static uint64_t time_at(const PGresult *result, int row, int column)
{
    int64_t ms = once__pg_int(result, row, column);

    return ms > 0 ? (uint64_t)ms : 0;
}

static void read_fingerprint(once__fingerprint_t *fingerprint, const PGresult *result, int row)
{
    size_t len;
    const uint8_t *data = once__pg_bytes(result, row, AT_FINGERPRINT, &len);

    if (len == FINGERPRINT_SIZE) {
        fingerprint->secret = once__get32(data);
        fingerprint->mode = data[4];
        memcpy(fingerprint->mac, data + 5, sizeof(fingerprint->mac));
    }
}

/* 0, or -1 when this cannot be a record. */
static int read_head(once__head_t *head, const PGresult *result, int row)
{
    memset(head, 0, sizeof(*head));
    head->state = (uint8_t)once__pg_int(result, row, AT_STATE);
    if (head->state == ONCE_STATE_NONE) {
        return 0;
    }
    head->schema = (uint8_t)once__pg_int(result, row, AT_SCHEMA);
    head->recover = (uint8_t)once__pg_int(result, row, AT_RECOVER);
    head->flags = (uint8_t)once__pg_int(result, row, AT_FLAGS);
    head->claim.epoch = (uint32_t)once__pg_int(result, row, AT_EPOCH);
    head->lease_until = time_at(result, row, AT_LEASE_UNTIL);
    head->lease_ms = time_at(result, row, AT_LEASE_MS);
    head->changed = time_at(result, row, AT_CHANGED);
    head->expires = time_at(result, row, AT_EXPIRES);
    head->ttl_ms = time_at(result, row, AT_TTL_MS);
    head->created = time_at(result, row, AT_CREATED);
    if (head->schema <= ONCE__SCHEMA) {
        read_fingerprint(&head->fingerprint, result, row);
    }
    return once__pg_copy(result, row, AT_CLAIM, head->claim.id, ONCE_CLAIM_ID_SIZE);
}

/* A copy of the row; of a newer version's only the envelope. NULL when out of memory. */
static once__record_t *read_record(const once__head_t *head, const PGresult *result, int row)
{
    once__record_t record = {.head = *head};

    (void)once__pg_copy(result, row, AT_ID, record.id, ONCE_ID_SIZE);
    if (head->schema <= ONCE__SCHEMA) {
        (void)once__pg_copy(result, row, AT_SCOPE, record.scope_hash, ONCE_SCOPE_HASH_SIZE);
        record.key = (const char *)once__pg_bytes(result, row, AT_KEY, &record.key_len);
        record.payload.kind = (uint8_t)once__pg_int(result, row, AT_KIND);
        record.payload.status = (uint16_t)once__pg_int(result, row, AT_STATUS);
        record.payload.data = once__pg_bytes(result, row, AT_PAYLOAD, &record.payload.len);
    }
    return once__record_clone(&record);
}

void once__pg_clear_answer(once__op_t *op)
{
    op->outcome = ONCE_NO_OUTCOME;
    op->now = 0;
    op->record = NULL;
    op->records = NULL;
    op->count = 0;
    memset(&op->head, 0, sizeof(op->head));
}

static void read_row(const PGresult *result, int row, once__op_t *op)
{
    int wants_record;

    op->error = ONCE_OK;
    op->outcome = (uint8_t)once__pg_int(result, row, AT_OUTCOME);
    op->now = time_at(result, row, AT_NOW);
    if (read_head(&op->head, result, row) != 0) {
        op->error = ONCE_E_CORRUPT;
        return;
    }
    wants_record = op->kind == ONCE__OP_GET ||
                   (op->outcome != ONCE_DONE && once__pg_int(result, row, AT_KIND) != 0);
    if (wants_record && op->head.state != ONCE_STATE_NONE) {
        op->record = read_record(&op->head, result, row);
        /* What was done is done: a copy that could not be made is a lost reply, and is asked for again. */
        op->error = op->record != NULL ? ONCE_OK : ONCE_E_NOREPLY;
    }
}

void once__pg_read_batch(const PGresult *result, once__pg_find find, void *data)
{
    if (PQnfields(result) != COLUMN_COUNT) {
        return;
    }
    for (int row = 0; row < PQntuples(result); row++) {
        size_t len;
        const uint8_t *id = once__pg_bytes(result, row, AT_ID, &len);
        once__op_t *op = len == ONCE_ID_SIZE ? find(data, id) : NULL;
        if (op != NULL) {
            read_row(result, row, op);
        }
    }
}

/* Somebody else is at this record right now: as much of it as can be said without having seen it. */
static void answer_locked(once__op_t *op)
{
    op->error = ONCE_OK;
    op->head.schema = ONCE__SCHEMA;
    op->head.state = ONCE_STATE_PENDING;
    op->head.recover = op->event.recover;
    op->head.claim.epoch = 1;
    if (op->event.kind == ONCE__RENEW) {
        op->outcome = ONCE_DONE; /* alive: whoever holds it in an open transaction is at work */
        op->head.claim = op->event.claim;
    } else {
        op->outcome = ONCE_BUSY;
        op->head.lease_until = op->now + 1000; /* a transaction: seconds, not leases */
    }
}

void once__pg_answer_absent(once__op_t *op)
{
    if (op->kind == ONCE__OP_GET) {
        op->error = ONCE_E_NOT_FOUND;
    } else if (op->event.kind == ONCE__CLAIM || op->event.kind == ONCE__RENEW) {
        answer_locked(op);
    } else {
        op->error = ONCE_E_UNAVAILABLE; /* certainly not applied: it is repeated */
    }
}

/* --------------------------------------------------------------------------------------------------------- singles */

static int send_scan(PGconn *conn, once__pg_params_t *params, const once__op_t *op)
{
    const once_filter_t *filter = op->filter;

    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), op->cursor.bytes, ONCE_ID_SIZE);
    once__pg_put_int(once__pg_param(params, ONCE__PG_INT8), clamp(op->limit), 8);
    once__pg_put_int(once__pg_param(params, ONCE__PG_INT4), filter->states, 4);
    once__pg_put_int(once__pg_param(params, ONCE__PG_BOOL), filter->stuck != 0, 1);
    once__pg_put_int(once__pg_param(params, ONCE__PG_INT8), clamp(filter->older_than_ms), 8);
    once__pg_put_int(once__pg_param(params, ONCE__PG_INT8), clamp(filter->younger_than_ms), 8);
    once__pg_put(once__pg_param(params, ONCE__PG_BYTEA), filter->scope_hash,
                 filter->scope_hash_len);
    return once__pg_send(
        conn, "SELECT " COLUMNS " FROM once.store_scan($1, $2, $3, $4, $5, $6, $7)", params);
}

static uint64_t reap_limit(const once__op_t *op)
{
    uint64_t left = op->limit == 0 ? REAP_STEP : op->limit - op->count;

    return left < REAP_STEP ? left : REAP_STEP;
}

/* By itself a handle does a little where the last one stopped; who asks for it gets a pass through the whole table. */
static int send_reap(PGconn *conn, once__pg_params_t *params, const once__op_t *op)
{
    if (!op->thorough) {
        once__pg_put_int(once__pg_param(params, ONCE__PG_INT8), reap_limit(op), 8);
        return once__pg_send(conn, "SELECT once.reap($1), NULL::bigint", params);
    }
    once__pg_put_int(once__pg_param(params, ONCE__PG_INT8), once__get64(op->cursor.bytes), 8);
    once__pg_put_int(once__pg_param(params, ONCE__PG_INT8), reap_limit(op), 8);
    once__pg_put_int(once__pg_param(params, ONCE__PG_INT4), REAP_BUDGET_MS, 4);
    return once__pg_send(conn, "SELECT removed, next_block FROM once.sweep($1, $2, $3)", params);
}

int once__pg_send_single(PGconn *conn, once__pg_params_t *params, const once__op_t *op)
{
    once__pg_params_reset(params);
    switch (op->kind) {
    case ONCE__OP_SCAN:
        return send_scan(conn, params, op);
    case ONCE__OP_REAP:
        return send_reap(conn, params, op);
    case ONCE__OP_STATS:
        return once__pg_send(conn,
                             "SELECT pending, completed, failed, unknown, stuck, expired, "
                             "oldest_ms, bytes, once.now_ms() FROM once.stats()",
                             params);
    case ONCE__OP_SECRETS_LOAD:
        once__pg_put(once__pg_param(params, ONCE__PG_TEXT), op->secrets_new,
                     strlen(op->secrets_new));
        return once__pg_send(conn, "SELECT once.store_secrets_load($1)", params);
    case ONCE__OP_SECRETS_SWAP:
        once__pg_put(once__pg_param(params, ONCE__PG_TEXT), op->secrets_old,
                     strlen(op->secrets_old));
        once__pg_put(once__pg_param(params, ONCE__PG_TEXT), op->secrets_new,
                     strlen(op->secrets_new));
        return once__pg_send(conn, "SELECT once.store_secrets_swap($1, $2)", params);
    default:
        return -1;
    }
}

static void read_scan(const PGresult *result, once__op_t *op)
{
    int rows = PQntuples(result), last = rows - 1;

    op->error = ONCE_OK;
    op->records = calloc((size_t)rows + 1, sizeof(once__record_t *));
    if (op->records == NULL || PQnfields(result) != COLUMN_COUNT || rows < 1) {
        op->error = op->records == NULL ? ONCE_E_NOMEM : ONCE_E_IO;
        return;
    }
    op->now = time_at(result, last, AT_NOW);
    for (int row = 0; row < last; row++) {
        once__head_t head;
        if (read_head(&head, result, row) != 0) {
            continue; /* not a record: nothing that could be shown */
        }
        op->records[op->count] = read_record(&head, result, row);
        if (op->records[op->count] == NULL) {
            op->error = ONCE_E_NOMEM;
            return;
        }
        op->count++;
    }
    (void)once__pg_copy(result, last, AT_ID, op->cursor.bytes, ONCE_ID_SIZE);
    op->cursor.end = once__pg_int(result, last, AT_OUTCOME) == 2;
}

static int read_reap(const PGresult *result, once__op_t *op)
{
    int at_end = PQgetisnull(result, 0, 1);

    op->error = ONCE_OK;
    op->count += (uint64_t)once__pg_int(result, 0, 0);
    once__put64(op->cursor.bytes, (uint64_t)once__pg_int(result, 0, 1));
    return op->thorough && !at_end && (op->limit == 0 || op->count < op->limit);
}

static void read_stats(const PGresult *result, once__op_t *op)
{
    once_stats_t *stats = &op->stats;

    memset(stats, 0, sizeof(*stats));
    stats->pending = (uint64_t)once__pg_int(result, 0, 0);
    stats->completed = (uint64_t)once__pg_int(result, 0, 1);
    stats->failed = (uint64_t)once__pg_int(result, 0, 2);
    stats->unknown = (uint64_t)once__pg_int(result, 0, 3);
    stats->stuck = (uint64_t)once__pg_int(result, 0, 4);
    stats->expired = (uint64_t)once__pg_int(result, 0, 5);
    stats->oldest_ms = (uint64_t)once__pg_int(result, 0, 6);
    stats->bytes = (uint64_t)once__pg_int(result, 0, 7);
    op->now = time_at(result, 0, 8);
    op->error = ONCE_OK;
}

static void read_secrets(const PGresult *result, once__op_t *op)
{
    size_t len;
    const uint8_t *text = once__pg_bytes(result, 0, 0, &len);

    if (len == 0 || len >= ONCE__SECRETS_TEXT_SIZE) {
        op->error = ONCE_E_SECRET;
        return;
    }
    memcpy(op->secrets, text, len);
    op->secrets[len] = '\0';
    /* A swap that finds its own text was applied before: its reply was lost. */
    op->error = op->kind == ONCE__OP_SECRETS_SWAP && strcmp(op->secrets, op->secrets_new) != 0
                    ? ONCE_E_CONFLICT
                    : ONCE_OK;
}

int once__pg_read_single(const PGresult *result, once__op_t *op)
{
    if (op->kind == ONCE__OP_SCAN) {
        read_scan(result, op);
        return 0;
    }
    if (PQntuples(result) != 1) {
        op->error = ONCE_E_IO;
        return 0;
    }
    switch (op->kind) {
    case ONCE__OP_REAP:
        return read_reap(result, op);
    case ONCE__OP_STATS:
        read_stats(result, op);
        return 0;
    default:
        read_secrets(result, op);
        return 0;
    }
}
