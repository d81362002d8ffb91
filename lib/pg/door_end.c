/*
 * The end of a claim, and its renewal.
 */
#include <stdlib.h>
#include <string.h>

#include <once/postgres.h>

#include "core/response.h"
#include "core/sized.h"
#include "core/policy.h"
#include "base/error.h"
#include "base/text.h"
#include "pg/door_statement.h"

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
    once__door_params_t params = {0};
    once_response_t response = {0};
    char *headers;
    int code = once__door_demand_claim(claim, err);

    code = code == ONCE_OK ? read_response(&response, given, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    headers = json_of(&response);
    if (headers == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    once__door_param_text(&params, claim);
    once__door_param_number(&params, response.status);
    once__door_param_text(&params, headers);
    once__door_param_bytes(&params, response.body);
    once__door_param_seconds(&params, response.retain_ms);
    code =
        once__door_statement(conn,
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
    once__door_params_t params = {0};
    int code = once__door_demand_claim(claim, err);

    if (code == ONCE_OK && (status < 0 || status > 999)) {
        code = once__fail(err, ONCE_E_INVALID, "a status is 0 to 999");
    }
    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, claim);
    once__door_param_number(&params, status);
    once__door_param_slice(&params, note);
    return once__door_statement(conn, statement, &params, 1, NULL, err);
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
    once__door_params_t params = {0};
    int code = once__door_demand_claim(claim, err);

    if (code != ONCE_OK) {
        return code;
    }
    once__door_param_text(&params, claim);
    once__door_param_seconds(&params, lease_ms);
    return once__door_statement(conn, text, &params, 1, NULL, err);
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
