/*
 * once call: an HTTP request that takes effect once, in curl's words.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/request.h"
#include "cli/text.h"
#include "cli/units.h"

#define PARALLEL     16
#define PARALLEL_MAX 1000

typedef struct settings {
    const char *config, *method, *binary, *json, *output, *write_out, *name, *key, *journal, *batch;
    const char *cacert, *cert, *cert_key, *proxy;
    once__cli_list_t headers, expanded, data;
    once__cli_number_t until, keep, retry, retry_time, retry_delay, max_time, connect_time,
        parallel;
    int include, silent, resume, report, netrc, http2;
} settings_t;

typedef struct job {
    const once__cli_call_t *call;
    const settings_t *set;
    once_client_t *client;
    once__cli_request_t made;
    once_client_request_t request;
    FILE *out;
    int is_terminal; /* standard error */
    int is_shown;    /* a line about a pause */
    int is_emptied;  /* the output */
    int several;     /* one result on each line */
    size_t running;
    int code;
} job_t;

/* ------------------------------------------------------------------------------------------------------------- progress */

static void clear_line(job_t *job)
{
    if (job->is_shown) {
        fputs("\r\033[K", stderr);
        job->is_shown = 0;
    }
}

static void on_pause(once_client_t *client, const once_client_pause_t *pause, void *data)
{
    job_t *job = data;
    char text[80];

    if (job->is_terminal && !job->several) {
        once__cli_escape(text, sizeof(text), once__slice_of(pause->text));
        clear_line(job);
        fprintf(stderr, "%s; attempt %u in %s", text, pause->attempts + 1,
                once__cli_duration(pause->pause_ms).text);
        fflush(stderr);
        job->is_shown = 1;
    }
}

/* -------------------------------------------------------------------------------------------------------------- results */

static void write_variable(FILE *out, const char *name, size_t len,
                           const once_client_outcome_t *outcome)
{
    char variable[32];

    snprintf(variable, sizeof(variable), "%.*s", (int)(len < 31 ? len : 31), name);
    if (strcmp(variable, "http_code") == 0 || strcmp(variable, "response_code") == 0) {
        fprintf(out, "%03d", outcome->status);
    } else if (strcmp(variable, "size_download") == 0) {
        fprintf(out, "%zu", outcome->body.len);
    } else if (strcmp(variable, "num_retries") == 0) {
        fprintf(out, "%u", outcome->attempts > 0 ? outcome->attempts - 1 : 0);
    } else if (strcmp(variable, "idempotency_key") == 0) {
        fputs(outcome->key, out);
    } else if (strcmp(variable, "end") == 0) {
        fputs(once_client_end_name(outcome->end), out);
    } else if (strcmp(variable, "replayed") == 0) {
        fputs(outcome->replayed ? "true" : "false", out);
    } else if (strcmp(variable, "remembered") == 0) {
        fputs(outcome->remembered ? "true" : "false", out);
    } else if (strcmp(variable, "exitcode") == 0) {
        fprintf(out, "%d", once__cli_outcome_exit(outcome));
    }
}

/* curl's -w: %{variable}, %%, \n, \r and \t. */
static void write_out(FILE *out, const char *format, const once_client_outcome_t *outcome)
{
    for (const char *at = format; *at != '\0'; at++) {
        const char *end = at[0] == '%' && at[1] == '{' ? strchr(at, '}') : NULL;
        const char *escape = at[0] == '\\' && at[1] != '\0' ? strchr("nrt", at[1]) : NULL;
        if (end != NULL) {
            write_variable(out, at + 2, (size_t)(end - at - 2), outcome);
            at = end;
        } else if (escape != NULL) {
            fputc(*escape == 'n' ? '\n' : *escape == 'r' ? '\r' : '\t', out);
            at++;
        } else {
            fputc(*at, out);
            at += at[0] == '%' && at[1] == '%';
        }
    }
}

static void print_answer(const job_t *job, const once_client_outcome_t *outcome)
{
    if (job->set->include && outcome->status != 0) {
        fprintf(job->out, "HTTP %d\r\n", outcome->status);
        for (size_t i = 0; i < outcome->header_count; i++) {
            const once_header_t *header = &outcome->headers[i];
            fprintf(job->out, "%.*s: %.*s\r\n", (int)header->name.len,
                    (const char *)header->name.data, (int)header->value.len,
                    (const char *)header->value.data);
        }
        fputs("\r\n", job->out);
    }
    fwrite(outcome->body.data, 1, outcome->body.len, job->out);
    if (job->set->write_out != NULL) {
        write_out(stdout, job->set->write_out, outcome);
    }
}

/* Where a redirect leads to, without the query, which may have what should not be shown. */
static once_slice_t location(const once_client_outcome_t *outcome)
{
    for (size_t i = 0; i < outcome->header_count; i++) {
        const once_header_t *header = &outcome->headers[i];
        if (header->name.len == 8 && strncasecmp(header->name.data, "Location", 8) == 0) {
            const char *text = header->value.data;
            size_t len = 0;
            while (len < header->value.len && len < 300 && strchr("?#@", text[len]) == NULL) {
                len++;
            }
            return once__slice(text, len);
        }
    }
    return once__slice_of("another URL");
}

static void explain_redirect(const once_client_outcome_t *outcome)
{
    once_slice_t where = location(outcome);
    int did_nothing = outcome->attempts == 1 && (outcome->status == 307 || outcome->status == 308);

    if (outcome->end == ONCE_CLIENT_ANSWERED) {
        once__cli_say("the server has ended this call with %d and names %.*s, where nothing was "
                      "sent: look there whether it was done",
                      outcome->status, (int)where.len, (const char *)where.data);
    } else {
        once__cli_say("%s and names %.*s, where nothing was sent: a redirect is not followed. Call "
                      "the right address under another --name%s; the same command asks again",
                      outcome->text, (int)where.len, (const char *)where.data,
                      did_nothing ? "" : ", unless it has taken effect");
    }
}

/* What a person must know besides the answer. */
static void explain(const job_t *job, const once_client_outcome_t *outcome)
{
    const char *text = outcome->text, *key = outcome->key;

    switch (outcome->end) {
    case ONCE_CLIENT_ANSWERED:
        if (outcome->reused) {
            once__cli_say(
                "the server knows the key %s from a different request; a new intent needs "
                "a new name or key",
                key);
        } else if (outcome->status >= 300 && outcome->status < 400) {
            explain_redirect(outcome);
        } else if (outcome->remembered && !job->set->silent) {
            once__cli_note("this was answered before: the answer is from the journal, and nothing "
                           "was sent; another --name is another intent");
        } else if (outcome->replayed && !job->set->silent) {
            once__cli_note("an earlier attempt took effect: the server repeats its answer");
        }
        if (outcome->body_omitted) {
            once__cli_say("the body of the answer was not kept: it is over 16 MiB, or the server "
                          "does not repeat it");
        }
        if (outcome->error != ONCE_OK) {
            once__cli_say("the answer is not in the journal: %s", once_error_text(outcome->error));
        }
        break;
    case ONCE_CLIENT_UNKNOWN:
        once__cli_say("%s: it may have taken effect, and the server does not try again. Ask its "
                      "operator about the key %s; do not send it with another one",
                      text, key);
        break;
    case ONCE_CLIENT_DENIED:
        once__cli_say(
            "%s: nothing was done by this attempt%s. The same command goes on, with other "
            "credentials",
            text, outcome->attempts > 1 ? "; an earlier one may have taken effect" : "");
        break;
    case ONCE_CLIENT_REDIRECTED:
        explain_redirect(outcome);
        break;
    case ONCE_CLIENT_UNSENT:
        once__cli_say("%s; nothing was sent. The same command tries again", text);
        break;
    case ONCE_CLIENT_OPEN:
        once__cli_say("%s; it may have taken effect. The same command goes on with the key %s",
                      text, key);
        break;
    case ONCE_CLIENT_LATE:
        once__cli_say("%s; its time is over, and nothing is sent any more. It may have taken "
                      "effect: ask the operator about the key %s",
                      text, key);
        break;
    case ONCE_CLIENT_MISMATCH:
        once__cli_say("%s; nothing was sent. A different request needs another --name", text);
        break;
    default:
        once__cli_say("the journal cannot be used: %s; nothing was sent", text);
        break;
    }
}

/* What an earlier run has written goes when there is something to write instead. */
static void empty_output(job_t *job)
{
    if (job->out != stdout && !job->is_emptied) {
        (void)!ftruncate(fileno(job->out), 0); /* a pipe cannot, and need not */
    }
    job->is_emptied = 1;
}

static void on_end(once_client_t *client, const once_client_outcome_t *outcome, void *data)
{
    job_t *job = data;

    clear_line(job);
    empty_output(job);
    job->running--;
    job->code = once__cli_worse_exit(job->code, once__cli_outcome_exit(outcome));
    if (job->set->report || job->several) {
        once__cli_json_t json;
        char *text = NULL;
        once__cli_json_start(&json);
        once__cli_outcome_json(&json, outcome);
        text = json.broken ? NULL : json_dumps(json.object, JSON_COMPACT | JSON_ENSURE_ASCII);
        fprintf(job->out, "%s\n", text != NULL ? text : "{}");
        free(text);
        json_decref(json.object);
    } else {
        print_answer(job, outcome);
        explain(job, outcome);
    }
}

/* -------------------------------------------------------------------------------------------------------------- request */

/* Other users see the arguments of a process. */
static void warn_of_argument(const job_t *job, const char *line)
{
    if (job->set->silent || line[0] == '@' || !once__cli_is_credential(line, strcspn(line, ":;"))) {
        return;
    }
    for (int i = 0; i < job->call->argc; i++) {
        const char *argument = job->call->argv[i];
        if (line >= argument && line <= argument + strlen(argument)) {
            once__cli_note("other users can see the header %.*s in the list of processes; "
                           "-H @FILE, --expand-header or -K FILE keep it out",
                           (int)strcspn(line, ":;"), line);
            return;
        }
    }
}

static int add_headers(job_t *job)
{
    int code = ONCE__CLI_OK;

    for (size_t i = 0; code == ONCE__CLI_OK && i < job->set->headers.count; i++) {
        code = once__cli_request_header(&job->made, job->set->headers.items[i]);
        if (code == ONCE__CLI_OK) {
            warn_of_argument(job, job->set->headers.items[i]);
        }
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < job->set->expanded.count; i++) {
        code = once__cli_request_expand(&job->made, job->set->expanded.items[i]);
    }
    return code;
}

static int add_body(job_t *job)
{
    const settings_t *set = job->set;
    int kinds = (set->data.count > 0) + (set->binary != NULL) + (set->json != NULL);
    int code = ONCE__CLI_OK;

    if (kinds > 1) {
        return once__cli_usage(job->call->command,
                               "give --data, --data-binary or --json, one of them");
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < set->data.count; i++) {
        code = once__cli_request_data(&job->made, set->data.items[i], 1);
    }
    if (set->binary != NULL || set->json != NULL) {
        code = once__cli_request_data(&job->made, set->binary != NULL ? set->binary : set->json, 0);
    }
    if (code == ONCE__CLI_OK && kinds > 0) {
        code = once__cli_request_default(&job->made, "Content-Type",
                                         set->json != NULL ? "application/json"
                                                           : "application/x-www-form-urlencoded");
    }
    if (code == ONCE__CLI_OK && set->json != NULL) {
        code = once__cli_request_default(&job->made, "Accept", "application/json");
    }
    return code;
}

static int make_request(job_t *job)
{
    const once_client_request_t init = ONCE_CLIENT_REQUEST_INIT;
    const settings_t *set = job->set;
    once_client_request_t *request = &job->request;
    int code = add_headers(job);

    if (code == ONCE__CLI_OK) {
        code = add_body(job);
    }
    *request = init;
    request->name = set->name;
    request->key = set->key;
    request->method = set->method;
    request->url = job->call->operand_count > 0 ? job->call->operands[0] : NULL;
    request->body = once__slice(job->made.body.data, job->made.body.len);
    request->headers = job->made.headers.items;
    request->header_count = job->made.headers.count;
    request->credentials = job->made.credentials.items;
    request->credential_count = job->made.credentials.count;
    request->until_ms = set->until.value;
    request->keep_ms = set->keep.value;
    request->try_ms = set->retry_time.value;
    request->attempts = set->retry.given ? (unsigned)set->retry.value + 1 : 0;
    request->keep_request = 1;
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- the ways */

static int is_given(const job_t *job, once_slice_t name)
{
    for (size_t i = 0; i < job->made.credentials.count; i++) {
        const once_header_t *header = &job->made.credentials.items[i];
        if (header->name.len == name.len &&
            strncasecmp(header->name.data, name.data, name.len) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A request of the journal, with the credentials of this command line. */
static int resume_one(once_client_t *client, const once_client_request_t *kept, void *data)
{
    job_t *job = data;
    once_client_request_t request = *kept;
    once_error_t err = {0};

    for (size_t i = 0; i < kept->credential_count; i++) {
        if (!is_given(job, kept->credentials[i].name)) {
            once__cli_say("%s was sent with the header %.*s, which the journal does not keep: give "
                          "it again, with -H @FILE",
                          once__cli_shown(kept->name != NULL ? kept->name : kept->key).text,
                          (int)kept->credentials[i].name.len,
                          (const char *)kept->credentials[i].name.data);
            job->code = once__cli_worse_exit(job->code, ONCE__CLI_USAGE);
            return 0;
        }
    }
    request.credentials = job->request.credentials;
    request.credential_count = job->request.credential_count;
    request.try_ms = job->request.try_ms;
    request.attempts = job->request.attempts;
    if (once_client_call(client, &request, on_end, job, &err) != ONCE_OK) {
        once__cli_say("%s", err.text);
        job->code = once__cli_worse_exit(job->code, ONCE__CLI_STORE);
    } else {
        job->running++;
    }
    return 0;
}

static int resume(job_t *job)
{
    const char *name = job->set->name != NULL ? job->set->name : job->set->key;
    int code;

    job->several = name == NULL;
    if (job->several) {
        empty_output(job);
    }
    code = once_client_scan_sync(job->client, name, resume_one, job);
    while (job->running > 0) {
        (void)once_client_wait(job->client, -1);
    }
    if (code == ONCE_E_NOT_FOUND) {
        once__cli_note(name != NULL ? "no call of this name is open" : "no call is open");
        return name != NULL ? ONCE__CLI_NOT_FOUND : ONCE__CLI_OK;
    }
    if (code != ONCE_OK) {
        once__cli_say("the journal cannot be read: %s", once_error_text(code));
        return ONCE__CLI_STORE;
    }
    return job->code;
}

static int call_once(job_t *job)
{
    once_error_t err = {0};
    int code;

    job->running = 1;
    code = once_client_call_sync(job->client, &job->request, on_end, job, &err);
    if (code != ONCE_OK) {
        return once__cli_usage(job->call->command, "%s", err.text);
    }
    return job->code;
}

static int call_batch(job_t *job)
{
    once__cli_batch_options_t options = {
        .defaults = job->request,
        .common = &job->made,
        .parallel = job->set->parallel.given ? (unsigned)job->set->parallel.value : PARALLEL,
        .silent = job->set->silent,
        .out = job->out,
        .is_emptied = job->out != stdout,
    };
    struct stat file, out;

    if (stat(job->set->batch, &file) == 0 && fstat(fileno(job->out), &out) == 0 &&
        S_ISREG(out.st_mode) && file.st_dev == out.st_dev && file.st_ino == out.st_ino) {
        return once__cli_usage(job->call->command, "the results would replace the file of --batch");
    }

    options.defaults.keep_request = 0; /* the file has the requests */
    job->several = 1;
    return once__cli_batch(job->client, job->set->batch, &options);
}

/* ------------------------------------------------------------------------------------------------------------- settings */

static int check_settings(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    int ways = set->resume + (set->batch != NULL);

    if (ways > 1 || (ways == 0 && call->operand_count == 0)) {
        return once__cli_usage(call->command, "give an address, --resume, or --batch FILE");
    }
    if (set->name != NULL && set->key != NULL) {
        return once__cli_usage(call->command, "give --name or --key, not both");
    }
    if (set->batch != NULL && (set->name != NULL || set->key != NULL || set->data.count > 0 ||
                               set->binary != NULL || set->json != NULL)) {
        return once__cli_usage(call->command,
                               "with --batch, names and bodies are in the lines of the file");
    }
    if (set->resume && (call->operand_count > 0 || set->data.count > 0 || set->binary != NULL ||
                        set->json != NULL || set->method != NULL)) {
        return once__cli_usage(call->command,
                               "--resume takes the request from the journal; add --name, --key "
                               "and headers only");
    }
    if ((set->until.given && set->until.value < 1000) ||
        (set->keep.given && set->keep.value < 1000)) {
        return once__cli_usage(call->command, "--until and --keep must be at least 1s");
    }
    if (set->parallel.given && (set->parallel.value == 0 || set->parallel.value > PARALLEL_MAX)) {
        return once__cli_usage(call->command, "--parallel-max must be 1 to %d", PARALLEL_MAX);
    }
    if ((set->retry_time.given && set->retry_time.value == 0) ||
        (set->max_time.given && set->max_time.value == 0)) {
        return once__cli_usage(call->command, "a time must not be 0");
    }
    return ONCE__CLI_OK;
}

static int open_client(job_t *job)
{
    once_client_options_t options = ONCE_CLIENT_OPTIONS_INIT;
    const settings_t *set = job->set;
    once_error_t err = {0};
    int code;

    options.journal = set->journal;
    options.connections = set->parallel.given ? (unsigned)set->parallel.value : PARALLEL;
    options.http = set->http2 ? ONCE_CLIENT_HTTP_2 : ONCE_CLIENT_HTTP_ANY;
    options.timeout_ms = set->max_time.value;
    options.connect_ms = set->connect_time.value;
    options.pause_ms = set->retry_delay.value;
    options.ca_file = set->cacert;
    options.cert_file = set->cert;
    options.cert_key_file = set->cert_key;
    options.proxy = set->proxy;
    options.netrc = set->netrc;
    options.pausing = on_pause;
    options.data = job;
    code = once_client_open(&options, &job->client, &err);
    if (code != ONCE_OK) {
        once__cli_say("cannot open the journal: %s", err.text);
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

static int open_output(job_t *job)
{
    const char *path = job->set->output;

    job->out = path != NULL && strcmp(path, "-") != 0 ? fopen(path, "ae") : stdout;
    if (job->out == NULL) {
        once__cli_say("cannot write %s: %s", once__cli_shown(path).text, strerror(errno));
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

static int close_output(job_t *job, int code)
{
    int bad = job->out != NULL && (fflush(job->out) != 0 || ferror(job->out));

    if (job->out != NULL && job->out != stdout) {
        bad |= fclose(job->out) != 0;
    }
    if (bad) {
        once__cli_say("cannot write the output; the same command gives it again");
        return ONCE__CLI_STORE;
    }
    return code;
}

static int run_call(const once__cli_call_t *call)
{
    job_t job = {.call = call, .set = call->settings, .made = ONCE__CLI_REQUEST_INIT};
    int code = check_settings(call);

    job.is_terminal = isatty(STDERR_FILENO) && !job.set->silent;
    if (code == ONCE__CLI_OK) {
        code = make_request(&job);
    }
    if (code == ONCE__CLI_OK) {
        code = open_client(&job);
    }
    if (code == ONCE__CLI_OK) {
        code = open_output(&job);
    }
    if (code == ONCE__CLI_OK) {
        code = job.set->batch != NULL ? call_batch(&job)
               : job.set->resume      ? resume(&job)
                                      : call_once(&job);
        code = close_output(&job, code);
    }
    once_client_close(job.client);
    once__cli_request_free(&job.made);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"request", 'X', ONCE__CLI_TEXT, "METHOD", "the method (default POST)", offsetof(settings_t, method)},
    {"header", 'H', ONCE__CLI_LIST, "LINE", "a header, or @FILE with one on each line", offsetof(settings_t, headers)},
    {"expand-header", 0, ONCE__CLI_LIST, "LINE", "a header with {{NAME}} from the environment",
     offsetof(settings_t, expanded)},
    {"data", 'd', ONCE__CLI_LIST, "DATA", "the body, or @FILE; several are joined with &", offsetof(settings_t, data)},
    {"data-binary", 0, ONCE__CLI_TEXT, "DATA", "the body as it is, or @FILE", offsetof(settings_t, binary)},
    {"json", 0, ONCE__CLI_TEXT, "DATA", "the same, with the headers of JSON", offsetof(settings_t, json)},
    {"name", 0, ONCE__CLI_TEXT, "NAME", "what is to happen once: its name in the journal", offsetof(settings_t, name)},
    {"key", 0, ONCE__CLI_TEXT, "KEY", "the idempotency key itself, instead of a name", offsetof(settings_t, key)},
    {"until", 0, ONCE__CLI_DURATION, "TIME", "send nothing after that (default 24h)", offsetof(settings_t, until)},
    {"retry", 0, ONCE__CLI_NUMBER, "N", "repeat at most N times in this run", offsetof(settings_t, retry)},
    {"retry-max-time", 0, ONCE__CLI_DURATION, "TIME", "this run ends after that",
     offsetof(settings_t, retry_time)},
    {"retry-delay", 0, ONCE__CLI_DURATION, "TIME", "the first pause; each is twice as long (default 500ms)",
     offsetof(settings_t, retry_delay)},
    {"max-time", 'm', ONCE__CLI_DURATION, "TIME", "of one attempt (default 1m)", offsetof(settings_t, max_time)},
    {"connect-timeout", 0, ONCE__CLI_DURATION, "TIME", "until it is connected (default 10s)",
     offsetof(settings_t, connect_time)},
    {"resume", 0, ONCE__CLI_FLAG, NULL, "go on with what is open in the journal", offsetof(settings_t, resume)},
    {"batch", 0, ONCE__CLI_TEXT, "FILE", "make the calls of FILE, one as JSON on each line", offsetof(settings_t, batch)},
    {"parallel-max", 0, ONCE__CLI_NUMBER, "N", "calls at the same time (default 16)", offsetof(settings_t, parallel)},
    {"output", 'o', ONCE__CLI_TEXT, "FILE", "write the answer, or the results, to FILE", offsetof(settings_t, output)},
    {"write-out", 'w', ONCE__CLI_TEXT, "FORMAT", "print FORMAT after the answer: %{http_code} ...",
     offsetof(settings_t, write_out)},
    {"include", 'i', ONCE__CLI_FLAG, NULL, "print the headers of the answer, too", offsetof(settings_t, include)},
    {"report", 0, ONCE__CLI_FLAG, NULL, "print what became of it as JSON", offsetof(settings_t, report)},
    {"silent", 's', ONCE__CLI_FLAG, NULL, "no progress and no notes", offsetof(settings_t, silent)},
    {"journal", 0, ONCE__CLI_TEXT, "DIR", "the directory of the journal", offsetof(settings_t, journal)},
    {"keep", 0, ONCE__CLI_DURATION, "TIME", "remember it so long after --until (default 7d)",
     offsetof(settings_t, keep)},
    {"cacert", 0, ONCE__CLI_TEXT, "FILE", "authorities to trust", offsetof(settings_t, cacert)},
    {"cert", 'E', ONCE__CLI_TEXT, "FILE", "certificate of the client", offsetof(settings_t, cert)},
    {"cert-key", 0, ONCE__CLI_TEXT, "FILE", "its private key", offsetof(settings_t, cert_key)},
    {"proxy", 'x', ONCE__CLI_TEXT, "URL", "the proxy (default: that of the environment)", offsetof(settings_t, proxy)},
    {"netrc", 'n', ONCE__CLI_FLAG, NULL, "take user and password from ~/.netrc", offsetof(settings_t, netrc)},
    {"http2-prior-knowledge", 0, ONCE__CLI_FLAG, NULL, "speak HTTP/2 without asking", offsetof(settings_t, http2)},
    {"config", 'K', ONCE__CLI_TEXT, "FILE", "read options from FILE: a NAME and its VALUE on each line",
     offsetof(settings_t, config)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_call = {
    .name = "call",
    .operands = "[ADDRESS]",
    .summary = "send an HTTP request until its outcome is known, with one key",
    .details =
        "    once call --name payout-17 --json '{\"amount\": 4200}' "
        "https://api.example.com/payouts\n"
        "    once call --resume -H @token\n"
        "    once call --batch payouts.jsonl -o results.jsonl -H @token\n"
        "\n"
        "The intent is in a journal before the first byte is sent. If the command is killed,\n"
        "the same command goes on with the same idempotency key; when it has ended, the same\n"
        "command gives the same answer and exit code, and sends nothing. A different request\n"
        "under the same name is refused.\n"
        "\n"
        "Exits with 0 after 2xx, 1 after 4xx, 5 if the name or key belongs to another request, 6\n"
        "after a final 5xx, 7 if the server does not know the outcome, 8 if it gave up and it may\n"
        "have taken effect, 9 if its time is over, 10 if nothing was sent, 11 if the credentials\n"
        "were refused, and 12 after a redirect, which is not followed. docs/call.md explains "
        "them.\n",
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_call,
};
