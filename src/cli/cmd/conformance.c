/*
 * once conformance: does this store keep the rules? Does this API?
 */
#include "conformance/conformance.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/store.h"
#include "cli/text.h"
#include "judge/judge.h"

typedef struct settings {
    const char *filter, *part;
    once__cli_number_t threads;
    once__cli_number_t processes;
    once__cli_number_t seed;
    int exclusive;
    int stop;
    int list;
    once__judge_options_t api; /* for an API instead of a store */
} settings_t;

static int is_api(const char *url)
{
    return url != NULL && (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0);
}

static int list(const settings_t *set)
{
    size_t count;
    const once_conformance_test_t *tests = once_conformance_tests(&count);
    size_t chosen = 0;

    for (size_t i = 0; i < count; i++) {
        if (once_conformance_chooses(set->filter, tests[i].name)) {
            printf("%s\n    %s\n", tests[i].name, tests[i].what);
            chosen++;
        }
    }
    if (chosen == 0) {
        once__cli_say("no test matches --filter");
        return ONCE__CLI_NO;
    }
    return ONCE__CLI_OK;
}

/* "2/4" is the second of four parts. */
static int read_part(const char *text, once_conformance_options_t *options)
{
    size_t len = text != NULL ? strcspn(text, "/") : 0;
    uint64_t part, parts;

    if (text == NULL) {
        return 0;
    }
    if (text[len] != '/' || once__number_parse(text, len, &part) != 0 ||
        once__number_parse(text + len + 1, strlen(text + len + 1), &parts) != 0 || part == 0 ||
        part > parts || parts > UINT_MAX) {
        return -1;
    }
    options->part = (unsigned)part - 1;
    options->parts = (unsigned)parts;
    return 0;
}

/* Whether the field of an option is set: settings are zeroed before they are read, and every field is set to something else. */
static int is_given(const settings_t *set, const once__cli_option_t *option)
{
    const char *field = (const char *)set + option->offset;

    switch (option->kind) {
    case ONCE__CLI_FLAG:
        return *(const int *)(const void *)field;
    case ONCE__CLI_TEXT:
        return *(const char *const *)(const void *)field != NULL;
    case ONCE__CLI_LIST:
        return ((const once__cli_list_t *)(const void *)field)->count > 0;
    default:
        return ((const once__cli_number_t *)(const void *)field)->given;
    }
}

/* An option of stores for an API, or of APIs for a store: it would be ignored in silence. */
static int check_options(const once__cli_call_t *call, int api)
{
    for (const once__cli_option_t *o = call->command->options; o->name != NULL; o++) {
        int of_api = o->offset >= offsetof(settings_t, api);
        int of_both = strcmp(o->name, "filter") == 0 || strcmp(o->name, "threads") == 0 ||
                      strcmp(o->name, "stop") == 0 || strcmp(o->name, "list") == 0;
        if (!of_both && of_api != api && is_given(call->settings, o)) {
            return once__cli_usage(call->command, "--%s is for %s", o->name,
                                   of_api ? "an API: give its http:// URL"
                                          : "a store, not for an API");
        }
    }
    return ONCE__CLI_OK;
}

static int judge_api(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once__judge_options_t options = set->api;

    options.filter = set->filter;
    options.at_once = set->threads.value;
    options.stop = set->stop;
    options.list = set->list;
    once__judge_chooses = once_conformance_chooses;
    return once__judge_run(call->command, call->url, &options);
}

static int run_conformance(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once_conformance_options_t options = ONCE_CONFORMANCE_INIT;
    const char *url = call->url != NULL ? call->url : getenv("ONCE_STORE");
    int code = check_options(call, is_api(call->url));

    if (code != ONCE__CLI_OK) {
        return code;
    }
    if (is_api(call->url)) {
        return judge_api(call);
    }
    if (set->list) {
        return list(set);
    }
    if (url == NULL || url[0] == '\0') {
        return once__cli_usage(call->command, "missing store: give its URL or set ONCE_STORE");
    }
    if (read_part(set->part, &options) != 0) {
        return once__cli_usage(call->command, "--part must be I/N, such as 1/4");
    }
    if (set->threads.value > 64 || set->processes.value > 32) {
        return once__cli_usage(call->command,
                               "--threads must be at most 64, --processes at most 32");
    }
    code = once__cli_reach(url);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    options.filter = set->filter;
    options.threads = (unsigned)set->threads.value;
    options.processes = (unsigned)set->processes.value;
    options.seed = set->seed.value;
    options.exclusive = set->exclusive;
    options.stop = set->stop;
    options.out = stdout;
    code = once_conformance_run(url, &options);
    if (code == ONCE_E_CONFIG || code == ONCE_E_UNSUPPORTED) {
        return ONCE__CLI_USAGE; /* the suite has said what is wrong with the URL */
    }
    if (code < 0) {
        return once__cli_store_failed("run the tests", code);
    }
    return code == 0 ? ONCE__CLI_OK : ONCE__CLI_NO;
}

/* clang-format off */
static const once__cli_option_t options_table[] = {
    {"filter", 0, ONCE__CLI_TEXT, "LIST", "tests whose name contains an item or matches it as a glob; ! excludes",
     offsetof(settings_t, filter)},
    {"part", 0, ONCE__CLI_TEXT, "I/N", "only part I of N of these tests, to run the parts side by side on N stores",
     offsetof(settings_t, part)},
    {"threads", 0, ONCE__CLI_NUMBER, "N", "threads, or requests at once, in a race (default 8)", offsetof(settings_t, threads)},
    {"processes", 0, ONCE__CLI_NUMBER, "N", "processes in a race (default 4)", offsetof(settings_t, processes)},
    {"seed", 0, ONCE__CLI_NUMBER, "N", "repeat the random choices of an earlier run", offsetof(settings_t, seed)},
    {"exclusive", 0, ONCE__CLI_FLAG, NULL, "nothing else uses the store: compare totals exactly",
     offsetof(settings_t, exclusive)},
    {"stop", 0, ONCE__CLI_FLAG, NULL, "stop at the first failure", offsetof(settings_t, stop)},
    {"list", 0, ONCE__CLI_FLAG, NULL, "list the tests and exit", offsetof(settings_t, list)},
    {"method", 0, ONCE__CLI_TEXT, "METHOD", "of an API (http://...): the method of its requests (default POST)",
     offsetof(settings_t, api.method)},
    {"body", 0, ONCE__CLI_TEXT, "BODY", "the body of a request that has an effect; @FILE reads it",
     offsetof(settings_t, api.body)},
    {"header", 0, ONCE__CLI_LIST, "HEADER", "a header of every request, such as a credential; @FILE reads lines",
     offsetof(settings_t, api.headers)},
    {"other-header", 0, ONCE__CLI_LIST, "HEADER", "the same for a second caller, in place of those of the same name",
     offsetof(settings_t, api.other_headers)},
    {"other-body", 0, ONCE__CLI_TEXT, "BODY", "another body (default: the body with one more member)",
     offsetof(settings_t, api.other_body)},
    {"refused-body", 0, ONCE__CLI_TEXT, "BODY", "a body that is answered 4xx", offsetof(settings_t, api.refused_body)},
    {"failing-body", 0, ONCE__CLI_TEXT, "BODY", "a body that is answered 5xx", offsetof(settings_t, api.failing_body)},
    {"slow-body", 0, ONCE__CLI_TEXT, "BODY", "a body that takes a while", offsetof(settings_t, api.slow_body)},
    {"large", 0, ONCE__CLI_SIZE, "SIZE", "the size of a large body (default 256k; 0: none is sent)",
     offsetof(settings_t, api.large)},
    {"binary", 0, ONCE__CLI_FLAG, NULL, "send a body of all byte values, too", offsetof(settings_t, api.binary)},
    {"require", 0, ONCE__CLI_FLAG, NULL, "the API's documents demand a key", offsetof(settings_t, api.require)},
    {"key-header", 0, ONCE__CLI_TEXT, "NAME", "the header of the key (default Idempotency-Key)",
     offsetof(settings_t, api.key_header)},
    {"ignore-header", 0, ONCE__CLI_LIST, "NAME", "a header that a replay need not repeat; NAME* is a prefix",
     offsetof(settings_t, api.ignored_headers)},
    {"effect-url", 0, ONCE__CLI_TEXT, "URL", "where effects are counted: GET, JSON", offsetof(settings_t, api.effect_url)},
    {"effect-pointer", 0, ONCE__CLI_TEXT, "POINTER", "where the number is in it (RFC 6901), such as /count",
     offsetof(settings_t, api.effect_pointer)},
    {"profile", 0, ONCE__CLI_TEXT, "NAME", "draft07 (default) or stripe", offsetof(settings_t, api.profile)},
    {"plan", 0, ONCE__CLI_FLAG, NULL, "print what would be sent, and send nothing", offsetof(settings_t, api.plan)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "print one JSON object, with all requests and answers", offsetof(settings_t, api.json)},
    {"junit", 0, ONCE__CLI_TEXT, "FILE", "write the verdicts as JUnit's XML, too", offsetof(settings_t, api.junit)},
    {"timeout", 0, ONCE__CLI_DURATION, "TIME", "how long to wait for an answer (default 10s)",
     offsetof(settings_t, api.timeout)},
    {"patience", 0, ONCE__CLI_DURATION, "TIME", "how long to repeat what is answered \"not now\" (default 10s)",
     offsetof(settings_t, api.patience)},
    {"deadline", 0, ONCE__CLI_DURATION, "TIME", "how long the whole run may take (default 2m)",
     offsetof(settings_t, api.deadline)},
    {"requests", 0, ONCE__CLI_NUMBER, "N", "send no more than N requests (default 300)",
     offsetof(settings_t, api.requests)},
    {"cacert", 0, ONCE__CLI_TEXT, "FILE", "authorities of the API's certificate (PEM)",
     offsetof(settings_t, api.ca_file)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_conformance = {
    .name = "conformance",
    .operands = "[URL]",
    .summary = "judge a store, or an HTTP API that takes idempotency keys",
    .details =
        "A store: runs the suite that every store must pass, with records of its own under a\n"
        "random scope, which it removes where it can. It can run on a store that is in use.\n"
        "\n"
        "    once conformance local:./data\n"
        "\n"
        "An API: sends requests to http://HOST/PATH and judges the answers. Each first request\n"
        "has an effect there: use a test environment, and see --plan before.\n"
        "\n"
        "    once conformance http://localhost:8080/payments --body '{\"amount\": 4200}' \\\n"
        "        --effect-url /executions --effect-pointer /executions\n"
        "\n"
        "Exits with 1 if a rule is broken.\n",
    .store = ONCE__CLI_MAY_STORE,
    .options = options_table,
    .settings_size = sizeof(settings_t),
    .run = run_conformance,
};
