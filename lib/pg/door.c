/*
 * The door: once.* in a transaction of the caller's, on a connection of the caller's.
 *
 * In a statement every name is qualified (OPERATOR(pg_catalog.*), pg_catalog.jsonb; keywords such as bigint need not be) and every
 * literal has its type: in the schemas of the connection's search_path other roles may have functions of the same name that fit
 * better.
 */
#include <assert.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>
#include <once/postgres.h>

#include "base/error.h"
#include "base/text.h"
#include "core/policy.h"
#include "core/response.h"
#include "core/sized.h"
#include "core/token.h"
#include "pg/sqlstate.h"
#include "pg/values.h"

/* ----------------------------------------------------------------------------------------------------- a statement */

#define PARAMS_MAX 10

/* Parameters borrow what they point to. */
typedef struct params {
    int count;
    Oid types[PARAMS_MAX];
    const char *values[PARAMS_MAX];
    int lengths[PARAMS_MAX];
    int formats[PARAMS_MAX];
    char numbers[PARAMS_MAX][32]; /* texts of numbers */
    int too_big;                  /* one is longer than a parameter can be */
} params_t;

static void add(params_t *params, Oid type, const void *value, size_t len, int format)
{
    int n = params->count++;

    assert(n < PARAMS_MAX);
    params->too_big = params->too_big || len > INT_MAX;
    params->types[n] = type;
    params->values[n] = value;
    params->lengths[n] = (int)len;
    params->formats[n] = format;
}

/* NULL: null. */
static void add_text(params_t *params, const char *text)
{
    add(params, ONCE__PG_TEXT, text, text != NULL ? strlen(text) : 0, 1);
}

/* An empty value is not null. */
static const void *never_null(once_slice_t slice)
{
    return slice.data != NULL ? slice.data : "";
}

static void add_slice(params_t *params, once_slice_t text)
{
    add(params, ONCE__PG_TEXT, never_null(text), text.len, 1);
}

static void add_bytes(params_t *params, once_slice_t bytes)
{
    add(params, ONCE__PG_BYTEA, never_null(bytes), bytes.len, 1);
}

static void add_number(params_t *params, long long number)
{
    char *text = params->numbers[params->count];
    int len = snprintf(text, sizeof(params->numbers[0]), "%lld", number);

    add(params, ONCE__PG_INT8, text, (size_t)len, 0);
}

/* Of make_interval; 0: null. */
static void add_seconds(params_t *params, uint64_t ms)
{
    char *text = params->numbers[params->count];
    int len = snprintf(text, sizeof(params->numbers[0]), "%" PRIu64 ".%03u", ms / 1000,
                       (unsigned)(ms % 1000));

    add(params, ONCE__PG_FLOAT8, ms > 0 ? text : NULL, (size_t)len, 0);
}

/* NULL: null. */
static void add_uuid(params_t *params, const uint8_t *uuid)
{
    add(params, ONCE__PG_UUID, uuid, ONCE_CLAIM_ID_SIZE, 1);
}

/* once's own errors; PostgreSQL's are sqlstate.h's. */
static const struct {
    const char *state;
    int code;
} own_errors[] = {
    {"ON001", ONCE_E_STALE},   {"ON002", ONCE_E_COMPLETED}, {"ON003", ONCE_E_NEWER},
    {"ON004", ONCE_E_INVALID}, {"ON005", ONCE_E_SECRET},    {"ON006", ONCE_E_CONFLICT},
};

static int code_of(const char *state)
{
    for (size_t i = 0; i < sizeof(own_errors) / sizeof(own_errors[0]); i++) {
        if (strcmp(state, own_errors[i].state) == 0) {
            return own_errors[i].code;
        }
    }
    switch (once__pg_fault(state)) {
    case ONCE__PG_FAULT_VALUE:
        return ONCE_E_INVALID;
    case ONCE__PG_FAULT_SETUP:
    case ONCE__PG_FAULT_RIGHTS:
        return ONCE_E_CONFIG;
    case ONCE__PG_FAULT_CONFLICT:
        return ONCE_E_CONFLICT;
    case ONCE__PG_FAULT_FULL:
        return ONCE_E_FULL;
    case ONCE__PG_FAULT_GONE:
        return ONCE_E_UNAVAILABLE;
    default:
        return ONCE_E_SQL;
    }
}

/* Quotes the primary message only, because details contain values; for class 22 not even that, because it does, too. */
static int fail_by(PGconn *conn, const PGresult *result, once_error_t *err)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    if (state != NULL && strncmp(state, "22", 2) == 0) {
        return once__fail(err, code_of(state), "%s: the server refused an argument", state);
    }
    if (state != NULL && words != NULL) {
        return once__fail(err, code_of(state), "%s: %.200s", state, words);
    }
    if (PQstatus(conn) == CONNECTION_BAD) {
        return once__fail(err, ONCE_E_UNAVAILABLE, "the connection to the server is gone");
    }
    return once__fail(
        err, ONCE_E_SQL,
        "the connection could not take the statement: it is in use, or out of memory");
}

/*
 * Runs the statement and waits. Returns ONCE_OK with a `*result` of at least `rows` rows that the caller clears, values binary
 * (text is text, and terminated); or the code of the error. `result` may be NULL.
 */
static int run_statement(PGconn *conn, const char *text, const params_t *params, int rows,
                         PGresult **result, once_error_t *err)
{
    PGresult *got;
    int code = ONCE_OK;

    if (params->too_big) {
        return once__fail(err, ONCE_E_TOO_BIG, "an argument is over 2 GiB");
    }
    got = PQexecParams(conn, text, params->count, params->types, params->values, params->lengths,
                       params->formats, 1);
    if (PQresultStatus(got) != PGRES_TUPLES_OK) {
        code = fail_by(conn, got, err);
    } else if (PQntuples(got) < rows) {
        code = once__fail(err, ONCE_E_NOT_FOUND, "%s", once_error_text(ONCE_E_NOT_FOUND));
    } else {
        (void)once__fail(err, ONCE_OK, "%s", "");
    }
    if (code != ONCE_OK || result == NULL) {
        PQclear(got);
    } else {
        *result = got;
    }
    return code;
}

/* Return ONCE_OK, or ONCE_E_INVALID if it is not a claim, or if no transaction is open. */
static int demand_claim(const char *claim, once_error_t *err)
{
    uint8_t id[ONCE_ID_SIZE];
    once__claim_ref_t ref;

    if (claim == NULL || once__token_read(claim, id, &ref) != 0) {
        return once__fail(err, ONCE_E_INVALID, "this is not a claim");
    }
    return ONCE_OK;
}

static int demand_transaction(PGconn *conn, const char *what, once_error_t *err)
{
    if (PQtransactionStatus(conn) == PQTRANS_IDLE) {
        return once__fail(err, ONCE_E_INVALID, "%s is for a transaction, and none is open", what);
    }
    return ONCE_OK;
}

/* --------------------------------------------------------------------------------------- claims, and their answers */

struct once_pg_answer {
    once_outcome_t outcome;
    uint32_t epoch;
    uint64_t retry_after_ms;
    int status;
    int plain; /* headers and body are there */
    PGresult *rows;
    size_t header_count;
    once_header_t headers[];
};

enum { OUTCOME, CLAIM, EPOCH, RETRY_AFTER, STATUS, STORED, BODY, NAME, VALUE };

/*
 * One row for each header; the first has everything else. The connection and its search_path are the application's, so no name here
 * depends on it.
 */
#define COLUMNS                                                                                    \
    "SELECT c.outcome, c.claim, c.epoch::bigint, "                                                 \
    "pg_catalog.ceil(extract(epoch FROM c.retry_after) OPERATOR(pg_catalog.*) 1000::numeric)"      \
    "::bigint, c.status::bigint, c.stored, "                                                       \
    "CASE WHEN h.n IS NULL OR h.n OPERATOR(pg_catalog.=) 1::bigint THEN c.body END, "              \
    "h.name, h.value FROM "
#define HEADERS                                                                                    \
    " AS c LEFT JOIN LATERAL ("                                                                    \
    "SELECT pg_catalog.convert_to(e.item OPERATOR(pg_catalog.->>) 0, 'UTF8') AS name, "            \
    "pg_catalog.convert_to(e.item OPERATOR(pg_catalog.->>) 1, 'UTF8') AS value, e.n "              \
    "FROM pg_catalog.jsonb_array_elements(c.headers) WITH ORDINALITY AS e (item, n)"               \
    ") AS h ON true ORDER BY h.n"

static const char claim_text[] =
    COLUMNS "once.claim(scope => $1, key => $2, method => $3, target => $4, body => $5, "
            "recover => $6, lease => pg_catalog.make_interval(secs => $7), "
            "ttl => pg_catalog.make_interval(secs => $8), "
            "wait => $9 OPERATOR(pg_catalog.=) 0::bigint, "
            "claim_id => coalesce($10, pg_catalog.gen_random_uuid()))" HEADERS;
static const char recorded_text[] = COLUMNS "once.recorded(claim => $1)" HEADERS;

static uint64_t number_at(const PGresult *rows, int column)
{
    const unsigned char *p = (const unsigned char *)PQgetvalue(rows, 0, column);
    uint64_t number = 0;

    for (int i = 0; i < PQgetlength(rows, 0, column); i++) {
        number = number << 8 | p[i];
    }
    return number;
}

static once_slice_t slice_at(const PGresult *rows, int row, int column)
{
    once_slice_t slice = {PQgetvalue(rows, row, column), (size_t)PQgetlength(rows, row, column)};

    return slice;
}

static once_outcome_t outcome_of(const char *name)
{
    for (int i = ONCE_OUTCOME_RUN; i <= ONCE_OUTCOME_REFUSED; i++) {
        if (strcmp(name, once_outcome_name((once_outcome_t)i)) == 0) {
            return (once_outcome_t)i;
        }
    }
    /* `mine`: this claim id held the record when its lease ran out. Nothing was run under it, and nothing may be now. */
    return ONCE_OUTCOME_LOST;
}

/* Takes the rows over. */
static int answer_of(PGresult *rows, once_pg_answer_t **answer, once_error_t *err)
{
    size_t count = PQgetisnull(rows, 0, NAME) ? 0 : (size_t)PQntuples(rows);
    once_pg_answer_t *made = calloc(1, sizeof(*made) + count * sizeof(made->headers[0]));

    if (made == NULL) {
        PQclear(rows);
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    made->rows = rows;
    made->outcome = outcome_of(PQgetvalue(rows, 0, OUTCOME));
    made->epoch = (uint32_t)number_at(rows, EPOCH);
    made->retry_after_ms = number_at(rows, RETRY_AFTER);
    made->status = (int)number_at(rows, STATUS);
    made->plain = strcmp(PQgetvalue(rows, 0, STORED), "plain") == 0 ||
                  strcmp(PQgetvalue(rows, 0, STORED), "omitted") == 0;
    made->header_count = count;
    for (size_t i = 0; i < count; i++) {
        made->headers[i].name = slice_at(rows, (int)i, NAME);
        made->headers[i].value = slice_at(rows, (int)i, VALUE);
    }
    *answer = made;
    return ONCE_OK;
}

static int read_ask(once_ask_t *ask, const once_ask_t *given, once_error_t *err)
{
    if (once__sized_read(ask, sizeof(*ask), ONCE__ASK_V1, given) != ONCE_OK) {
        return once__fail(err, ONCE_E_INVALID, "the ask was not set up with ONCE_ASK_INIT");
    }
    if (ask->body != NULL) {
        return once__fail(err, ONCE_E_UNSUPPORTED, "a streamed body cannot be sent to SQL");
    }
    if (ask->key.len == 0 || ask->key.len > ONCE_KEY_MAX) {
        return once__fail(err, ONCE_E_KEY, "a key has 1 to %d bytes", ONCE_KEY_MAX);
    }
    return ONCE_OK;
}

int once_pg_claim(PGconn *conn, const once_ask_t *given, unsigned flags, once_pg_answer_t **answer,
                  once_error_t *err)
{
    params_t params = {0};
    const once_policy_t *policy;
    once_ask_t ask = {0};
    PGresult *rows = NULL;
    int code = read_ask(&ask, given, err);

    *answer = NULL;
    if (code != ONCE_OK) {
        return code;
    }
    policy = ask.policy;
    add_slice(&params, ask.scope);
    add_slice(&params, ask.key);
    add_slice(&params, ask.method);
    add_slice(&params, ask.target);
    add_bytes(&params, ask.bytes);
    add_text(&params, once_recover_name(policy != NULL ? once_policy_recover(policy)
                                                       : ONCE_RECOVER_TRANSACTIONAL));
    add_seconds(&params, policy != NULL ? once_policy_lease_ms(policy) : 30000);
    add_seconds(&params, policy != NULL ? once_policy_ttl_ms(policy) : 24ull * 3600 * 1000);
    add_number(&params, (flags & ONCE_PG_NOWAIT) != 0);
    add_uuid(&params, ask.claim_id);
    code = run_statement(conn, claim_text, &params, 1, &rows, err);
    return code == ONCE_OK ? answer_of(rows, answer, err) : code;
}

int once_pg_recorded(PGconn *conn, const char *claim, once_pg_answer_t **answer, once_error_t *err)
{
    params_t params = {0};
    PGresult *rows = NULL;
    int code = demand_claim(claim, err);

    *answer = NULL;
    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, claim);
    code = run_statement(conn, recorded_text, &params, 1, &rows, err);
    return code == ONCE_OK ? answer_of(rows, answer, err) : code;
}

once_outcome_t once_pg_outcome(const once_pg_answer_t *answer)
{
    return answer->outcome;
}

const char *once_pg_token(const once_pg_answer_t *answer)
{
    return answer->outcome == ONCE_OUTCOME_RUN ? PQgetvalue(answer->rows, 0, CLAIM) : "";
}

uint32_t once_pg_epoch(const once_pg_answer_t *answer)
{
    return answer->epoch;
}

uint64_t once_pg_retry_after_ms(const once_pg_answer_t *answer)
{
    return answer->retry_after_ms;
}

int once_pg_response(const once_pg_answer_t *answer, once_response_t *response)
{
    once_response_t stored = ONCE_RESPONSE_INIT;
    int code = ONCE_OK, written;

    if (answer->outcome != ONCE_OUTCOME_REPLAY) {
        code = ONCE_E_NOT_FOUND;
    } else if (!answer->plain) {
        stored.status = answer->status;
        code = ONCE_E_SEALED;
    } else {
        stored.status = answer->status;
        stored.body_omitted = strcmp(PQgetvalue(answer->rows, 0, STORED), "omitted") == 0;
        stored.headers = answer->headers;
        stored.header_count = answer->header_count;
        stored.body = slice_at(answer->rows, 0, BODY);
    }
    written = once__sized_write(response, ONCE__RESPONSE_V1, &stored, sizeof(stored));
    return written == ONCE_OK ? code : written;
}

void once_pg_answer_free(once_pg_answer_t *answer)
{
    if (answer != NULL) {
        PQclear(answer->rows);
        free(answer);
    }
}

/* ----------------------------------------------------------------------------- the end of a claim, and its renewal */

static char *put_json(char *out, once_slice_t text)
{
    const char *p = text.data;

    *out++ = '"';
    for (size_t i = 0; i < text.len; i++) {
        out += once__json_escape(out, p[i]);
    }
    *out++ = '"';
    return out;
}

/* [["name", "value"], ...]: order and repetition are kept. */
static char *json_of(const once_response_t *response)
{
    size_t size = 3;
    char *text, *out;

    for (size_t i = 0; i < response->header_count; i++) {
        size += 8 + 6 * (response->headers[i].name.len + response->headers[i].value.len);
    }
    out = text = malloc(size);
    if (text == NULL) {
        return NULL;
    }
    *out++ = '[';
    for (size_t i = 0; i < response->header_count; i++) {
        *out++ = '[';
        out = put_json(out, response->headers[i].name);
        *out++ = ',';
        out = put_json(out, response->headers[i].value);
        *out++ = ']';
        *out++ = ',';
    }
    out -= response->header_count > 0;
    *out++ = ']';
    *out = '\0';
    return text;
}

static int read_response(once_response_t *response, const once_response_t *given, once_error_t *err)
{
    size_t bytes;
    int code;

    if (once__sized_read(response, sizeof(*response), ONCE__RESPONSE_V1, given) != ONCE_OK) {
        return once__fail(err, ONCE_E_INVALID,
                          "the response was not set up with ONCE_RESPONSE_INIT");
    }
    if (response->status < ONCE__ANSWER_MIN || response->status > ONCE__ANSWER_MAX) {
        return once__fail(err, ONCE_E_INVALID, "the status of a response is 200 to 599");
    }
    if (response->body_omitted) {
        return once__fail(err, ONCE_E_UNSUPPORTED, "SQL records no response without its body");
    }
    code = once__headers_check(response, &bytes);
    if (code == ONCE_E_HEADER) {
        return once__fail(err, code, "%s", once_error_text(code));
    }
    if (code == ONCE_E_TOO_BIG || response->body.len > ONCE_BODY_STORE_MAX) {
        return once__fail(err, ONCE_E_TOO_BIG,
                          "the response is over %d headers, %d KiB of them, "
                          "or %d MiB of body",
                          ONCE_HEADER_COUNT_MAX, ONCE_HEADERS_MAX / 1024,
                          ONCE_BODY_STORE_MAX / 1024 / 1024);
    }
    return ONCE_OK;
}

int once_pg_complete(PGconn *conn, const char *claim, const once_response_t *given,
                     once_error_t *err)
{
    params_t params = {0};
    once_response_t response = {0};
    char *headers;
    int code = demand_claim(claim, err);

    code = code == ONCE_OK ? read_response(&response, given, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    headers = json_of(&response);
    if (headers == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    add_text(&params, claim);
    add_number(&params, response.status);
    add_text(&params, headers);
    add_bytes(&params, response.body);
    add_seconds(&params, response.retain_ms);
    code = run_statement(conn,
                         "SELECT once.complete(claim => $1, status => $2::integer, headers => "
                         "$3::pg_catalog.jsonb, body => $4, "
                         "retain => pg_catalog.make_interval(secs => $5))",
                         &params, 1, NULL, err);
    free(headers);
    return code;
}

static int release(PGconn *conn, const char *claim, int status, once_slice_t note,
                   const char *statement, once_error_t *err)
{
    params_t params = {0};
    int code = demand_claim(claim, err);

    if (code == ONCE_OK && (status < 0 || status > 999)) {
        code = once__fail(err, ONCE_E_INVALID, "a status is 0 to 999");
    }
    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, claim);
    add_number(&params, status);
    add_slice(&params, note);
    return run_statement(conn, statement, &params, 1, NULL, err);
}

int once_pg_release(PGconn *conn, const char *claim, int status, once_slice_t note,
                    once_error_t *err)
{
    return release(conn, claim, status, note,
                   "SELECT once.release(claim => $1, status => $2::integer, note => $3)", err);
}

int once_pg_release_early(PGconn *conn, const char *claim, int status, once_slice_t note,
                          once_error_t *err)
{
    return release(
        conn, claim, status, note,
        "SELECT once.release(claim => $1, status => $2::integer, note => $3, early => true)", err);
}

static int with_lease(PGconn *conn, const char *text, const char *claim, uint64_t lease_ms,
                      once_error_t *err)
{
    params_t params = {0};
    int code = demand_claim(claim, err);

    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, claim);
    add_seconds(&params, lease_ms);
    return run_statement(conn, text, &params, 1, NULL, err);
}

int once_pg_doubt(PGconn *conn, const char *claim, uint64_t lease_ms, once_error_t *err)
{
    return with_lease(
        conn, "SELECT once.doubt(claim => $1, lease => pg_catalog.make_interval(secs => $2))",
        claim, lease_ms, err);
}

int once_pg_renew(PGconn *conn, const char *claim, uint64_t lease_ms, once_error_t *err)
{
    return with_lease(
        conn, "SELECT once.renew(claim => $1, lease => pg_catalog.make_interval(secs => $2))",
        claim, lease_ms, err);
}

/* ------------------------------------------------------------------------- several steps, and locks by natural key */

int once_pg_checkpoint(PGconn *conn, const char *claim, const char *name, const char *state,
                       once_error_t *err)
{
    params_t params = {0};
    int code = demand_claim(claim, err);

    if (code == ONCE_OK && (name == NULL || name[0] == '\0')) {
        code = once__fail(err, ONCE_E_INVALID, "a checkpoint has a name");
    }
    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, claim);
    add_text(&params, name);
    add_text(&params, state);
    return run_statement(
        conn, "SELECT once.checkpoint(claim => $1, name => $2, state => $3::pg_catalog.jsonb)",
        &params, 1, NULL, err);
}

/* One allocation: the step, its name, its state. */
static once_pg_step_t *step_of(const PGresult *rows)
{
    size_t name = (size_t)PQgetlength(rows, 0, 0) + 1;
    size_t state = PQgetisnull(rows, 0, 1) ? 0 : (size_t)PQgetlength(rows, 0, 1) + 1;
    once_pg_step_t *step = malloc(sizeof(*step) + name + state);
    char *text;

    if (step == NULL) {
        return NULL;
    }
    text = (char *)(step + 1);
    memcpy(text, PQgetvalue(rows, 0, 0), name);
    memcpy(text + name, PQgetvalue(rows, 0, 1), state);
    step->name = text;
    step->state = state > 0 ? text + name : NULL;
    return step;
}

int once_pg_resume(PGconn *conn, const char *claim, once_pg_step_t **step, once_error_t *err)
{
    params_t params = {0};
    PGresult *rows = NULL;
    int code = demand_claim(claim, err);

    *step = NULL;
    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, claim);
    code = run_statement(conn, "SELECT name, state::pg_catalog.text FROM once.resume(claim => $1)",
                         &params, 0, &rows, err);
    if (code != ONCE_OK) {
        return code;
    }
    if (PQntuples(rows) > 0 && (*step = step_of(rows)) == NULL) {
        code = once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    PQclear(rows);
    return code;
}

void once_pg_step_free(once_pg_step_t *step)
{
    free(step);
}

int once_pg_derive(PGconn *conn, const char *claim, const char *step, once_key_t *key,
                   once_error_t *err)
{
    params_t params = {0};
    PGresult *rows = NULL;
    int code = demand_claim(claim, err);

    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, claim);
    add_text(&params, step);
    code =
        run_statement(conn, "SELECT once.derive(claim => $1, step => $2)", &params, 1, &rows, err);
    if (code == ONCE_OK) {
        key->len = (size_t)PQgetlength(rows, 0, 0);
        memcpy(key->text, PQgetvalue(rows, 0, 0), key->len + 1);
        PQclear(rows);
    }
    return code;
}

int once_pg_lock(PGconn *conn, const char *natural_key, once_error_t *err)
{
    params_t params = {0};
    int code = demand_transaction(conn, "a lock", err);

    if (code == ONCE_OK && natural_key == NULL) {
        code = once__fail(err, ONCE_E_INVALID, "a lock needs a natural key");
    }
    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, natural_key);
    return run_statement(conn, "SELECT once.lock($1)", &params, 1, NULL, err);
}

/* --------------------------------------------------------------------------------------------- events and messages */

static int read_event(once_pg_event_t *event, const once_pg_event_t *given, once_error_t *err)
{
    if (once__sized_read(event, sizeof(*event), ONCE__PG_EVENT_V1, given) != ONCE_OK) {
        return once__fail(err, ONCE_E_INVALID, "the event was not set up with ONCE_PG_EVENT_INIT");
    }
    if (event->topic == NULL || event->type == NULL) {
        return once__fail(err, ONCE_E_INVALID, "an event has a topic and a type");
    }
    return event->claim != NULL ? demand_claim(event->claim, err) : ONCE_OK;
}

int once_pg_emit(PGconn *conn, const once_pg_event_t *given, char id[ONCE_UUID_SIZE],
                 once_error_t *err)
{
    params_t params = {0};
    once_pg_event_t event = {0};
    PGresult *rows = NULL;
    int code = read_event(&event, given, err);

    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, event.topic);
    add_text(&params, event.key);
    add_text(&params, event.type);
    add_bytes(&params, event.payload);
    add_text(&params, event.headers);
    add_text(&params, event.claim);
    code = run_statement(conn,
                         "SELECT once.emit(topic => $1, key => $2, type => $3, payload => $4, "
                         "headers => coalesce($5::pg_catalog.jsonb, '{}'), claim => $6)"
                         "::pg_catalog.text",
                         &params, 1, &rows, err);
    if (code != ONCE_OK) {
        return code;
    }
    if (id != NULL) {
        strncpy(id, PQgetvalue(rows, 0, 0), ONCE_UUID_SIZE - 1);
        id[ONCE_UUID_SIZE - 1] = '\0';
    }
    PQclear(rows);
    return ONCE_OK;
}

int once_pg_accept(PGconn *conn, const char *subscriber, const char *message_id, int *is_new,
                   once_error_t *err)
{
    params_t params = {0};
    PGresult *rows = NULL;
    int code = demand_transaction(conn, "accepting a message", err);

    if (code == ONCE_OK && (subscriber == NULL || message_id == NULL)) {
        code = once__fail(err, ONCE_E_INVALID, "a message has a subscriber and an id");
    }
    if (code != ONCE_OK) {
        return code;
    }
    add_text(&params, subscriber);
    add_text(&params, message_id);
    code = run_statement(conn, "SELECT once.accept(subscriber => $1, message_id => $2)", &params, 1,
                         &rows, err);
    if (code == ONCE_OK) {
        *is_new = PQgetvalue(rows, 0, 0)[0] != 0;
        PQclear(rows);
    }
    return code;
}
