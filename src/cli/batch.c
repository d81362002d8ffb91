/*
 * once call --batch: a file of requests, one on each line.
 *
 * The whole file is checked before anything is sent. A line is started when the line of its group before it has been answered; a
 * group whose line has no answer is held. What earlier runs have done comes from the journal, so every run writes all results.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "cli/cli.h"
#include "cli/console.h"
#include "cli/file.h"
#include "cli/request.h"
#include "cli/text.h"

#define FILE_MAX  ((size_t)2 * 1024 * 1024 * 1024)
#define LINES_MAX ((size_t)16 * 1024 * 1024)
#define NONE      SIZE_MAX

typedef struct line {
    struct batch *batch;
    const char *text;
    size_t len, number; /* of the line in the file, from 1 */
    size_t follower;    /* the next one of its group; NONE */
    int waits;          /* for the one before it */
} line_t;

typedef struct group {
    once__hash_node_t node;
    char *name;
    size_t last;
} group_t;

typedef struct batch {
    once_client_t *client;
    const once__cli_batch_options_t *options;
    once__cli_bytes_t file;
    line_t *lines;
    size_t count, room;
    once__hash_t groups;
    size_t next;   /* the first line that was not looked at */
    size_t *ready; /* lines behind `next` whose turn has come: a queue of `count` places */
    size_t ready_at, ready_end;
    size_t running, done;
    int code;
    once__cli_progress_t progress;
} batch_t;

/* ------------------------------------------------------------------------------------------------------------ one line */

static int wrong(const line_t *line, const char *what)
{
    once__cli_say("line %zu: %s", line->number, what);
    return ONCE__CLI_USAGE;
}

/* What is wrong with the members of a line; NULL: nothing. */
static const char *check_members(const line_t *line, json_t *object)
{
    static const char *const texts[] = {"name", "key", "url", "method", "group", "data"};
    const char *name;
    json_t *value;

    if (!json_is_object(object)) {
        return "is not a JSON object";
    }
    json_object_foreach(object, name, value)
    {
        int known = strcmp(name, "json") == 0;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            known |= strcmp(name, texts[i]) == 0 && json_is_string(value);
        }
        if (strcmp(name, "headers") == 0 && json_is_object(value)) {
            const char *header;
            json_t *text;
            known = 1;
            json_object_foreach(value, header, text)
            {
                known &= json_is_string(text);
            }
        }
        if (!known) {
            return "the members are name or key, url, method, headers, json or data, and group";
        }
    }
    if ((json_object_get(object, "name") == NULL) == (json_object_get(object, "key") == NULL)) {
        return "needs a name or a key: without one, two equal lines would be one";
    }
    if (json_object_get(object, "url") == NULL && line->batch->options->defaults.url == NULL) {
        return "needs a url, or give the address on the command line";
    }
    if (json_object_get(object, "json") != NULL && json_object_get(object, "data") != NULL) {
        return "has json and data: give one of them";
    }
    return NULL;
}

static json_t *parse(const line_t *line)
{
    return json_loadb(line->text, line->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
}

/* Numbers as they were written: 19.99 and not 19.989999999999998, unless it takes 17 digits to be the same number. */
static char *compact(json_t *json)
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    char *text = json_dumps(json, flags | JSON_REAL_PRECISION(15));
    json_t *same = text != NULL ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;

    if (!json_equal(json, same)) {
        free(text);
        text = json_dumps(json, flags);
    }
    json_decref(same);
    return text;
}

/* The headers and the body of a line. */
static int make_request(const line_t *line, json_t *object, once__cli_request_t *made)
{
    json_t *json = json_object_get(object, "json"), *data = json_object_get(object, "data"), *value;
    int code = ONCE__CLI_OK;
    const char *name;

    json_object_foreach(json_object_get(object, "headers"), name, value)
    {
        char text[8192];
        int len = snprintf(text, sizeof(text), "%s%s%s", name,
                           json_string_length(value) > 0 ? ": " : ";", json_string_value(value));
        if (code == ONCE__CLI_OK) {
            code = len > 0 && (size_t)len < sizeof(text) && name[0] != '@'
                       ? once__cli_request_header(made, text)
                       : wrong(line, "a header is too long");
        }
    }
    if (json != NULL) {
        char *text = compact(json);
        if (text == NULL || once__buf_add(&made->body, text, strlen(text)) != ONCE_OK) {
            code = wrong(line, "the body is too large");
        }
        free(text);
        code = code == ONCE__CLI_OK
                   ? once__cli_request_default(made, "Content-Type", "application/json")
                   : code;
    } else if (data != NULL && once__buf_add(&made->body, json_string_value(data),
                                             json_string_length(data)) != ONCE_OK) {
        code = wrong(line, "the body is too large");
    }
    return code == ONCE__CLI_OK ? once__cli_request_join(made, line->batch->options->common) : code;
}

/* ------------------------------------------------------------------------------------------------------------- results */

static void print(const line_t *line, once__cli_json_t *json, int exit_code)
{
    batch_t *batch = line->batch;
    char *text = json->broken ? NULL : json_dumps(json->object, JSON_COMPACT | JSON_ENSURE_ASCII);

    json_decref(json->object);
    if (text == NULL || fprintf(batch->options->out, "%s\n", text) < 0) {
        exit_code = ONCE__CLI_STORE;
    }
    free(text);
    batch->code = once__cli_worse_exit(batch->code, exit_code);
    batch->done++;
    if (!batch->options->silent) {
        once__cli_progress_show(&batch->progress, batch->done, batch->count);
    }
}

/* A line that was not called. */
static void print_skipped(const line_t *line, const char *end, const char *text, int exit_code)
{
    once__cli_json_t json;
    json_t *object = parse(line);
    json_t *name = json_object_get(object, "name");

    once__cli_json_start(&json);
    once__cli_json_number(&json, "line", line->number);
    name = name != NULL ? name : json_object_get(object, "key");
    once__cli_json_put(&json, "name", json_incref(name));
    once__cli_json_text(&json, "end", end);
    once__cli_json_number(&json, "exit", (uint64_t)exit_code);
    once__cli_json_bytes(&json, "text", once__slice_of(text));
    print(line, &json, exit_code);
    json_decref(object);
}

/* The line has been answered, so that the next one of its group may go; or it has not, and all behind it are held. */
static void let_follow(batch_t *batch, const line_t *line, int answered)
{
    for (size_t at = line->follower; at != NONE; at = batch->lines[at].follower) {
        if (answered) {
            batch->lines[at].waits = 0;
            if (at < batch->next) {
                batch->ready[batch->ready_end++] = at;
            }
            return;
        }
        print_skipped(&batch->lines[at], "held", "an earlier line of its group has no answer",
                      ONCE__CLI_OPEN);
    }
}

static void ended(once_client_t *client, const once_client_outcome_t *outcome, void *data)
{
    const line_t *line = data;
    batch_t *batch = line->batch;
    once__cli_json_t json;

    once__cli_json_start(&json);
    once__cli_json_number(&json, "line", line->number);
    once__cli_outcome_json(&json, outcome);
    print(line, &json, once__cli_outcome_exit(outcome));
    batch->running--;
    let_follow(batch, line, outcome->end == ONCE_CLIENT_ANSWERED);
}

/* ------------------------------------------------------------------------------------------------------------- running */

static void start(batch_t *batch, line_t *line)
{
    once__cli_request_t made = ONCE__CLI_REQUEST_INIT;
    once_client_request_t request = batch->options->defaults;
    json_t *object = parse(line);
    once_error_t err = {0};
    int code = make_request(line, object, &made);

    request.name = json_string_value(json_object_get(object, "name"));
    request.key = json_string_value(json_object_get(object, "key"));
    if (json_object_get(object, "url") != NULL) {
        request.url = json_string_value(json_object_get(object, "url"));
    }
    if (json_object_get(object, "method") != NULL) {
        request.method = json_string_value(json_object_get(object, "method"));
    }
    request.body = once__slice(made.body.data, made.body.len);
    request.headers = made.headers.items;
    request.header_count = made.headers.count;
    request.credentials = made.credentials.items;
    request.credential_count = made.credentials.count;
    if (code == ONCE__CLI_OK &&
        once_client_call(batch->client, &request, ended, line, &err) == ONCE_OK) {
        batch->running++;
    } else {
        print_skipped(line, "invalid", err.text[0] != '\0' ? err.text : "it cannot be sent",
                      ONCE__CLI_USAGE);
        let_follow(batch, line, 0);
    }
    json_decref(object);
    once__cli_request_free(&made);
}

static line_t *take_next(batch_t *batch)
{
    if (batch->ready_at < batch->ready_end) {
        return &batch->lines[batch->ready[batch->ready_at++]];
    }
    while (batch->next < batch->count) {
        line_t *line = &batch->lines[batch->next++];
        if (!line->waits) {
            return line;
        }
    }
    return NULL;
}

static void run(batch_t *batch)
{
    line_t *line = NULL;

    do {
        while (batch->running < batch->options->parallel && (line = take_next(batch)) != NULL) {
            start(batch, line);
        }
        if (batch->running > 0) {
            (void)once_client_wait(batch->client, -1);
        }
    } while (batch->running > 0 || batch->ready_at < batch->ready_end ||
             batch->next < batch->count);
}

/* ------------------------------------------------------------------------------------------------------------- reading */

static group_t *group_named(batch_t *batch, const char *name)
{
    static const once__hash_seed_t seed = {1, 2}; /* the file is the user's own */
    uint64_t hash = once__hash_data(&seed, name, strlen(name));
    group_t *group;

    for (once__hash_node_t *node = once__hash_first(&batch->groups, hash); node != NULL;
         node = once__hash_next(node)) {
        group = ONCE__CONTAINER(node, group_t, node);
        if (strcmp(group->name, name) == 0) {
            return group;
        }
    }
    group = calloc(1, sizeof(*group));
    if (group != NULL) {
        group->name = strdup(name);
        group->last = NONE;
    }
    if (group == NULL || group->name == NULL ||
        once__hash_add(&batch->groups, &group->node, hash) != 0) {
        free(group != NULL ? group->name : NULL);
        free(group);
        return NULL;
    }
    return group;
}

static int join_group(batch_t *batch, size_t index, const char *name)
{
    group_t *group = name != NULL ? group_named(batch, name) : NULL;

    if (name == NULL) {
        return 0;
    }
    if (group == NULL) {
        return -1;
    }
    if (group->last != NONE) {
        batch->lines[group->last].follower = index;
        batch->lines[index].waits = 1;
    }
    group->last = index;
    return 0;
}

static int take_line(batch_t *batch, const char *text, size_t len, size_t number)
{
    line_t *lines =
        once__grow(batch->lines, &batch->room, batch->count + 1, sizeof(*lines), LINES_MAX);
    line_t line = {batch, text, len, number, NONE, 0};
    json_t *object;
    const char *bad;
    int code = ONCE__CLI_OK;

    if (lines == NULL) {
        return wrong(&line, "there are too many lines, or out of memory");
    }
    batch->lines = lines;
    object = parse(&line);
    bad = object != NULL ? check_members(&line, object) : "is not JSON";
    lines[batch->count] = line;
    if (bad != NULL) {
        code = wrong(&line, bad);
    } else if (join_group(batch, batch->count,
                          json_string_value(json_object_get(object, "group"))) != 0) {
        code = wrong(&line, "out of memory");
    }
    batch->count++;
    json_decref(object);
    return code;
}

static int read_lines(batch_t *batch)
{
    const char *at = batch->file.data, *stop = at + batch->file.len;
    int code = ONCE__CLI_OK;

    for (size_t number = 1; code == ONCE__CLI_OK && at < stop; number++) {
        const char *end = memchr(at, '\n', (size_t)(stop - at));
        size_t len = (size_t)((end != NULL ? end : stop) - at), blank = 0;
        while (blank < len && strchr(" \t\r", at[blank]) != NULL) {
            blank++;
        }
        if (blank < len) {
            code = take_line(batch, at, len, number);
        }
        at += len + 1;
    }
    if (code == ONCE__CLI_OK) {
        batch->ready = calloc(batch->count + 1, sizeof(batch->ready[0]));
        if (batch->ready == NULL) {
            once__cli_say("out of memory");
            code = ONCE__CLI_STORE;
        }
    }
    return code;
}

static void free_batch(batch_t *batch)
{
    for (once__hash_node_t *node = once__hash_each(&batch->groups, NULL), *next; node != NULL;
         node = next) {
        group_t *group = ONCE__CONTAINER(node, group_t, node);
        next = once__hash_each(&batch->groups, node);
        free(group->name);
        free(group);
    }
    once__hash_free(&batch->groups);
    free(batch->lines);
    free(batch->ready);
    once__cli_bytes_free(&batch->file);
}

int once__cli_batch(once_client_t *client, const char *path,
                    const once__cli_batch_options_t *options)
{
    batch_t batch = {.client = client, .options = options, .code = ONCE__CLI_OK};
    int code = once__cli_read_file(path, FILE_MAX, &batch.file);

    if (code == ONCE__CLI_OK && once__hash_init(&batch.groups, LINES_MAX) != 0) {
        code = ONCE__CLI_STORE;
    }
    if (code == ONCE__CLI_OK) {
        code = read_lines(&batch);
    }
    if (code == ONCE__CLI_OK) {
        once__cli_progress_start(&batch.progress);
        run(&batch);
        once__cli_progress_clear(&batch.progress);
        assert(batch.done == batch.count);
        code = batch.code;
    }
    free_batch(&batch);
    return code;
}
