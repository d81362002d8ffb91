/*
 * Routes from an OpenAPI 3 document. Every loop goes over members that the document's text has, and references are followed a few
 * steps only; so the work is bounded by the size of the document.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/text.h"
#include "gate/openapi.h"

#define REFERENCES_MAX 16  /* one after the other */
#define SERVERS_MAX    16  /* of one list */
#define PATH_MAX_BYTES 500 /* with its base */
#define VALUE_MAX      200 /* bytes of an extension field */
#define NAME_MAX_BYTES 100 /* of a route in metrics */

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static const struct method {
    const char *member; /* of a path item */
    const char *name;
    unsigned bit;
} methods[] = {
    {"post", "POST", ONCE__OPENAPI_POST},
    {"put", "PUT", ONCE__OPENAPI_PUT},
    {"patch", "PATCH", ONCE__OPENAPI_PATCH},
    {"delete", "DELETE", ONCE__OPENAPI_DELETE},
};

#define METHOD_COUNT (sizeof(methods) / sizeof(methods[0]))

/*
 * x-once-NAME in a document is NAME in a route. Not among them: scope, key, probe, require and on_store_error, which decide who
 * gets an answer, where requests go and what happens without a store. Those are for the command line.
 */
static const char *const fields[] = {
    "describe",    "docs",       "fingerprint",    "lease",   "name",        "quota",
    "record",      "recover",    "redact",         "release", "release-ttl", "replay-headers",
    "retry-after", "store-body", "store-no-store", "ttl",     "unknown-max", "wait",
};

#define NAME_FIELD 4

_Static_assert(sizeof(fields) / sizeof(fields[0]) == ONCE__OPENAPI_SETTINGS, "one for each");

typedef struct reader {
    const json_t *document;
    const char *key;
    once__openapi_t *api;
    const char *path;            /* what is read: of the document, or NULL */
    const struct method *method; /* or NULL */
    const json_t *item;
    const json_t *operation;
} reader_t;

/* One operation, as the document says. */
typedef struct finding {
    int guarded;
    int required;
    char *settings[ONCE__OPENAPI_SETTINGS];
} finding_t;

once__openapi_methods_t once__openapi_methods(unsigned bits)
{
    once__openapi_methods_t out = {""};

    for (size_t i = 0; i < METHOD_COUNT; i++) {
        if (bits & methods[i].bit) {
            size_t len = strlen(out.text);
            snprintf(out.text + len, sizeof(out.text) - len, "%s%s", len > 0 ? "," : "",
                     methods[i].name);
        }
    }
    return out;
}

static int fail(reader_t *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says where, too. Always -1. */
static int fail(reader_t *reader, const char *format, ...)
{
    char *error = reader->api->error;
    size_t size = sizeof(reader->api->error);
    size_t len = 0;
    va_list values;

    if (reader->path != NULL) {
        len = (size_t)snprintf(error, size,
                               "%s%s%.100s: ", reader->method != NULL ? reader->method->name : "",
                               reader->method != NULL ? " " : "", reader->path);
    }
    va_start(values, format);
    vsnprintf(error + len, size - len, format, values);
    va_end(values);
    return -1;
}

/* ----------------------------------------------------------------------------------------------------------- references */

/* One part of a JSON pointer in a URL, of `len` bytes: %XX first, then ~1 and ~0. */
static int read_token(const char *text, size_t len, char *out, size_t size)
{
    char *to = out;

    if (once__percent_decode(out, size, text, len) != 0) {
        return -1;
    }
    for (const char *from = out; *from != '\0'; from++) {
        if (from[0] == '~' && (from[1] == '0' || from[1] == '1')) {
            *to++ = from[1] == '0' ? '~' : '/';
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return 0;
}

static const json_t *find(const json_t *document, const char *pointer)
{
    const json_t *node = document;

    while (node != NULL && *pointer == '/') {
        size_t len = strcspn(++pointer, "/");
        char token[512];
        if (read_token(pointer, len, token, sizeof(token)) != 0) {
            return NULL;
        }
        if (json_is_array(node)) {
            node = token[strspn(token, "0123456789")] == '\0' && strlen(token) < 10
                       ? json_array_get(node, strtoul(token, NULL, 10))
                       : NULL;
        } else {
            node = json_object_get(node, token);
        }
        pointer += len;
    }
    return *pointer == '\0' ? node : NULL;
}

/* What the node is, or what it refers to. NULL after an error. */
static const json_t *follow(reader_t *reader, const json_t *node)
{
    for (int hops = 0; hops <= REFERENCES_MAX; hops++) {
        const json_t *reference = json_object_get(node, "$ref");
        const char *text = json_string_value(reference);
        if (reference == NULL) {
            return node;
        }
        if (text == NULL || text[0] != '#') {
            fail(reader,
                 "$ref \"%.100s\" leads out of the document, which is not followed: put all into "
                 "one file "
                 "first (npx @redocly/cli bundle)",
                 text != NULL ? text : "");
            return NULL;
        }
        node = find(reader->document, text + 1);
        if (node == NULL) {
            fail(reader, "$ref \"%.100s\" leads to nothing", text);
            return NULL;
        }
    }
    fail(reader, "$ref leads to more than %d others in a row, or in a circle", REFERENCES_MAX);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ patterns */

/* {name}, and around it what RFC 3986 allows in a path, without what has a meaning in a shell or in a configuration. */
static const char *check_segment(const char *segment, size_t len)
{
    static const char plain[] = LETTERS "-._~!()*+,=:@&";
    int inside = 0;

    if (len == 0 || (segment[0] == '.' && (len == 1 || (len == 2 && segment[1] == '.')))) {
        return "has an empty segment, . or ..";
    }
    for (size_t i = 0; i < len; i++) {
        if (segment[i] == (inside ? '}' : '{')) {
            if (i + 1 < len && !inside && segment[i + 1] == '}') {
                return "has a parameter without a name";
            }
            inside = !inside;
        } else if (segment[i] == '\0' ||
                   strchr(inside ? LETTERS "-._~" : plain, segment[i]) == NULL) {
            return inside ? "has a parameter whose name has other characters than letters, digits "
                            "and -._~"
                          : "has a character that is not a letter, a digit or one of "
                            "-._~!()*+,=:@& in it: give such a path with --route";
        }
    }
    return inside ? "has a { without its }" : NULL;
}

static void add_literal(once__buf_t *pattern, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (strchr(".()*+", text[i]) != NULL) {
            once__buf_add(pattern, "\\", 1);
        }
        once__buf_add(pattern, &text[i], 1);
    }
}

/*
 * The parameters of a segment and everything between the first and the last of them are one [^/]+: it matches more than the
 * document says, never less, and takes linear time whatever a client sends.
 */
static void add_segment(once__buf_t *pattern, once__buf_t *rank, const char *segment, size_t len)
{
    const char *first = memchr(segment, '{', len);
    const char *last = memrchr(segment, '}', len);

    once__buf_add(pattern, "/", 1);
    once__buf_add(rank, "/", 1);
    if (first == NULL || last == NULL) {
        add_literal(pattern, segment, len);
        once__buf_add(rank, "0", 1);
        once__buf_add(rank, segment, len);
        return;
    }
    add_literal(pattern, segment, (size_t)(first - segment));
    once__buf_add(pattern, "[^/]+", 5);
    add_literal(pattern, last + 1, (size_t)(segment + len - last - 1));
    once__buf_add(rank, first == segment && last + 1 == segment + len ? "2" : "1", 1);
}

/* A slash at the end is neither here nor there: many frameworks take both for the same path. */
static int compile(reader_t *reader, const char *path, once__openapi_path_t *made)
{
    once__buf_t pattern = ONCE__BUF(4 * PATH_MAX_BYTES);
    once__buf_t rank = ONCE__BUF(4 * PATH_MAX_BYTES);
    const char *wrong = NULL;

    if (path[0] != '/' || strlen(path) > PATH_MAX_BYTES) {
        return fail(reader, path[0] != '/' ? "a path must begin with /" : "the path is too long");
    }
    once__buf_add(&pattern, "^", 1);
    for (const char *at = path + 1; wrong == NULL && *at != '\0';) {
        size_t len = strcspn(at, "/");
        wrong = check_segment(at, len);
        if (wrong == NULL) {
            add_segment(&pattern, &rank, at, len);
        }
        at += len + (at[len] == '/');
    }
    once__buf_add(&pattern, path[1] == '\0' ? "/$" : "/?$", path[1] == '\0' ? 2 : 3);
    once__buf_add(&rank, "", 0);
    made->pattern = once__buf_take(&pattern);
    made->rank = once__buf_take(&rank);
    made->path = strdup(path);
    if (wrong != NULL) {
        return fail(reader, "its path %s", wrong);
    }
    if (made->pattern == NULL || made->rank == NULL || made->path == NULL) {
        return fail(reader, "out of memory");
    }
    return 0;
}

/* Could a request match both? By their ranks, which have a segment after each slash. */
static int overlap(const char *a, const char *b)
{
    while (*a == '/' && *b == '/') {
        size_t a_len = strcspn(++a, "/");
        size_t b_len = strcspn(++b, "/");
        if (a[0] == '0' && b[0] == '0' && (a_len != b_len || memcmp(a, b, a_len) != 0)) {
            return 0;
        }
        a += a_len;
        b += b_len;
    }
    return *a == *b;
}

/* ---------------------------------------------------------------------------------------------------------- extensions */

/* A member of the operation, of its path, or of the document: the nearest. */
static const json_t *nearest(const reader_t *reader, const char *name)
{
    const json_t *value = json_object_get(reader->operation, name);

    if (value == NULL) {
        value = json_object_get(reader->item, name);
    }
    return value != NULL ? value : json_object_get(reader->document, name);
}

/* A typing error must not be a setting that is silently not there. */
static int check_fields(reader_t *reader, const json_t *object)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        int known = strncmp(name, "x-once-", 7) != 0 ||
                    (object == reader->document && strcmp(name, "x-once-base") == 0);
        for (size_t i = 0; !known && i < ONCE__OPENAPI_SETTINGS; i++) {
            known = strcmp(name + 7, fields[i]) == 0;
        }
        if (!known) {
            return fail(reader,
                        "%.60s is not known here; a document can have x-once, x-once-ttl, "
                        "x-once-recover and others (docs/openapi.md)",
                        name);
        }
    }
    return 0;
}

/* Adds one value: a text, a whole number, true or false. Values have no business with quotes, variables or blocks of nginx. */
static int add_value(reader_t *reader, once__buf_t *out, const char *name, const json_t *value)
{
    char number[32];
    const char *text = json_string_value(value);

    if (json_is_boolean(value)) {
        text = json_is_true(value) ? "on" : "off";
    } else if (json_is_integer(value)) {
        snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        text = number;
    }
    if (text == NULL || text[0] == '\0') {
        return fail(reader, "x-once-%s must be a text, a number, true, false, or a list of those",
                    name);
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < 0x20 || *at >= 0x7f || strchr("\"'\\;{}$`", *at) != NULL) {
            return fail(reader,
                        "x-once-%s must not have quotes, $, \\, ;, {, } or characters "
                        "that are not visible ASCII in it",
                        name);
        }
    }
    if (once__buf_add(out, text, strlen(text)) != ONCE_OK) {
        return fail(reader, "x-once-%s is too long", name);
    }
    return 0;
}

/* NAME=VALUE, with _ for - in the name, and commas between the values of a list. */
static int read_setting(reader_t *reader, size_t field, char **setting)
{
    once__buf_t out = ONCE__BUF(VALUE_MAX);
    char member[64];
    const json_t *value;
    int code = 0;

    snprintf(member, sizeof(member), "x-once-%s", fields[field]);
    value = nearest(reader, member);
    if (value == NULL) {
        return 0;
    }
    for (const char *at = fields[field]; *at != '\0'; at++) {
        once__buf_add(&out, *at == '-' ? "_" : at, 1);
    }
    once__buf_add(&out, "=", 1);
    if (!json_is_array(value) || json_array_size(value) == 0) {
        code = add_value(reader, &out, fields[field], value);
    }
    for (size_t i = 0; code == 0 && i < json_array_size(value); i++) {
        once__buf_add(&out, ",", i > 0);
        code = add_value(reader, &out, fields[field], json_array_get(value, i));
    }
    if (code != 0) {
        once__buf_free(&out);
        return code;
    }
    *setting = once__buf_take(&out);
    return *setting != NULL ? 0 : fail(reader, "out of memory");
}

/* ---------------------------------------------------------------------------------------------------------- operations */

/* Sets *found to the key's parameter of a list. */
static int find_key(reader_t *reader, const json_t *list, const json_t **found)
{
    if (list != NULL && !json_is_array(list)) {
        return fail(reader, "its parameters must be a list");
    }
    for (size_t i = 0; *found == NULL && i < json_array_size(list); i++) {
        const json_t *parameter = follow(reader, json_array_get(list, i));
        const char *name = json_string_value(json_object_get(parameter, "name"));
        const char *in = json_string_value(json_object_get(parameter, "in"));
        if (parameter == NULL) {
            return -1;
        }
        if (name == NULL || in == NULL) {
            return fail(reader, "a parameter must have a name, and say where it is (in)");
        }
        if (strcmp(in, "header") == 0 && strcasecmp(name, reader->key) == 0) {
            *found = parameter;
        }
    }
    return 0;
}

/* on, off, true or false; 2: not given */
static int read_switch(reader_t *reader, const json_t *value)
{
    const char *text = json_string_value(value);

    if (value == NULL) {
        return 2;
    }
    if (json_is_boolean(value)) {
        return json_is_true(value);
    }
    if (text != NULL && (strcmp(text, "on") == 0 || strcmp(text, "off") == 0)) {
        return text[1] == 'n';
    }
    return fail(reader, "x-once must be on or off");
}

static int read_operation(reader_t *reader, finding_t *finding)
{
    const json_t *key = NULL, *required;
    int wanted = read_switch(reader, nearest(reader, "x-once"));

    if (wanted < 0 || check_fields(reader, reader->operation) != 0 ||
        find_key(reader, json_object_get(reader->operation, "parameters"), &key) != 0 ||
        find_key(reader, json_object_get(reader->item, "parameters"), &key) != 0) {
        return -1;
    }
    if (key == NULL && json_object_get(reader->operation, "x-once") != NULL && wanted == 1) {
        return fail(reader, "x-once is on, but it has no header parameter %s", reader->key);
    }
    finding->guarded = key != NULL && wanted != 0;
    if (!finding->guarded) {
        return 0;
    }
    required = json_object_get(key, "required");
    if (required != NULL && !json_is_boolean(required)) {
        return fail(reader, "required of the parameter %s must be true or false", reader->key);
    }
    finding->required = json_is_true(required);
    for (size_t i = 0; i < ONCE__OPENAPI_SETTINGS; i++) {
        if (read_setting(reader, i, &finding->settings[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

static void free_path(once__openapi_path_t *path)
{
    free(path->path);
    free(path->pattern);
    free(path->rank);
    for (size_t i = 0; i < ONCE__OPENAPI_SETTINGS; i++) {
        free(path->settings[i]);
    }
}

/* The path of that pattern; a new one is added. NULL after an error. Takes what was made. */
static once__openapi_path_t *find_path(reader_t *reader, once__openapi_path_t *made)
{
    once__openapi_t *api = reader->api;
    once__openapi_path_t *paths;

    for (size_t i = 0; i < api->count; i++) {
        if (strcmp(api->paths[i].pattern, made->pattern) == 0) {
            free_path(made);
            return &api->paths[i];
        }
    }
    paths = once__grow(api->paths, &api->room, api->count + 1, sizeof(*paths), ONCE__OPENAPI_PATHS);
    if (paths == NULL) {
        free_path(made);
        fail(reader, "there are more than %d paths that write", ONCE__OPENAPI_PATHS);
        return NULL;
    }
    api->paths = paths;
    paths[api->count] = *made;
    return &paths[api->count++];
}

/* nginx has one set of directives for a path. */
static int copy_settings(reader_t *reader, once__openapi_path_t *path, const finding_t *finding)
{
    for (size_t i = 0; i < ONCE__OPENAPI_SETTINGS; i++) {
        const char *there = path->settings[i], *here = finding->settings[i];
        if (path->guarded != 0 &&
            ((there == NULL) != (here == NULL) || (here != NULL && strcmp(here, there) != 0))) {
            return fail(reader, "x-once-%s is another one than that of %s %s: a path has one",
                        fields[i], once__openapi_methods(path->guarded).text, path->path);
        }
        if (path->guarded == 0 && here != NULL) {
            path->settings[i] = strdup(here);
            if (path->settings[i] == NULL) {
                return fail(reader, "out of memory");
            }
        }
    }
    return 0;
}

static int add_finding(reader_t *reader, const char *base, const finding_t *finding)
{
    once__openapi_path_t made = {0};
    once__openapi_path_t *path;
    char whole[2 * PATH_MAX_BYTES];
    unsigned bit = reader->method->bit;

    if (snprintf(whole, sizeof(whole), "%s%s", base, reader->path) >= (int)sizeof(whole)) {
        return fail(reader, "the path is too long");
    }
    if (compile(reader, whole, &made) != 0) {
        free_path(&made);
        return -1;
    }
    path = find_path(reader, &made);
    if (path == NULL) {
        return -1;
    }
    if ((path->guarded | path->passing) & bit && (!finding->guarded != !(path->guarded & bit) ||
                                                  !finding->required != !(path->required & bit))) {
        return fail(reader,
                    "matches the same requests as %.100s, of which the document says "
                    "something else",
                    path->path);
    }
    if (!finding->guarded) {
        path->passing |= bit;
        return 0;
    }
    if (copy_settings(reader, path, finding) != 0) {
        return -1;
    }
    path->guarded |= bit;
    path->required |= finding->required ? bit : 0;
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- the document */

/* The path of a server's URL, without the last slash, as base; a name may have parameters in its host. */
static int read_base(reader_t *reader, const char *url, char base[PATH_MAX_BYTES])
{
    const char *path = url == NULL ? NULL : strstr(url, "://");
    size_t len;

    if (path != NULL) {
        path += 3;
        path += strcspn(path, "/");
    } else if (url != NULL && (url[0] == '/' || url[0] == '\0')) {
        path = url;
    }
    if (path == NULL || strpbrk(path, "{}?#") != NULL || strlen(path) >= PATH_MAX_BYTES) {
        return fail(
            reader,
            "it cannot be told which path the server \"%.60s\" has: write x-once-base: /PATH "
            "at the top of the document, or x-once-base: / if there is none",
            url != NULL ? url : "");
    }
    len = strlen(path);
    len -= len > 0 && path[len - 1] == '/';
    memcpy(base, path, len);
    base[len] = '\0';
    return 0;
}

static int add_for_servers(reader_t *reader, const finding_t *finding)
{
    const json_t *own = json_object_get(reader->document, "x-once-base");
    const json_t *servers = nearest(reader, "servers");
    char base[PATH_MAX_BYTES] = "";
    int code = 0;

    if (own != NULL) {
        code = read_base(reader, json_string_value(own), base);
        return code == 0 ? add_finding(reader, base, finding) : code;
    }
    if (json_array_size(servers) == 0) {
        return add_finding(reader, "", finding);
    }
    if (json_array_size(servers) > SERVERS_MAX) {
        return fail(reader, "there are more than %d servers", SERVERS_MAX);
    }
    for (size_t i = 0; code == 0 && i < json_array_size(servers); i++) {
        const json_t *server = json_array_get(servers, i);
        code = read_base(reader, json_string_value(json_object_get(server, "url")), base);
        if (code == 0) {
            code = add_finding(reader, base, finding);
        }
    }
    return code;
}

static int read_method(reader_t *reader)
{
    finding_t finding = {0};
    int code;

    reader->operation = json_object_get(reader->item, reader->method->member);
    if (reader->operation == NULL) {
        return 0;
    }
    if (!json_is_object(reader->operation)) {
        return fail(reader, "an operation must be an object");
    }
    code = read_operation(reader, &finding);
    if (code == 0) {
        code = add_for_servers(reader, &finding);
    }
    for (size_t i = 0; i < ONCE__OPENAPI_SETTINGS; i++) {
        free(finding.settings[i]);
    }
    return code;
}

static int read_path(reader_t *reader, const json_t *item)
{
    if (json_object_get(item, "$ref") != NULL && json_object_size(item) > 1) {
        return fail(reader, "it has members beside its $ref, whose meaning OpenAPI leaves open");
    }
    reader->item = follow(reader, item);
    if (reader->item == NULL) {
        return -1;
    }
    if (!json_is_object(reader->item)) {
        return fail(reader, "a path must be an object");
    }
    if (check_fields(reader, reader->item) != 0) {
        return -1;
    }
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        reader->method = &methods[i];
        if (read_method(reader) != 0) {
            return -1;
        }
    }
    reader->method = NULL;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const once__openapi_path_t *first = a, *second = b;

    return strcmp(first->rank, second->rank);
}

static int arrange(reader_t *reader)
{
    once__openapi_t *api = reader->api;
    unsigned guarded = 0;

    reader->path = NULL;
    if (api->count > 0) {
        qsort(api->paths, api->count, sizeof(api->paths[0]), compare);
    }
    for (size_t i = 0; i < api->count; i++) {
        once__openapi_path_t *path = &api->paths[i];
        guarded |= path->guarded;
        for (size_t k = i + 1; path->guarded == 0 && !path->shadowed && k < api->count; k++) {
            path->shadowed = api->paths[k].guarded != 0 && overlap(path->rank, api->paths[k].rank);
        }
        if (path->guarded != 0 && path->settings[NAME_FIELD] == NULL &&
            strlen(path->path) <= NAME_MAX_BYTES &&
            asprintf(&path->settings[NAME_FIELD], "name=%s", path->path) < 0) {
            path->settings[NAME_FIELD] = NULL;
            return fail(reader, "out of memory");
        }
    }
    return guarded != 0
               ? 0
               : fail(reader, "no POST, PUT, PATCH or DELETE in it has the header parameter %s",
                      reader->key);
}

int once__openapi_read(const json_t *document, const char *key, once__openapi_t *api)
{
    reader_t reader = {.document = document, .key = key, .api = api};
    const char *version = json_string_value(json_object_get(document, "openapi"));
    const char *path;
    json_t *item;

    memset(api, 0, sizeof(*api));
    if (version == NULL || strncmp(version, "3.", 2) != 0) {
        return fail(&reader, json_object_get(document, "swagger") != NULL
                                 ? "it is of Swagger 2: convert it to OpenAPI 3 first"
                                 : "it is not an OpenAPI 3 document: openapi: 3.1.0, or another 3, "
                                   "must be in it");
    }
    if (!json_is_object(json_object_get(document, "paths"))) {
        return fail(&reader, "it has no paths");
    }
    if (check_fields(&reader, document) != 0) {
        return -1;
    }
    json_object_foreach(json_object_get(document, "paths"), path, item)
    {
        reader.path = path;
        if (strncmp(path, "x-", 2) != 0 && read_path(&reader, item) != 0) {
            return -1;
        }
    }
    return arrange(&reader);
}

void once__openapi_free(once__openapi_t *api)
{
    for (size_t i = 0; i < api->count; i++) {
        free_path(&api->paths[i]);
    }
    free(api->paths);
    memset(api, 0, sizeof(*api));
}
