/*
 * What is still open: requests out of the journal.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "client/internal.h"

#define NAMES_MAX ((size_t)10 * 1000 * 1000)

typedef struct names {
    char **items;
    size_t count, room;
    int error;
} names_t;

static int take_name(once_t *journal, const once_record_t *record, void *data)
{
    names_t *names = data;
    once_slice_t key = once_record_key(record);
    char **items;

    items = once__grow(names->items, &names->room, names->count + 1, sizeof(*items), NAMES_MAX);
    if (items != NULL) {
        names->items = items;
        items[names->count] = strndup(key.data, key.len);
    }
    if (items == NULL || items[names->count] == NULL) {
        names->error = ONCE_E_NOMEM;
        return 1;
    }
    names->count++;
    return 0;
}

/* The names of requests in the journal. */
static int find_names(once_client_t *client, int is_key, names_t *names)
{
    once_filter_t filter = ONCE_FILTER_INIT;
    uint8_t hash[ONCE_SCOPE_HASH_SIZE];
    int code =
        once_scope_hash_of(client->journal, once__slice_of(once__client_scope(is_key, 1)), hash);

    filter.states = 1u << ONCE_STATE_COMPLETED;
    filter.scope_hash = hash;
    filter.scope_hash_len = sizeof(hash);
    if (code == ONCE_OK) {
        code = once_record_scan_sync(client->journal, &filter, take_name, names, NULL);
    }
    return code != ONCE_OK ? code : names->error;
}

static int get(once_client_t *client, const char *scope, const char *name, once_answer_t **answer)
{
    uint8_t id[ONCE_ID_SIZE];
    int code = once_record_id_of(client->journal, once__slice_of(scope), once__slice_of(name), id);

    *answer = NULL;
    return code == ONCE_OK ? once_record_get_sync(client->journal, id, answer) : code;
}

/*
 * Is there an intent to go on with? A request whose intent is gone may have been answered: the request can outlive it, because a
 * later run with a shorter keep_ms changes how long the intent is kept, and not the request. To send it would be a new intent,
 * with a new key. An intent that was never claimed, because the process was killed before, is left to the same call.
 */
static int is_open(once_client_t *client, int is_key, const char *name)
{
    once_answer_t *answer;
    int code = get(client, once__client_scope(is_key, 0), name, &answer);
    int open = code != ONCE_E_NOT_FOUND; /* of another error the call says more */

    if (code == ONCE_OK) {
        const once_record_t *record = once_answer_record(answer);
        int is_over =
            once_record_time(record, ONCE_TIME_EXPIRES) != 0 && once_record_expires_ms(record) == 0;
        open = once_record_state(record) != ONCE_STATE_COMPLETED && !is_over;
    }
    once_answer_free(answer);
    return open;
}

typedef struct unpacked {
    once_client_request_t request;
    char *method, *url;
    once_header_t *headers; /* those that count, then the names of credentials */
    int broken;
} unpacked_t;

static int is_named(const once_header_t *header, const char *name)
{
    return header->name.len == strlen(name) && memcmp(header->name.data, name, strlen(name)) == 0;
}

static void unpack_text(once_slice_t value, char **text, unpacked_t *out)
{
    free(*text);
    *text = strndup(value.data, value.len);
    out->broken |= *text == NULL;
}

static void unpack_number(once_slice_t value, uint64_t *number, unpacked_t *out)
{
    out->broken |= once__number_parse(value.data, value.len, number) != 0;
}

static void unpack_line(once_slice_t value, once_header_t *header, unpacked_t *out)
{
    const char *colon = memchr(value.data, ':', value.len);
    size_t len = colon != NULL ? (size_t)(colon - (const char *)value.data) : 0;

    out->broken |= len == 0 || value.len < len + 2;
    if (!out->broken) {
        header->name = once__slice(value.data, len);
        header->value = once__slice(colon + 2, value.len - len - 2);
    }
}

/* The reverse of once__client_pack. */
static void unpack(const once_response_t *response, unpacked_t *out)
{
    const once_client_request_t init = ONCE_CLIENT_REQUEST_INIT;
    size_t count = 0, last = response->header_count;

    out->request = init;
    out->headers = calloc(last + 1, sizeof(out->headers[0]));
    out->broken = out->headers == NULL;
    for (size_t i = 0; !out->broken && i < response->header_count; i++) {
        const once_header_t *header = &response->headers[i];
        if (is_named(header, "method")) {
            unpack_text(header->value, &out->method, out);
        } else if (is_named(header, "url")) {
            unpack_text(header->value, &out->url, out);
        } else if (is_named(header, "until")) {
            unpack_number(header->value, &out->request.until_ms, out);
        } else if (is_named(header, "keep")) {
            unpack_number(header->value, &out->request.keep_ms, out);
        } else if (is_named(header, "header")) {
            unpack_line(header->value, &out->headers[count++], out);
        } else if (is_named(header, "credential")) {
            out->headers[--last] = (once_header_t){header->value, once__slice("", 0)};
        }
    }
    out->broken |= out->method == NULL || out->url == NULL;
    out->request.method = out->method;
    out->request.url = out->url;
    out->request.body = response->body;
    out->request.headers = out->headers;
    out->request.header_count = count;
    out->request.credentials = out->headers + last;
    out->request.credential_count = response->header_count - last;
    out->request.keep_request = 1;
}

/* Returns an error, 0, or 1: `each` has had enough. */
static int show(once_client_t *client, int is_key, const char *name, once_client_scan_cb each,
                void *data)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer;
    unpacked_t out = {0};
    int code = get(client, once__client_scope(is_key, 1), name, &answer);

    if (code == ONCE_OK) {
        code = once_record_response(once_answer_record(answer), &response);
    }
    if (code == ONCE_OK) {
        unpack(&response, &out);
        code = out.broken ? ONCE_E_CORRUPT : ONCE_OK;
    }
    if (code == ONCE_OK) {
        *(is_key ? &out.request.key : &out.request.name) = name;
        code = each(client, &out.request, data) != 0;
    }
    free(out.method);
    free(out.url);
    free(out.headers);
    once_answer_free(answer);
    return code;
}

static int scan(once_client_t *client, int is_key, const char *name, once_client_scan_cb each,
                void *data, size_t *found)
{
    names_t names = {0};
    int code = find_names(client, is_key, &names);

    for (size_t i = 0; code == ONCE_OK && i < names.count; i++) {
        if ((name == NULL || strcmp(name, names.items[i]) == 0) &&
            is_open(client, is_key, names.items[i])) {
            ++*found;
            code = show(client, is_key, names.items[i], each, data);
        }
    }
    for (size_t i = 0; i < names.count; i++) {
        free(names.items[i]);
    }
    free(names.items);
    return code;
}

int once_client_scan_sync(once_client_t *client, const char *name, once_client_scan_cb each,
                          void *data)
{
    static const uint8_t no_record[ONCE_ID_SIZE];
    size_t found = 0;
    int code;

    if (client == NULL || each == NULL) {
        return ONCE_E_INVALID;
    }
    if (client->inside) {
        return ONCE_E_REENTRANT;
    }
    code = once_record_get_sync(client->journal, no_record, NULL); /* the secrets are there then */
    code = code == ONCE_E_NOT_FOUND ? ONCE_OK : code;
    client->inside = 1;
    for (int is_key = 0; code == ONCE_OK && is_key < 2; is_key++) {
        code = scan(client, is_key, name, each, data, &found);
    }
    client->inside = 0;
    return code != ONCE_OK ? (code < 0 ? code : ONCE_OK) : found > 0 ? ONCE_OK : ONCE_E_NOT_FOUND;
}
