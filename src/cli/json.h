/*
 * JSON output: one object on one line.
 */
#ifndef ONCE_CLI_JSON_H
#define ONCE_CLI_JSON_H

#include <jansson.h>

#include <once/once.h>

/* An object in the making. What could not be added makes it broken; a broken one is never written. */
typedef struct once__cli_json {
    json_t *object;
    int broken;
} once__cli_json_t;

void once__cli_json_start(once__cli_json_t *json);

/* Sets a member; takes `value` over. NULL: it could not be made. */
void once__cli_json_put(once__cli_json_t *json, const char *name, json_t *value);

/* The bytes as a string, or, when they are not UTF-8, their base64 as `name`_base64. */
void once__cli_json_bytes(once__cli_json_t *json, const char *name, once_slice_t bytes);
void once__cli_json_base64(once__cli_json_t *json, const char *name, once_slice_t bytes);
void once__cli_json_text(once__cli_json_t *json, const char *name, const char *text);
void once__cli_json_hex(once__cli_json_t *json, const char *name, const uint8_t *bytes, size_t len);

/* The integers of JSON readers end at 2^63 - 1: greater ones are written as that. */
void once__cli_json_number(once__cli_json_t *json, const char *name, uint64_t number);
void once__cli_json_real(once__cli_json_t *json, const char *name, double number);
void once__cli_json_bool(once__cli_json_t *json, const char *name, int value);

/* Makes `inner` a member and takes it over. */
void once__cli_json_nest(once__cli_json_t *json, const char *name, once__cli_json_t *inner);

/* Writes the object as one line and frees it. ONCE__CLI_OK, or ONCE__CLI_STORE after saying that it could not be made. */
int once__cli_json_print(once__cli_json_t *json);

#endif
