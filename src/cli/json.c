#include "cli/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "cli/cli.h"
#include "cli/text.h"

void once__cli_json_start(once__cli_json_t *json)
{
    json->object = json_object();
    json->broken = json->object == NULL;
}

void once__cli_json_put(once__cli_json_t *json, const char *name, json_t *value)
{
    assert(json->object != NULL || json->broken); /* started, and neither printed nor nested yet */
    if (value == NULL || json_object_set_new(json->object, name, value) != 0) {
        json->broken = 1;
    }
}

void once__cli_json_bytes(once__cli_json_t *json, const char *name, once_slice_t bytes)
{
    json_t *text = json_stringn(bytes.len > 0 ? bytes.data : "", bytes.len);
    char other[64];

    if (text != NULL) {
        once__cli_json_put(json, name, text);
        return;
    }
    snprintf(other, sizeof(other), "%s_base64", name);
    once__cli_json_base64(json, other, bytes);
}

void once__cli_json_base64(once__cli_json_t *json, const char *name, once_slice_t bytes)
{
    char *text = malloc((bytes.len + 2) / 3 * 4 + 1);

    if (text != NULL) {
        once__base64(text, bytes.data, bytes.len);
    }
    once__cli_json_put(json, name, text != NULL ? json_string(text) : NULL);
    free(text);
}

void once__cli_json_text(once__cli_json_t *json, const char *name, const char *text)
{
    once__cli_json_put(json, name, json_string(text));
}

void once__cli_json_hex(once__cli_json_t *json, const char *name, const uint8_t *bytes, size_t len)
{
    char text[2 * ONCE_ID_SIZE + 1];

    once__hex(text, bytes, len < ONCE_ID_SIZE ? len : ONCE_ID_SIZE);
    once__cli_json_text(json, name, text);
}

void once__cli_json_number(once__cli_json_t *json, const char *name, uint64_t number)
{
    json_int_t value = number > INT64_MAX ? INT64_MAX : (json_int_t)number;

    once__cli_json_put(json, name, json_integer(value));
}

void once__cli_json_real(once__cli_json_t *json, const char *name, double number)
{
    once__cli_json_put(json, name, json_real(number));
}

void once__cli_json_bool(once__cli_json_t *json, const char *name, int value)
{
    once__cli_json_put(json, name, json_boolean(value));
}

void once__cli_json_nest(once__cli_json_t *json, const char *name, once__cli_json_t *inner)
{
    assert(inner != json);
    assert(inner->object != NULL || inner->broken);
    json->broken |= inner->broken;
    once__cli_json_put(json, name, inner->object);
    inner->object = NULL;
}

int once__cli_json_print(once__cli_json_t *json)
{
    size_t flags = JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9);
    assert(json->object != NULL || json->broken);
    int failed = json->broken || json_dumpf(json->object, stdout, flags) != 0;

    json_decref(json->object);
    json->object = NULL;
    if (failed) {
        once__cli_say("cannot make or write the JSON output");
        return ONCE__CLI_STORE;
    }
    fputc('\n', stdout);
    return ONCE__CLI_OK;
}
