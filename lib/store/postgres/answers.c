#include "store/postgres/answers.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

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
    AT_ABOUT,
    AT_CAUSE,
    COLUMN_COUNT
};

#define TABLES    3  /* that are reaped: the last are the dictionaries */
#define TRIES_MAX 50 /* to see a dictionary without users */
#define OTHER_SECRETS                                                                              \
    33 /* an outcome: the store's secrets are not the caller's, and nothing was done */
#define OTHER_DICTIONARY 34 /* nor was it: the store does not have what it was packed with */

static uint64_t time_at(const PGresult *result, int row, int column)
{
    int64_t ms = once__pg_int(result, row, column);

    return ms > 0 ? (uint64_t)ms : 0;
}

static void read_fingerprint(once__fingerprint_t *fingerprint, const PGresult *result, int row)
{
    size_t len;
    const uint8_t *data = once__pg_bytes(result, row, AT_FINGERPRINT, &len);

    if (len == ONCE__POSTGRES_FINGERPRINT_SIZE) {
        fingerprint->secret = once__get32(data);
        fingerprint->mode = data[4];
        memcpy(fingerprint->mac, data + 5, sizeof(fingerprint->mac));
    }
}

/* Returns 0, or -1 if the row is not a record. */
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

static once_slice_t bytes_at(const PGresult *result, int row, int column)
{
    once_slice_t bytes;

    bytes.data = (const char *)once__pg_bytes(result, row, column, &bytes.len);
    return bytes;
}

/* Copies the row, or its envelope only if a newer version wrote it. ONCE_OK, ONCE_E_CORRUPT, ONCE_E_NOMEM. */
static int read_record(once__record_t **copy, const once__head_t *head, const PGresult *result,
                       int row, once__postgres_packing_t *packing)
{
    once__record_t record = {.head = *head};
    int code = ONCE_OK;

    (void)once__pg_copy(result, row, AT_ID, record.id, ONCE_ID_SIZE);
    if (head->schema <= ONCE__SCHEMA) {
        (void)once__pg_copy(result, row, AT_SCOPE, record.scope_hash, ONCE_SCOPE_HASH_SIZE);
        record.key = (const char *)once__pg_bytes(result, row, AT_KEY, &record.key_len);
        record.payload.kind = (uint8_t)once__pg_int(result, row, AT_KIND);
        record.payload.status = (uint16_t)once__pg_int(result, row, AT_STATUS);
        record.payload.data = once__pg_bytes(result, row, AT_PAYLOAD, &record.payload.len);
        record.about = bytes_at(result, row, AT_ABOUT);
        record.cause = bytes_at(result, row, AT_CAUSE);
        code = once__postgres_unpack(packing, &record);
    }
    *copy = code == ONCE_OK ? once__record_clone(&record) : NULL;
    return code == ONCE_OK && *copy == NULL ? ONCE_E_NOMEM : code;
}

static void read_row(const PGresult *result, int row, once__op_t *op,
                     once__postgres_packing_t *packing)
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
                   (op->outcome != ONCE_OUTCOME_DONE && once__pg_int(result, row, AT_KIND) != 0);
    if (wants_record && op->head.state != ONCE_STATE_NONE) {
        op->error = read_record(&op->record, &op->head, result, row, packing);
        /* The event was applied: without memory for the copy the reply counts as lost, and is asked for again. */
        op->error = op->error == ONCE_E_NOMEM ? ONCE_E_NOREPLY : op->error;
    }
}

int once__postgres_is_read_committed(const PGresult *result)
{
    static const char level[] = "read committed";

    return PQntuples(result) != 1 || PQnfields(result) != 3 ||
           (PQgetlength(result, 0, 1) == sizeof(level) - 1 &&
            memcmp(PQgetvalue(result, 0, 1), level, sizeof(level) - 1) == 0);
}

int once__postgres_backend(const PGresult *result)
{
    return PQntuples(result) == 1 && PQnfields(result) == 3 ? (int)once__pg_int(result, 0, 2) : 0;
}

/* The claim made a new record. */
static void answer_granted(once__op_t *op, uint64_t now)
{
    const once__event_t *event = &op->event;

    op->error = ONCE_OK;
    op->outcome = ONCE_OUTCOME_RUN;
    op->now = now;
    op->head = (once__head_t){
        .schema = ONCE__SCHEMA,
        .state = ONCE_STATE_PENDING,
        .recover = event->recover,
        .claim = {.epoch = 1},
        .created = now,
        .changed = now,
        .lease_ms = once__postgres_clamp(event->lease_ms),
        .lease_until = now + once__postgres_clamp(event->lease_ms),
        .ttl_ms = once__postgres_clamp(event->ttl_ms),
    };
    memcpy(op->head.claim.id, event->claim.id, ONCE_CLAIM_ID_SIZE);
    if (event->fingerprint_count > 0) {
        op->head.fingerprint = event->fingerprints[0];
    }
}

/* One row that speaks of all. */
static int is_common(const PGresult *result)
{
    return PQnfields(result) == COLUMN_COUNT && PQntuples(result) == 1 &&
           PQgetisnull(result, 0, AT_ID);
}

/* Was nothing of it done, because the store does not have the dictionary that it was packed with? */
static int is_refused(const PGresult *result)
{
    return is_common(result) && once__pg_int(result, 0, AT_OUTCOME) == OTHER_DICTIONARY;
}

/*
 * Answers every claim of the list if the result says the same for all of them: granted with a new record, or refused. Returns
 * whether it does.
 */
static int read_granted(const PGresult *result, once__oplist_t *list)
{
    if (!is_common(result)) {
        return 0;
    }
    for (once__op_t *op = list->first; op != NULL; op = op->next) {
        if (once__postgres_statement_of(op) != ONCE__POSTGRES_CLAIM) {
            continue;
        }
        if (once__pg_int(result, 0, AT_OUTCOME) == OTHER_SECRETS) {
            op->error = ONCE_E_SECRET;
        } else {
            answer_granted(op, time_at(result, 0, AT_NOW));
        }
    }
    return 1;
}

/* Answers the operations that the rows name. Of several rows with one id the first counts. */
static void read_rows(const PGresult *result, once__postgres_packing_t *packing,
                      const once__hash_t *inflight)
{
    if (PQnfields(result) != COLUMN_COUNT) {
        return;
    }
    for (int row = 0; row < PQntuples(result); row++) {
        size_t len;
        const uint8_t *id = once__pg_bytes(result, row, AT_ID, &len);
        once__op_t *op = len == ONCE_ID_SIZE ? once__postgres_inflight(inflight, id) : NULL;
        if (op != NULL && op->error == ONCE__POSTGRES_UNANSWERED) {
            read_row(result, row, op, packing);
        }
    }
}

/* Another transaction has the record locked: what can be said without having seen it. */
static void answer_busy(once__op_t *op)
{
    op->error = ONCE_OK;
    op->outcome = ONCE_OUTCOME_BUSY;
    op->head.schema = ONCE__SCHEMA;
    op->head.state = ONCE_STATE_PENDING;
    op->head.recover = op->event.recover;
    op->head.claim.epoch = 1;
    op->head.lease_until = op->now + 1000; /* a transaction takes seconds, not leases */
}

/* Answers an operation that no row named: no such record (get), or another transaction has it locked. */
static void answer_absent(once__op_t *op)
{
    if (op->kind == ONCE__OP_GET) {
        op->error = ONCE_E_NOT_FOUND;
    } else if (op->event.kind == ONCE__CLAIM) {
        answer_busy(op);
    } else {
        op->error = ONCE_E_UNAVAILABLE; /* not applied: it will be repeated */
    }
}

/* --------------------------------------------------------------------------------------------------------- singles */

static void read_scan(const PGresult *result, once__op_t *op, once__postgres_packing_t *packing)
{
    int rows = PQntuples(result), last = rows - 1;

    op->error = ONCE_OK;
    op->damaged = 0; /* of this step */
    op->records = calloc((size_t)rows + 1, sizeof(once__record_t *));
    if (op->records == NULL || PQnfields(result) != COLUMN_COUNT || rows < 1) {
        op->error = op->records == NULL ? ONCE_E_NOMEM : ONCE_E_IO;
        return;
    }
    op->now = time_at(result, last, AT_NOW);
    for (int row = 0; row < last; row++) {
        once__head_t head;
        if (read_head(&head, result, row) != 0) {
            continue; /* not a record */
        }
        op->error = read_record(&op->records[op->count], &head, result, row, packing);
        if (op->error == ONCE_E_NOMEM) {
            return;
        }
        op->count += op->error == ONCE_OK;
        op->damaged += op->error != ONCE_OK;
        op->error = ONCE_OK;
    }
    (void)once__pg_copy(result, last, AT_ID, op->cursor.bytes, ONCE_ID_SIZE);
    op->cursor.end = once__pg_int(result, last, AT_OUTCOME) == 2;
}

/* It is done when there is nothing to go on with. While records or transactions are in the way it is tried again, for a while. */
static void read_scrub(const PGresult *result, once__op_t *op)
{
    uint8_t *cursor = op->cursor.bytes, after[16], *tries = cursor + ONCE__POSTGRES_CURSOR_TRIES;

    op->error = ONCE_OK;
    if (PQgetisnull(result, 0, 0)) {
        return;
    }
    if (once__pg_copy(result, 0, 0, after, sizeof(after)) != 0) {
        op->error = ONCE_E_IO;
        return;
    }
    *tries += memcmp(after, cursor + ONCE__POSTGRES_CURSOR_AFTER, sizeof(after)) <= 0;
    memcpy(cursor + ONCE__POSTGRES_CURSOR_AFTER, after, sizeof(after));
    once__put64(cursor + ONCE__POSTGRES_CURSOR_STILL, (uint64_t)once__pg_int(result, 0, 1));
    cursor[ONCE__POSTGRES_CURSOR_BEGUN] = 1;
    op->count = *tries >= TRIES_MAX; /* something is left */
    op->error = op->count == 0 ? ONCE__POSTGRES_UNANSWERED : ONCE_OK;
}

/* Until there is no more to do: the rest of the records, then the messages. */
static void read_reap(const PGresult *result, once__op_t *op)
{
    uint8_t *table = &op->cursor.bytes[ONCE__POSTGRES_CURSOR_TABLE];
    int is_more;

    if (op->scrub) {
        read_scrub(result, op);
        return;
    }
    op->error = ONCE_OK;
    op->count += (uint64_t)once__pg_int(result, 0, 0);
    if (!op->thorough) {
        op->pause_ms = (uint64_t)once__pg_int(result, 0, 1);
        op->stats.behind_ms = (uint64_t)once__pg_int(result, 0, 2);
        op->stats.messages_behind_ms = (uint64_t)once__pg_int(result, 0, 3);
        return;
    }
    once__put64(op->cursor.bytes, (uint64_t)once__pg_int(result, 0, 1));
    if (PQgetisnull(result, 0, 1)) {
        once__put64(op->cursor.bytes, 0);
        ++*table;
    }
    is_more = *table < TABLES && (op->limit == 0 || op->count < op->limit);
    op->error = is_more ? ONCE__POSTGRES_UNANSWERED : ONCE_OK; /* what was counted stays counted */
}

static void read_stats(const PGresult *result, once__op_t *op)
{
    once_stats_t *stats = &op->stats;

    memset(stats, 0, sizeof(*stats));
    op->error = ONCE_OK;
    if (!op->thorough) {
        op->count = (uint64_t)once__pg_int(result, 0, 0);
        stats->bytes = (uint64_t)once__pg_int(result, 0, 1);
        return;
    }
    stats->pending = (uint64_t)once__pg_int(result, 0, 0);
    stats->completed = (uint64_t)once__pg_int(result, 0, 1);
    stats->failed = (uint64_t)once__pg_int(result, 0, 2);
    stats->unknown = (uint64_t)once__pg_int(result, 0, 3);
    stats->stuck = (uint64_t)once__pg_int(result, 0, 4);
    stats->expired = (uint64_t)once__pg_int(result, 0, 5);
    stats->oldest_ms = (uint64_t)once__pg_int(result, 0, 6);
    stats->bytes = (uint64_t)once__pg_int(result, 0, 7);
    op->now = time_at(result, 0, 8);
    stats->behind_ms = (uint64_t)once__pg_int(result, 0, 9);
    stats->messages = (uint64_t)once__pg_int(result, 0, 10);
    stats->messages_behind_ms = (uint64_t)once__pg_int(result, 0, 11);
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
    /* A swap that finds its own text was applied before, and its reply was lost. */
    op->error = op->kind == ONCE__OP_SECRETS_SWAP && strcmp(op->secrets, op->secrets_new) != 0
                    ? ONCE_E_CONFLICT
                    : ONCE_OK;
}

static void read_audit(const PGresult *result, once__op_t *op)
{
    size_t len;
    const uint8_t *lines = once__pg_bytes(result, 0, 1, &len);

    op->error = ONCE_OK;
    op->end = (uint64_t)once__pg_int(result, 0, 0);
    if (len == 0) {
        return;
    }
    op->lines = malloc(len);
    if (op->lines == NULL) {
        op->error = ONCE_E_NOMEM;
        return;
    }
    memcpy(op->lines, lines, len);
    op->count = len;
}

static void read_added(const PGresult *result, once__op_t *op)
{
    op->error = PQgetisnull(result, 0, 0) ? ONCE_E_CONFLICT : ONCE_OK;
    op->end = (uint64_t)once__pg_int(result, 0, 0);
}

static void read_dictionary(const PGresult *result, once__postgres_packing_t *packing,
                            once__op_t *op)
{
    once__postgres_packing_learn(packing, bytes_at(result, 0, 0), bytes_at(result, 0, 1),
                                 bytes_at(result, 0, 2));
    op->error = ONCE_OK;
}

/* Answers an operation that had a batch to itself; one that is not done yet stays unanswered. */
static void read_single(const PGresult *result, once__postgres_packing_t *packing, once__op_t *op)
{
    if (op->kind == ONCE__OP_SCAN) {
        read_scan(result, op, packing);
        return;
    }
    if (PQntuples(result) != 1) {
        op->error = ONCE_E_IO;
        return;
    }
    if (op == &packing->op) {
        read_dictionary(result, packing, op);
        return;
    }
    switch (op->kind) {
    case ONCE__OP_REAP:
        read_reap(result, op);
        return;
    case ONCE__OP_STATS:
        read_stats(result, op);
        return;
    case ONCE__OP_AUDIT_READ:
        read_audit(result, op);
        return;
    case ONCE__OP_AUDIT_ADD:
        read_added(result, op);
        return;
    default:
        read_secrets(result, op);
        return;
    }
}

/* ------------------------------------------------------------------------------------------------------- the batch */

void once__postgres_answers_read(once__postgres_batch_t *batch, const once__hash_t *inflight)
{
    int refused[ONCE__POSTGRES_PREPARE + 1] = {0};

    for (unsigned i = 0; i < batch->base.result_count; i++) {
        const PGresult *result = batch->base.results[i];
        once__postgres_statement_t statement = batch->statements[i];
        switch (statement) {
        case ONCE__POSTGRES_LEVEL:
        case ONCE__POSTGRES_TIMEOUT:
        case ONCE__POSTGRES_SETTINGS:
        case ONCE__POSTGRES_PREPARE:
            break;
        case ONCE__POSTGRES_SINGLE:
            read_single(result, batch->packing, batch->ops.first);
            return;
        default:
            refused[statement] = is_refused(result);
            if (refused[statement]) {
                once__postgres_packing_forget(batch->packing);
            } else if (statement != ONCE__POSTGRES_CLAIM || !read_granted(result, &batch->ops)) {
                read_rows(result, batch->packing, inflight);
            }
            break;
        }
    }
    for (once__op_t *op = batch->ops.first; op != NULL; op = op->next) {
        if (op->error == ONCE__POSTGRES_UNANSWERED && !refused[once__postgres_statement_of(op)]) {
            answer_absent(op);
        }
        if (op->kind == ONCE__OP_EVENT && op->event.kind == ONCE__CLAIM && op->error == ONCE_OK &&
            op->outcome == ONCE_OUTCOME_RUN) {
            once__postgres_packing_granted(batch->packing, op->about);
        }
    }
}
