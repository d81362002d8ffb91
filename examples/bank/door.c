#include "door.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes as PostgreSQL reads them: \x and hexadecimal digits. free() it; NULL when out of memory. */
static char *hex(const char *bytes, size_t len)
{
    char *text = malloc(2 * len + 3);

    if (text != NULL) {
        memcpy(text, "\\x", 3);
        for (size_t i = 0; i < len; i++) {
            sprintf(text + 2 + 2 * i, "%02x", (unsigned char)bytes[i]);
        }
    }
    return text;
}

/* The recorded answer, as it was given the first time. */
static void replay(const PGresult *result, answer_t *answer)
{
    size_t len = 0;
    unsigned char *body = PQunescapeBytea((const unsigned char *)PQgetvalue(result, 0, 4), &len);

    answer_bytes(answer, atoi(PQgetvalue(result, 0, 2)), NULL,
                 body != NULL ? (const char *)body : "", len);
    PQfreemem(body);
    (void)answer_headers_read(answer, PQgetvalue(result, 0, 3));
    answer_header(answer, "Idempotent-Replayed", "true");
}

static void not_run(const char *outcome, const PGresult *result, answer_t *answer)
{
    int after = atoi(PQgetvalue(result, 0, 5));

    if (strcmp(outcome, "replay") == 0) {
        replay(result, answer);
    } else if (strcmp(outcome, "mismatch") == 0) {
        answer_problem(answer, 422, "key-reused", "this key was used for another request");
    } else if (strcmp(outcome, "busy") == 0) {
        answer_later(answer, 409, "in-flight", "a request with this key is being worked on", NULL,
                     after > 0 ? (unsigned)after : 1);
    } else {
        answer_problem(answer, 409, "outcome-unknown", "nobody knows what became of this key");
    }
}

db_end_t door_claim(bank_t *bank, db_t *db, const request_t *request, char claim[BANK_CLAIM_MAX],
                    answer_t *answer)
{
    static const char ask[] =
        "SELECT outcome, claim, status, headers, body, ceil(extract(epoch FROM retry_after)) "
        "FROM once.claim($1, $2, $3, $4, $5::bytea, lease => make_interval(secs => $6), "
        "                claim_id => $7::uuid)";
    char lease[16];
    const char *values[] = {
        request->customer, request->key->text, request->method, request->target, NULL, lease,
        request->claim_id};
    PGresult *result;
    db_end_t end;
    char *body;

    snprintf(claim, BANK_CLAIM_MAX, "%s", request->claim);
    if (claim[0] != '\0') {
        return DB_OK;
    }
    body = hex(request->body, request->body_len);
    values[4] = body;
    snprintf(lease, sizeof(lease), "%u", bank->lease_s);
    end = body != NULL ? db_run(db, ask, 7, values, &result) : DB_FAILED;
    free(body);
    if (end == DB_BUSY) { /* another transaction has had the key for all that time */
        answer_later(answer, 409, "in-flight", "a request with this key is being worked on", NULL,
                     1);
        return DB_OK;
    }
    if (end != DB_OK) {
        return end;
    }
    if (strcmp(PQgetvalue(result, 0, 0), "run") == 0) {
        snprintf(claim, BANK_CLAIM_MAX, "%s", PQgetvalue(result, 0, 1));
    } else {
        not_run(PQgetvalue(result, 0, 0), result, answer);
    }
    PQclear(result);
    return DB_OK;
}

db_end_t door_complete(db_t *db, const char *claim, const answer_t *answer)
{
    static const char complete[] =
        "SELECT once.complete($1, $2::integer, $3::jsonb, convert_to($4, 'UTF8'))";
    char status[16];
    char *headers = answer_headers_text(answer);
    const char *values[] = {claim, status, headers, answer->body};
    db_end_t end;

    snprintf(status, sizeof(status), "%d", answer->status);
    end = db_run(db, complete, 4, values, NULL);
    free(headers);
    return end;
}

db_end_t door_emit(db_t *db, const char *claim, const char *topic, const char *key,
                   const char *type, json_t *payload)
{
    static const char emit[] = "SELECT once.emit($1, $2, $3, convert_to($4, 'UTF8'), claim => $5)";
    char *text = json_dumps(payload, JSON_COMPACT);
    const char *values[] = {topic, key, type, text, claim};
    db_end_t end = text != NULL ? db_run(db, emit, 5, values, NULL) : DB_FAILED;

    free(text);
    json_decref(payload);
    return end;
}

db_end_t door_resume(db_t *db, const char *claim, char name[32], json_t **state)
{
    static const char resume[] = "SELECT name, state FROM once.resume($1)";
    PGresult *result;
    db_end_t end = db_run(db, resume, 1, &claim, &result);

    name[0] = '\0';
    *state = NULL;
    if (end != DB_OK) {
        return end;
    }
    if (PQntuples(result) > 0) {
        snprintf(name, 32, "%s", PQgetvalue(result, 0, 0));
        *state = json_loads(PQgetvalue(result, 0, 1), 0, NULL);
    }
    PQclear(result);
    return DB_OK;
}

db_end_t door_checkpoint(db_t *db, const char *claim, const char *name, const json_t *state)
{
    static const char checkpoint[] = "SELECT once.checkpoint($1, $2, $3::jsonb)";
    char *text = json_dumps(state, JSON_COMPACT);
    const char *values[] = {claim, name, text};
    db_end_t end = text != NULL ? db_run(db, checkpoint, 3, values, NULL) : DB_FAILED;

    free(text);
    return end;
}

db_end_t door_renew(db_t *db, const char *claim)
{
    return db_run(db, "SELECT once.renew($1)", 1, &claim, NULL);
}

db_end_t door_doubt(db_t *db, const char *claim)
{
    return db_run(db, "SELECT once.doubt($1)", 1, &claim, NULL);
}
