/*
 * once relay: events of the outbox to a broker or an HTTP endpoint.
 */
#include "relay/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/publish.h"
#include "cli/commands.h"
#include "cli/config.h"
#include "cli/pg.h"
#include "cli/text.h"
#include "cli/options.h"

#define LEASE_MS   10000
#define POLL_MS    500
#define DRAIN_MS   10000
#define TIMEOUT_MS 30000
#define GIVE_UP_MS 86400000
#define TRIES      10
#define WINDOW     50000
#define REQUESTS   16

typedef struct settings {
    const char *config;
    const char *source, *metrics, *secret_file, *ca_file, *log;
    once__cli_number_t lease, poll, timeout, give_up, drain, tries, window, requests;
    int until_empty, trace, progress, is_unsigned;
} settings_t;

static int is_postgres(const char *url)
{
    return strncmp(url, "postgres://", 11) == 0 || strncmp(url, "postgresql://", 13) == 0;
}

/* Both may come from the environment: a command line can be seen by other users, and URLs hold passwords. */
static int take_urls(const once__cli_call_t *call, const char **from, const char **to)
{
    size_t taken = 0;

    *from = getenv("ONCE_STORE");
    *to = getenv("ONCE_TO");
    if (taken < call->operand_count && is_postgres(call->operands[taken])) {
        *from = call->operands[taken++];
    }
    if (taken < call->operand_count) {
        *to = call->operands[taken++];
    }
    if (taken < call->operand_count) {
        return once__cli_usage(call->command,
                               "the operands are FROM and then TO, and FROM is postgres://...");
    }
    if (*from == NULL || !is_postgres(*from)) {
        return once__cli_usage(call->command,
                               "missing FROM: give a URL postgres://..., or set ONCE_STORE");
    }
    if (*to == NULL || !once__broker_publisher_knows(*to)) {
        return once__cli_usage(call->command, "missing TO: give a URL kafka://, amqp://, amqps://, "
                                              "http:// or https://, or set ONCE_TO");
    }
    return ONCE__CLI_OK;
}

/* The receiver of a webhook must be able to verify its sender: not signing is a decision, not a default. */
static int check_signing(const once__cli_call_t *call, const char *to)
{
    const settings_t *set = call->settings;
    int is_http = strncmp(to, "http", 4) == 0;

    if (!is_http && (set->secret_file != NULL || set->is_unsigned)) {
        return once__cli_usage(call->command,
                               "--secret-file and --unsigned are for webhooks: http[s]://");
    }
    if (is_http && (set->secret_file != NULL) == set->is_unsigned) {
        return once__cli_usage(
            call->command, set->is_unsigned ? "give --secret-file FILE or --unsigned, not both"
                                            : "webhooks need --secret-file FILE (\"once "
                                              "secret webhook\" makes the secret), or --unsigned");
    }
    return ONCE__CLI_OK;
}

static uint64_t value_of(const once__cli_number_t *number, uint64_t otherwise)
{
    return number->given ? number->value : otherwise;
}

static int check(const once__cli_call_t *call, const once__relay_options_t *options)
{
    if (options->lease_ms < 1000 || options->lease_ms > 600000) {
        return once__cli_usage(call->command, "--lease must be between 1s and 10m");
    }
    if (options->poll_ms < 1 || options->poll_ms > 60000) {
        return once__cli_usage(call->command, "--poll must be between 1ms and 60s");
    }
    if (options->tries < 1 || options->window < 64 || options->window > 1000000 ||
        options->connections < 1 || options->connections > 1024 || options->timeout_ms < 1) {
        return once__cli_usage(
            call->command, "--tries must be at least 1, --window 64 to 1000000, --requests 1 to "
                           "1024, --timeout greater than 0");
    }
    return ONCE__CLI_OK;
}

static int exit_code(const once__cli_call_t *call, once__relay_end_t end, const char *error)
{
    if (end == ONCE__RELAY_DONE) {
        return ONCE__CLI_OK;
    }
    once__cli_say("%s: %s", call->command->name, error);
    if (end == ONCE__RELAY_USAGE) {
        return ONCE__CLI_USAGE;
    }
    return end == ONCE__RELAY_RIVAL ? ONCE__CLI_REFUSED : ONCE__CLI_STORE;
}

static int run_relay(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once__relay_options_t options = {
        .source = set->source,
        .metrics = set->metrics,
        .secret_file = set->secret_file,
        .ca_file = set->ca_file,
        .lease_ms = value_of(&set->lease, LEASE_MS),
        .poll_ms = value_of(&set->poll, POLL_MS),
        .timeout_ms = value_of(&set->timeout, TIMEOUT_MS),
        .give_up_ms = value_of(&set->give_up, GIVE_UP_MS),
        .drain_ms = value_of(&set->drain, DRAIN_MS),
        .tries = (unsigned)value_of(&set->tries, TRIES),
        .window = (unsigned)value_of(&set->window, WINDOW),
        .connections = (unsigned)value_of(&set->requests, REQUESTS),
        .until_empty = set->until_empty,
        .trace = set->trace,
        .progress = set->progress || (isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO)),
        .level = ONCE__SERVICE_LOG_INFO,
    };
    const char *from;
    char *libpq_url;
    char error[600] = "";
    int code = once__cli_check_values(call);

    if (code != ONCE__CLI_OK || (code = take_urls(call, &from, &options.to)) != ONCE__CLI_OK ||
        (code = check_signing(call, options.to)) != ONCE__CLI_OK ||
        (code = once__cli_check_file(call, "cacert", set->ca_file)) != ONCE__CLI_OK ||
        (code = check(call, &options)) != ONCE__CLI_OK) {
        return code;
    }
    if (set->log != NULL && once__service_log_level_read(set->log, &options.level) != 0) {
        return once__cli_usage(call->command, "--log must be debug, info, warn or error");
    }
    libpq_url = once__cli_pg_libpq_url(from);
    if (libpq_url == NULL) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    options.from = libpq_url;
    code = exit_code(call, once__relay_run(&options, error, sizeof(error)), error);
    free(libpq_url);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"source", 0, ONCE__CLI_TEXT, "URI", "ce_source of all messages (default urn:once:DATABASE)", offsetof(settings_t, source)},
    {"secret-file", 0, ONCE__CLI_TEXT, "FILE", "sign webhooks with the secrets in FILE, which only its owner may read",
     offsetof(settings_t, secret_file)},
    {"unsigned", 0, ONCE__CLI_FLAG, NULL, "do not sign webhooks", offsetof(settings_t, is_unsigned)},
    {"cacert", 0, ONCE__CLI_TEXT, "FILE", "CA certificates to verify TO with (default: the system's)",
     offsetof(settings_t, ca_file)},
    {"tries", 0, ONCE__CLI_NUMBER, "N", "give up an event after N failed attempts (default 10)", offsetof(settings_t, tries)},
    {"give-up", 0, ONCE__CLI_DURATION, "TIME", "or when its destination accepted nothing for this long (default 24h)",
     offsetof(settings_t, give_up)},
    {"timeout", 0, ONCE__CLI_DURATION, "TIME", "timeout of one attempt, HTTP and AMQP (default 30s)",
     offsetof(settings_t, timeout)},
    {"requests", 0, ONCE__CLI_NUMBER, "N", "at most N HTTP requests at a time (default 16)", offsetof(settings_t, requests)},
    {"lease", 0, ONCE__CLI_DURATION, "TIME", "others take over from a relay silent for this long (default 10s)",
     offsetof(settings_t, lease)},
    {"poll", 0, ONCE__CLI_DURATION, "TIME", "how often to look for events without a notification (default 500ms)",
     offsetof(settings_t, poll)},
    {"window", 0, ONCE__CLI_NUMBER, "N", "at most N events in memory (default 50000)", offsetof(settings_t, window)},
    {"drain", 0, ONCE__CLI_DURATION, "TIME", "how long to wait for confirmations at the end (default 10s)",
     offsetof(settings_t, drain)},
    {"metrics", 0, ONCE__CLI_TEXT, "ADDRESS", "serve /metrics, /metrics.json, /health and /ready at PORT (of 127.0.0.1) or IP:PORT",
     offsetof(settings_t, metrics)},
    ONCE__CLI_CONFIG_OPTION(offsetof(settings_t, config)),
    {"log", 0, ONCE__CLI_TEXT, "LEVEL", "debug (every event), info, warn, error (default info)", offsetof(settings_t, log)},
    {"progress", 0, ONCE__CLI_FLAG, NULL, "show on standard error how the backlog drains", offsetof(settings_t, progress)},
    {"trace", 0, ONCE__CLI_FLAG, NULL, "remember in the database where events were published, for \"once trace\"",
     offsetof(settings_t, trace)},
    {"until-empty", 0, ONCE__CLI_FLAG, NULL, "exit when nothing is left to publish", offsetof(settings_t, until_empty)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_relay = {
    .name = "relay",
    .operands = "[FROM] [TO]",
    .summary = "publish outbox events at least once, in order per key",
    .details =
        "FROM is postgres://... or ONCE_STORE, TO is one of these or ONCE_TO:\n"
        "  kafka://HOST[:PORT],...[/TEMPLATE][?property=value&...]\n"
        "  amqp[s]://[USER:PASSWORD@]HOST[:PORT][/VHOST]/EXCHANGE[?routing_key=TEMPLATE]\n"
        "  http[s]://HOST[:PORT]/TEMPLATE\n"
        "A template may use {topic}, {type} and {key}. Webhooks are signed as\n"
        "Standard Webhooks defines; put what \"once secret webhook\" prints into --secret-file.\n\n"
        "Events that once.emit wrote in a committed transaction are published at least once, in\n"
        "order per key, with the event id in the message, and then removed. Several relays share\n"
        "the work; one that dies or stops is replaced when its lease ends. Logs JSON lines to\n"
        "standard output. INT and TERM stop it; a second one does not wait.\n",
    .operands_max = 2,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_relay,
};
