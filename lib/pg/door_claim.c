/*
 * Claims, and their answers.
 */
#include <stdlib.h>
#include <string.h>

#include <once/postgres.h>

#include "base/error.h"
#include "core/sized.h"
#include "pg/door_statement.h"

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
 * depends on it (pg/door_statement.h).
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
    once__door_params_t params = {0};
    const once_policy_t *policy;
    once_ask_t ask = {0};
    PGresult *rows;
    int code = read_ask(&ask, given, err);

    *answer = NULL;
    if (code != ONCE_OK) {
        return code;
    }
    policy = ask.policy;
    once__door_param_slice(&params, ask.scope);
    once__door_param_slice(&params, ask.key);
    once__door_param_slice(&params, ask.method);
    once__door_param_slice(&params, ask.target);
    once__door_param_bytes(&params, ask.bytes);
    once__door_param_text(&params, once_recover_name(policy != NULL ? once_policy_recover(policy)
                                                                    : ONCE_RECOVER_TRANSACTIONAL));
    once__door_param_seconds(&params, policy != NULL ? once_policy_lease_ms(policy) : 30000);
    once__door_param_seconds(&params,
                             policy != NULL ? once_policy_ttl_ms(policy) : 24ull * 3600 * 1000);
    once__door_param_number(&params, (flags & ONCE_PG_NOWAIT) != 0);
    once__door_param_uuid(&params, ask.claim_id);
    code = once__door_statement(conn, claim_text, &params, 1, &rows, err);
    return code == ONCE_OK ? answer_of(rows, answer, err) : code;
}

int once_pg_recorded(PGconn *conn, const char *claim, once_pg_answer_t **answer, once_error_t *err)
{
    once__door_params_t params = {0};
    PGresult *rows;
    int code = once__door_demand_claim(claim, err);

    *answer = NULL;
    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, claim);
    code = once__door_statement(conn, recorded_text, &params, 1, &rows, err);
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
