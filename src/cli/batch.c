/*
 * once call --batch: a file of requests, one on each line.
 *
 * The whole file is checked before anything is sent. A line is started when the line of its group before it has been answered; a
 * group whose line has no answer is held. What earlier runs have done comes from the journal, so every run writes all results.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/text.h"
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

/* What lines refer to: a group, a name or a key. */
typedef enum kind { GROUP, NAME, KEY, KINDS } kind_t;

typedef struct named {
    once__hash_node_t node;
    char *name;
    size_t last; /* the last line so far that has it; NONE */
} named_t;

typedef struct batch {
    once_client_t *client;
    const once__cli_batch_options_t *options;
    once__cli_bytes_t file;
    line_t *lines;
    size_t count, room;
    once__hash_t named[KINDS];
    size_t next;   /* the first line that was not looked at */
    size_t *ready; /* lines behind `next` whose turn has come: a queue of `count` places */
    size_t ready_at, ready_end;
    size_t running, done;
    int code;
    once__cli_progress_t progress;
} batch_t;

/* ------------------------------------------------------------------------------------------------------------ one line */

__attribute__((format(printf, 2, 3))) static int wrong(const line_t *line, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    once__cli_say("line %zu: %s", line->number, text);
    return ONCE__CLI_USAGE;
}

static int check_headers(const line_t *line, json_t *headers)
{
    const char *name;
    json_t *value;

    json_object_foreach(headers, name, value)
    {
        if (!once__is_token(name, strlen(name)) || !json_is_string(value) ||
            !once__is_field_value(json_string_value(value), json_string_length(value))) {
            return wrong(line, "headers: %s is not a name with a text of HTTP",
                         once__cli_shown(name).text);
        }
    }
    return ONCE__CLI_OK;
}

static int check_members(const line_t *line, json_t *object)
{
    static const char *const texts[] = {"name", "key", "url", "method", "group", "data"};
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        int known = strcmp(name, "json") == 0, is_text = 0;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            is_text |= strcmp(name, texts[i]) == 0;
        }
        if (is_text && !json_is_string(value)) {
            return wrong(line, "%s: is not a text", name);
        }
        if (strcmp(name, "headers") == 0 && !json_is_object(value)) {
            return wrong(line, "headers: is not an object");
        }
        if (!known && !is_text && strcmp(name, "headers") != 0) {
            return wrong(line,
                         "%s: the members are name or key, url, method, headers, json or data, "
                         "and group",
                         once__cli_shown(name).text);
        }
    }
    if ((json_object_get(object, "name") == NULL) == (json_object_get(object, "key") == NULL)) {
        return wrong(line, "needs a name or a key: without one, two equal lines would be one");
    }
    if (json_object_get(object, "url") == NULL && line->batch->options->defaults.url == NULL) {
        return wrong(line, "needs a url, or give the address on the command line");
    }
    if (json_object_get(object, "json") != NULL && json_object_get(object, "data") != NULL) {
        return wrong(line, "has json and data: give one of them");
    }
    return check_headers(line, json_object_get(object, "headers"));
}

/* Numbers are not looked at, and may have more digits than integers of C. */
static json_t *parse(const line_t *line)
{
    return json_loadb(line->text, line->len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL,
                      NULL);
}

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r");
}

/* Behind a value of JSON, which is known to be valid. */
static const char *skip_value(const char *at)
{
    size_t depth = 0;

    do {
        if (*at == '"') {
            for (at++; *at != '"'; at++) {
                at += *at == '\\';
            }
            at++;
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else {
            at += depth > 0 ? 1 : strcspn(at, " \t\r,}]");
        }
    } while (depth > 0);
    return at;
}

/* The value of `json` as it is written: parsed and printed again, 1.10 and 12345678901234567890 would be other numbers. */
static once_slice_t written_json(const line_t *line)
{
    const char *at = skip_space(line->text), *stop = line->text + line->len;

    while (at < stop && (*at == '{' || *at == ',')) {
        const char *name = skip_space(at + 1), *value, *end;
        json_t *text;
        int found;
        at = skip_value(name);
        text = json_loadb(name, (size_t)(at - name), JSON_DECODE_ANY, NULL);
        found = text != NULL && strcmp(json_string_value(text), "json") == 0;
        json_decref(text);
        value = skip_space(skip_space(at) + 1); /* behind the colon */
        end = skip_value(value);
        if (found) {
            assert(end < stop);
            return once__slice(value, (size_t)(end - value));
        }
        at = skip_space(end);
    }
    return once__slice(NULL, 0);
}

/* Headers and body of a line. */
static int make_parts(const line_t *line, json_t *object, once__cli_request_t *made)
{
    json_t *data = json_object_get(object, "data"), *value;
    once_slice_t body = once__slice(json_string_value(data), json_string_length(data));
    int code = ONCE__CLI_OK;
    const char *name;

    json_object_foreach(json_object_get(object, "headers"), name, value)
    {
        once_slice_t text = once__slice(json_string_value(value), json_string_length(value));
        code =
            code == ONCE__CLI_OK ? once__cli_request_add(made, once__slice_of(name), text) : code;
    }
    if (code == ONCE__CLI_OK && json_object_get(object, "json") != NULL) {
        body = written_json(line);
        code = once__cli_request_default(made, "Content-Type", "application/json");
    }
    if (once__buf_add(&made->body, body.data, body.len) != ONCE_OK) {
        return wrong(line, "the body is over %zu bytes, or out of memory", made->body.max);
    }
    return code == ONCE__CLI_OK ? once__cli_request_join(made, line->batch->options->common) : code;
}

/* The request of a line. It points into `object` and `made`. */
static int make_request(const line_t *line, json_t *object, once__cli_request_t *made,
                        once_client_request_t *request)
{
    json_t *url = json_object_get(object, "url"), *method = json_object_get(object, "method");
    int code = make_parts(line, object, made);

    *request = line->batch->options->defaults;
    request->name = json_string_value(json_object_get(object, "name"));
    request->key = json_string_value(json_object_get(object, "key"));
    request->url = url != NULL ? json_string_value(url) : request->url;
    request->method = method != NULL ? json_string_value(method) : request->method;
    request->body = once__slice(made->body.data, made->body.len);
    request->headers = made->headers.items;
    request->header_count = made->headers.count;
    request->credentials = made->credentials.items;
    request->credential_count = made->credentials.count;
    return code;
}

/* Can it be sent? After this, only the journal and the network can refuse it. */
static int check_line(const line_t *line, json_t *object)
{
    once__cli_request_t made = ONCE__CLI_REQUEST_INIT;
    once_client_request_t request;
    once_error_t err = {0};
    int code = check_members(line, object);

    if (code == ONCE__CLI_OK) {
        code = make_request(line, object, &made, &request);
    }
    if (code == ONCE__CLI_OK && once_client_check(&request, &err) != ONCE_OK) {
        code = wrong(line, "%s", err.text);
    }
    once__cli_request_free(&made);
    return code;
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
    once_client_request_t request;
    json_t *object = parse(line);
    once_error_t err = {0};
    int code = make_request(line, object, &made, &request);

    if (code == ONCE__CLI_OK &&
        once_client_call(batch->client, &request, ended, line, &err) == ONCE_OK) {
        batch->running++;
    } else { /* it was checked: memory is short, or the journal cannot be used */
        print_skipped(line, "failed", err.text[0] != '\0' ? err.text : "out of memory",
                      ONCE__CLI_STORE);
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

/* It is made where there is none yet. NULL: out of memory. */
static named_t *find_named(batch_t *batch, kind_t kind, const char *name)
{
    static const once__hash_seed_t seed = {1, 2}; /* the file is the user's own */
    uint64_t hash = once__hash_data(&seed, name, strlen(name));
    named_t *named;

    for (once__hash_node_t *node = once__hash_first(&batch->named[kind], hash); node != NULL;
         node = once__hash_next(node)) {
        named = ONCE__CONTAINER(node, named_t, node);
        if (strcmp(named->name, name) == 0) {
            return named;
        }
    }
    named = calloc(1, sizeof(*named));
    if (named != NULL) {
        named->name = strdup(name);
        named->last = NONE;
    }
    if (named == NULL || named->name == NULL ||
        once__hash_add(&batch->named[kind], &named->node, hash) != 0) {
        free(named != NULL ? named->name : NULL);
        free(named);
        return NULL;
    }
    return named;
}

/* Takes the last line into its group, and its name, which no other line may have. */
static int link_line(batch_t *batch, json_t *object)
{
    static const char *const members[KINDS] = {"group", "name", "key"};
    size_t index = batch->count - 1;
    line_t *line = &batch->lines[index];

    for (kind_t kind = GROUP; kind < KINDS; kind++) {
        const char *text = json_string_value(json_object_get(object, members[kind]));
        named_t *named = text != NULL ? find_named(batch, kind, text) : NULL;
        if (text == NULL) {
            continue;
        }
        if (named == NULL) {
            return wrong(line, "out of memory");
        }
        if (named->last != NONE && kind != GROUP) {
            return wrong(line, "%s: line %zu has the same one: two lines are two intents",
                         members[kind], batch->lines[named->last].number);
        }
        if (named->last != NONE) {
            batch->lines[named->last].follower = index;
            line->waits = 1;
        }
        named->last = index;
    }
    return ONCE__CLI_OK;
}

static int take_line(batch_t *batch, const char *text, size_t len, size_t number)
{
    line_t *lines =
        once__grow(batch->lines, &batch->room, batch->count + 1, sizeof(*lines), LINES_MAX);
    line_t line = {batch, text, len, number, NONE, 0};
    json_t *object;
    int code;

    if (lines == NULL) {
        return wrong(&line, "there are too many lines, or out of memory");
    }
    batch->lines = lines;
    lines[batch->count++] = line;
    object = parse(&line);
    code = json_is_object(object)
               ? check_line(&line, object)
               : wrong(&line, "is not a JSON object, or has a number beyond all that can be read");
    if (code == ONCE__CLI_OK) {
        code = link_line(batch, object);
    }
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
    for (kind_t kind = GROUP; kind < KINDS; kind++) {
        once__hash_t *table = &batch->named[kind];
        for (once__hash_node_t *node = once__hash_each(table, NULL), *next; node != NULL;
             node = next) {
            named_t *named = ONCE__CONTAINER(node, named_t, node);
            next = once__hash_each(table, node);
            free(named->name);
            free(named);
        }
        once__hash_free(table);
    }
    free(batch->lines);
    free(batch->ready);
    once__cli_bytes_free(&batch->file);
}

int once__cli_batch(once_client_t *client, const char *path,
                    const once__cli_batch_options_t *options)
{
    batch_t batch = {.client = client, .options = options, .code = ONCE__CLI_OK};
    int code = once__cli_read_file(path, FILE_MAX, &batch.file);

    for (kind_t kind = GROUP; code == ONCE__CLI_OK && kind < KINDS; kind++) {
        code = once__hash_init(&batch.named[kind], LINES_MAX) == 0 ? code : ONCE__CLI_STORE;
    }
    if (code == ONCE__CLI_OK) {
        code = read_lines(&batch);
    }
    if (code == ONCE__CLI_OK) {
        if (options->is_emptied) {
            (void)!ftruncate(fileno(options->out), 0); /* a pipe cannot, and need not */
        }
        once__cli_progress_start(&batch.progress);
        run(&batch);
        once__cli_progress_clear(&batch.progress);
        assert(batch.done == batch.count);
        code = batch.code;
    }
    free_batch(&batch);
    return code;
}
