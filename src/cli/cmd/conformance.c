/*
 * once conformance: does this store keep the rules?
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

typedef struct settings {
    const char *filter, *part;
    once__cli_number_t threads;
    once__cli_number_t processes;
    once__cli_number_t seed;
    int exclusive;
    int stop;
    int list;
} settings_t;

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

static int run_conformance(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once_conformance_options_t options = ONCE_CONFORMANCE_INIT;
    const char *url = call->url != NULL ? call->url : getenv("ONCE_STORE");
    int code;

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
    {"threads", 0, ONCE__CLI_NUMBER, "N", "threads in a race (default 8)", offsetof(settings_t, threads)},
    {"processes", 0, ONCE__CLI_NUMBER, "N", "processes in a race (default 4)", offsetof(settings_t, processes)},
    {"seed", 0, ONCE__CLI_NUMBER, "N", "repeat the random choices of an earlier run", offsetof(settings_t, seed)},
    {"exclusive", 0, ONCE__CLI_FLAG, NULL, "nothing else uses the store: compare totals exactly",
     offsetof(settings_t, exclusive)},
    {"stop", 0, ONCE__CLI_FLAG, NULL, "stop at the first failure", offsetof(settings_t, stop)},
    {"list", 0, ONCE__CLI_FLAG, NULL, "list the tests and exit", offsetof(settings_t, list)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_conformance = {
    .name = "conformance",
    .operands = "[URL]",
    .summary = "run the conformance suite against a store",
    .details =
        "Uses records of its own under a random scope and removes them where it can, so it can\n"
        "run on a store that is in use. Exits with 1 if the store breaks a rule.\n",
    .store = ONCE__CLI_MAY_STORE,
    .options = options_table,
    .settings_size = sizeof(settings_t),
    .run = run_conformance,
};
