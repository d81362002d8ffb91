/*
 * An OpenAPI document as a tree: JSON by jansson, YAML by libyaml's events.
 *
 * An alias is another reference to the same node, so a document of aliases of aliases takes no more memory than its text; nothing
 * here or in openapi.c walks the whole tree.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/buf.h"
#include "gate/openapi.h"

#define DEPTH_MAX 64
#define ANCHORS_MAX                                                                                \
    100 /* with the depth, the bound of how deep the tree is: jansson frees it recursively */
#define NODES_MAX 2000000

typedef struct anchor {
    char *name;
    json_t *node;
} anchor_t;

/* A list or map that is being read. */
typedef struct level {
    json_t *node;
    char *key; /* of the member that comes next; NULL: a key comes next, or it is a list */
} level_t;

typedef struct loader {
    yaml_parser_t parser;
    level_t levels[DEPTH_MAX];
    size_t depth;
    size_t nodes;
    json_t *root;
    anchor_t *anchors;
    size_t anchor_count, anchor_room;
    char *error;
    size_t error_size;
} loader_t;

static int fail(loader_t *loader, const yaml_event_t *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(loader_t *loader, const yaml_event_t *event, const char *format, ...)
{
    va_list values;
    int len = snprintf(loader->error, loader->error_size, "line %zu: ", event->start_mark.line + 1);

    va_start(values, format);
    vsnprintf(loader->error + len, loader->error_size - (size_t)len, format, values);
    va_end(values);
    return -1;
}

/* Plain words of YAML 1.2's core schema; numbers stay text, which is all that is asked of them. No zero bytes. */
static json_t *scalar(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;

    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        if (strcmp(text, "true") == 0 || strcmp(text, "True") == 0 || strcmp(text, "TRUE") == 0) {
            return json_true();
        }
        if (strcmp(text, "false") == 0 || strcmp(text, "False") == 0 ||
            strcmp(text, "FALSE") == 0) {
            return json_false();
        }
        if (len == 0 || strcmp(text, "~") == 0 || strcmp(text, "null") == 0) {
            return json_null();
        }
    }
    return strlen(text) == len ? json_stringn(text, len) : NULL;
}

static int add_anchor(loader_t *loader, const yaml_event_t *event, const yaml_char_t *name,
                      json_t *node)
{
    anchor_t *anchors;

    if (name == NULL) {
        return 0;
    }
    anchors = once__grow(loader->anchors, &loader->anchor_room, loader->anchor_count + 1,
                         sizeof(*anchors), ANCHORS_MAX);
    if (anchors == NULL) {
        return fail(loader, event, "more than %d anchors", ANCHORS_MAX);
    }
    loader->anchors = anchors;
    anchors[loader->anchor_count].name = strdup((const char *)name);
    if (anchors[loader->anchor_count].name == NULL) {
        return fail(loader, event, "out of memory");
    }
    anchors[loader->anchor_count++].node = json_incref(node);
    return 0;
}

/* The last anchor of that name. One that is not complete yet would be a circle. */
static json_t *find_anchor(loader_t *loader, const yaml_event_t *event)
{
    const char *name = (const char *)event->data.alias.anchor;
    json_t *node = NULL;

    for (size_t i = loader->anchor_count; node == NULL && i > 0; i--) {
        if (strcmp(loader->anchors[i - 1].name, name) == 0) {
            node = loader->anchors[i - 1].node;
        }
    }
    for (size_t i = 0; node != NULL && i < loader->depth; i++) {
        if (loader->levels[i].node == node) {
            fail(loader, event, "*%s stands inside of &%s", name, name);
            return NULL;
        }
    }
    if (node == NULL) {
        fail(loader, event, "there is no anchor &%s before *%s", name, name);
    }
    return json_incref(node);
}

/* Puts a node where it belongs; takes it. */
static int place(loader_t *loader, const yaml_event_t *event, json_t *node)
{
    level_t *top = loader->depth > 0 ? &loader->levels[loader->depth - 1] : NULL;
    int code = -1;

    if (top == NULL) {
        loader->root = node;
        return 0;
    }
    if (json_is_array(top->node)) {
        return json_array_append_new(top->node, node) == 0 ? 0
                                                           : fail(loader, event, "out of memory");
    }
    if (top->key != NULL) {
        code = json_object_set_new(top->node, top->key, node) == 0
                   ? 0
                   : fail(loader, event, "out of memory");
        free(top->key);
        top->key = NULL;
        return code;
    }
    if (event->type != YAML_SCALAR_EVENT) {
        fail(loader, event, "a key must be a text");
    } else if (strcmp((const char *)event->data.scalar.value, "<<") == 0) {
        fail(loader, event, "merge keys (<<) are not understood: write the members out");
    } else if (json_object_get(top->node, (const char *)event->data.scalar.value) != NULL) {
        fail(loader, event, "the key \"%.60s\" is there twice",
             (const char *)event->data.scalar.value);
    } else {
        top->key = strdup((const char *)event->data.scalar.value);
        code = top->key != NULL ? 0 : fail(loader, event, "out of memory");
    }
    json_decref(node);
    return code;
}

static int take_node(loader_t *loader, const yaml_event_t *event, json_t *node,
                     const yaml_char_t *anchor)
{
    if (node == NULL) {
        return fail(loader, event, "a text is not UTF-8, or has a zero byte in it");
    }
    if (++loader->nodes > NODES_MAX) {
        json_decref(node);
        return fail(loader, event, "the document is too large");
    }
    if (add_anchor(loader, event, anchor, node) != 0) {
        json_decref(node);
        return -1;
    }
    return place(loader, event, node);
}

/* The parent holds the node, or the loader does: `levels` only points to it. */
static int open_level(loader_t *loader, const yaml_event_t *event, json_t *node,
                      const yaml_char_t *anchor)
{
    int is_key = loader->depth > 0 && json_is_object(loader->levels[loader->depth - 1].node) &&
                 loader->levels[loader->depth - 1].key == NULL;

    if (loader->depth == DEPTH_MAX || is_key) {
        json_decref(node);
        return is_key ? fail(loader, event, "a key must be a text")
                      : fail(loader, event, "it is nested more than %d deep", DEPTH_MAX);
    }
    if (take_node(loader, event, node, anchor) != 0) {
        return -1;
    }
    loader->levels[loader->depth].key = NULL;
    loader->levels[loader->depth++].node = node;
    return 0;
}

/* 1: the end, 0: go on, -1: an error. */
static int take_event(loader_t *loader, const yaml_event_t *event)
{
    json_t *node;

    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return loader->root == NULL ? 0 : fail(loader, event, "a second document begins");
    case YAML_STREAM_END_EVENT:
        return 1;
    case YAML_ALIAS_EVENT:
        node = find_anchor(loader, event);
        return node == NULL ? -1 : take_node(loader, event, node, NULL);
    case YAML_SCALAR_EVENT:
        return take_node(loader, event, scalar(event), event->data.scalar.anchor);
    case YAML_SEQUENCE_START_EVENT:
        return open_level(loader, event, json_array(), event->data.sequence_start.anchor);
    case YAML_MAPPING_START_EVENT:
        return open_level(loader, event, json_object(), event->data.mapping_start.anchor);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        loader->depth--;
        return 0;
    default:
        return 0;
    }
}

static int take_events(loader_t *loader)
{
    int code = 0;

    while (code == 0) {
        yaml_event_t event;
        if (!yaml_parser_parse(&loader->parser, &event)) {
            snprintf(loader->error, loader->error_size, "line %zu: %s",
                     loader->parser.problem_mark.line + 1,
                     loader->parser.problem != NULL ? loader->parser.problem : "out of memory");
            return -1;
        }
        code = take_event(loader, &event);
        yaml_event_delete(&event);
    }
    return code == 1 ? 0 : -1;
}

static json_t *parse_yaml(const char *text, size_t len, char *error, size_t size)
{
    loader_t *loader = calloc(1, sizeof(*loader));
    json_t *root = NULL;

    if (loader == NULL || !yaml_parser_initialize(&loader->parser)) {
        snprintf(error, size, "out of memory");
        free(loader);
        return NULL;
    }
    loader->error = error;
    loader->error_size = size;
    yaml_parser_set_input_string(&loader->parser, (const unsigned char *)text, len);
    if (take_events(loader) == 0) {
        root = json_incref(loader->root);
        if (root == NULL) {
            snprintf(error, size, "it is empty");
        }
    }
    for (size_t i = 0; i < loader->depth; i++) {
        free(loader->levels[i].key);
    }
    for (size_t i = 0; i < loader->anchor_count; i++) {
        free(loader->anchors[i].name);
        json_decref(loader->anchors[i].node);
    }
    free(loader->anchors);
    json_decref(loader->root);
    yaml_parser_delete(&loader->parser);
    free(loader);
    return root;
}

json_t *once__openapi_parse(const char *text, size_t len, char *error, size_t size)
{
    size_t start = 0;
    json_error_t wrong;
    json_t *root;

    if (len > ONCE__OPENAPI_BYTES) {
        snprintf(error, size, "it is larger than %u MiB", ONCE__OPENAPI_BYTES >> 20);
        return NULL;
    }
    while (start < len && strchr(" \t\r\n", text[start]) != NULL && text[start] != '\0') {
        start++;
    }
    if (start == len || text[start] != '{') {
        return parse_yaml(text, len, error, size);
    }
    root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &wrong);
    if (root == NULL) {
        snprintf(error, size, "line %d: %s", wrong.line, wrong.text);
    }
    return root;
}
