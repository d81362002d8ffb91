/*
 * once consume: messages of a broker, handled once.
 */
#include "base/text.h"
#include "consume/consume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/config.h"
#include "cli/store.h"
#include "cli/text.h"
#include "cli/options.h"
#include "service/signals.h"

#define CONCURRENCY_MAX 1024
#define WINDOW_MAX      65535

typedef struct settings {
    const char *config;
    const char *to, *store, *subscriber, *id, *order, *fingerprint, *dead_letter;
    const char *ttl, *lease, *recover, *release;
    const char *content_type, *metrics, *log, *ca;
    once__cli_list_t headers;
    once__cli_number_t concurrency, window, tries, timeout, backoff, backoff_max, drain;
} settings_t;

static uint64_t or_default(const once__cli_number_t *number, uint64_t value)
{
    return number->given ? number->value : value;
}

static int read_order(const once__cli_call_t *call, const char *text, once__consume_order_t *order)
{
    static const char *const names[] = {"key", "partition", "none"};

    for (int i = 0; i < 3; i++) {
        if (text != NULL && strcmp(text, names[i]) == 0) {
            *order = (once__consume_order_t)i;
            return ONCE__CLI_OK;
        }
    }
    return text == NULL ? ONCE__CLI_OK
                        : once__cli_usage(call->command, "--order must be key, partition or none");
}

static int read_fingerprint(const once__cli_call_t *call, const char *text, once_body_mode_t *mode)
{
    int found = text != NULL ? once_body_mode_parse(text) : ONCE_BODY_MODE_EXACT;

    if (found < 0 || found == ONCE_BODY_MODE_MULTIPART) {
        return once__cli_usage(call->command, "--fingerprint must be exact, json or none");
    }
    *mode = (once_body_mode_t)found;
    return ONCE__CLI_OK;
}

static int read_settings(const once__cli_call_t *call, once__consume_settings_t *out)
{
    const settings_t *set = call->settings;
    int code;

    *out = (once__consume_settings_t){
        .from = call->operands[0],
        .to = set->to,
        .subscriber = set->subscriber,
        .id = set->id,
        .dead_letter = set->dead_letter,
        .content_type = set->content_type != NULL ? set->content_type : "application/json",
        .metrics = set->metrics,
        .ca_file = set->ca,
        .headers = set->headers.items,
        .header_count = set->headers.count,
        .concurrency = or_default(&set->concurrency, 16),
        .window = or_default(&set->window, 4096),
        .tries = (unsigned)or_default(&set->tries, 8),
        .timeout_ms = or_default(&set->timeout, 30000),
        .backoff_ms = or_default(&set->backoff, 200),
        .backoff_max_ms = or_default(&set->backoff_max, 30000),
        .shutdown_ms = or_default(&set->drain, 30000),
    };
    if (set->to == NULL) {
        return once__cli_usage(
            call->command, "missing --to URL: the handler, such as http://127.0.0.1:3000/events");
    }
    if (out->concurrency < 1 || out->concurrency > CONCURRENCY_MAX) {
        return once__cli_usage(call->command, "--concurrency must be between 1 and %d",
                               CONCURRENCY_MAX);
    }
    if (out->window < out->concurrency || out->window > WINDOW_MAX) {
        return once__cli_usage(call->command, "--window must be between --concurrency and %d",
                               WINDOW_MAX);
    }
    if (out->tries < 1 || out->timeout_ms < 1 || out->backoff_ms < 1) {
        return once__cli_usage(call->command,
                               "--tries, --timeout and --backoff must be greater than 0");
    }
    code = read_order(call, set->order, &out->order);
    return code == ONCE__CLI_OK ? read_fingerprint(call, set->fingerprint, &out->fingerprint)
                                : code;
}

/* Headers of the request itself, or ours: a message must not set them. */
static int is_own(const char *name)
{
    static const char *const own[] = {
        "Host",    "Connection", "Content-Length", "Transfer-Encoding", "TE",
        "Trailer", "Upgrade",    "Expect",         "Proxy-Connection",  "Idempotency-Key"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (strcasecmp(name, own[i]) == 0) {
            return 1;
        }
    }
    return strncasecmp(name, "Once-", 5) == 0;
}

static int check_headers(const once__cli_call_t *call)
{
    const once__cli_list_t *headers = &((const settings_t *)call->settings)->headers;

    for (size_t i = 0; i < headers->count; i++) {
        const char *name = headers->items[i];
        if (!once__is_token(name, strlen(name)) || strlen(name) > 99) {
            return once__cli_usage(call->command, "--header needs the name of a header, not \"%s\"",
                                   once__cli_shown(name).text);
        }
        if (is_own(name)) {
            return once__cli_usage(call->command, "--header: %s cannot come from a message",
                                   once__cli_shown(name).text);
        }
    }
    return ONCE__CLI_OK;
}

static int make_policy(const once__cli_call_t *call, once_policy_t **policy)
{
    const settings_t *set = call->settings;
    const char *const parts[][2] = {{"ttl", set->ttl != NULL ? set->ttl : "8d"},
                                    {"lease", set->lease},
                                    {"recover", set->recover},
                                    {"release", set->release}};
    once_error_t err = {0};

    *policy = once_policy_new();
    for (size_t i = 0; *policy != NULL && i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i][1] != NULL &&
            once_policy_set(*policy, parts[i][0], parts[i][1], &err) != ONCE_OK) {
            return once__cli_usage(call->command, "--%s: %s", parts[i][0], err.text);
        }
    }
    return *policy != NULL ? ONCE__CLI_OK : ONCE__CLI_STORE;
}

/* The handler completes the record in its own transaction: it has to be where such a transaction can reach it. */
static int check_store(const once__cli_call_t *call, const once_policy_t *policy)
{
    const char *url = once__cli_store_option(((const settings_t *)call->settings)->store);

    if (once_policy_recover(policy) == ONCE_RECOVER_TRANSACTIONAL &&
        strncmp(url, "postgres://", 11) != 0 && strncmp(url, "postgresql://", 13) != 0) {
        return once__cli_usage(call->command,
                               "--recover transactional needs a store that the handler's "
                               "transaction can reach: postgres://");
    }
    return ONCE__CLI_OK;
}

static int open_store(const settings_t *set, once_t **once)
{
    const char *options[11];
    const char *const pairs[][2] = {{"reap", "1m"}, /* unlike commands, it stays */
                                    {"ttl", set->ttl != NULL ? set->ttl : "8d"},
                                    {"lease", set->lease},
                                    {"recover", set->recover},
                                    {"release", set->release}};
    size_t count = 0;
    int code, error;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (pairs[i][1] != NULL) {
            options[count++] = pairs[i][0];
            options[count++] = pairs[i][1];
        }
    }
    options[count] = NULL;
    code = once__cli_open_url(once__cli_store_option(set->store), options, once);
    if (code == ONCE__CLI_OK) { /* a problem is reported here, not message by message */
        error = once__cli_wait_for_secrets(*once);
        if (error != ONCE_OK) {
            code = once__cli_store_failed("use the store", error);
        }
    }
    if (code != ONCE__CLI_OK) {
        once__cli_close(*once);
    }
    return code;
}

static int consume(const once__cli_call_t *call, once__consume_settings_t *with,
                   const once_policy_t *policy, const once__service_log_t *log)
{
    static const int codes[] = {
        [ONCE__CONSUME_ENDED] = ONCE__CLI_OK,
        [ONCE__CONSUME_WRONG] = ONCE__CLI_USAGE,
        [ONCE__CONSUME_FAILED] = ONCE__CLI_STORE,
        [ONCE__CONSUME_ABORTED] = ONCE__CLI_NO,
    };
    char error[400] = "";
    once_t *once = NULL;
    int code, end;

    with->signals = once__service_signals_open(); /* before any thread begins: they inherit it */
    if (with->signals < 0) {
        once__cli_say("cannot receive signals");
        return ONCE__CLI_STORE;
    }
    code = open_store(call->settings, &once);
    if (code == ONCE__CLI_OK) {
        end = once__consume_run(with, once, policy, log, error, sizeof(error));
        code = codes[end];
        if (end == ONCE__CONSUME_WRONG) {
            code = once__cli_usage(call->command, "%s", error);
        } else if (end == ONCE__CONSUME_FAILED) {
            once__cli_say("consume: %s", error);
        }
    }
    close(with->signals);
    return code;
}

static int run_consume(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    once__service_log_t log = {"consume", ONCE__SERVICE_LOG_INFO, STDOUT_FILENO};
    once__consume_settings_t with;
    once_policy_t *policy = NULL;
    int code = once__cli_check_values(call);

    if (code == ONCE__CLI_OK) {
        code = read_settings(call, &with);
    }
    if (code == ONCE__CLI_OK) {
        code = check_headers(call);
    }
    if (code == ONCE__CLI_OK) {
        code = once__cli_check_file(call, "cacert", set->ca);
    }
    if (code == ONCE__CLI_OK && set->log != NULL &&
        once__service_log_level_read(set->log, &log.level) != 0) {
        code = once__cli_usage(call->command, "--log must be debug, info, warn or error");
    }
    if (code == ONCE__CLI_OK) {
        code = make_policy(call, &policy);
    }
    if (code == ONCE__CLI_OK) {
        code = check_store(call, policy);
    }
    if (code == ONCE__CLI_OK) {
        code = consume(call, &with, policy, &log);
    }
    once_policy_free(policy);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"to", 0, ONCE__CLI_TEXT, "URL", "the handler: http://HOST[:PORT]/PATH, https://...", offsetof(settings_t, to)},
    {"store", 0, ONCE__CLI_TEXT, "URL", "the store (default ONCE_STORE, or local:./once-data)", offsetof(settings_t, store)},
    {"subscriber", 0, ONCE__CLI_TEXT, "NAME", "the scope of the records (default: the group or queue)",
     offsetof(settings_t, subscriber)},
    {"id", 0, ONCE__CLI_TEXT, "WHERE", "the event id: header:NAME, json:/NAME or json:/NAME+/NAME (default header:ce_id)",
     offsetof(settings_t, id)},
    {"fingerprint", 0, ONCE__CLI_TEXT, "HOW", "how to compare payloads: exact, json, none (default exact)",
     offsetof(settings_t, fingerprint)},
    {"order", 0, ONCE__CLI_TEXT, "HOW", "keep order per key, per partition, or not at all: key, partition, none (default key)",
     offsetof(settings_t, order)},
    {"concurrency", 0, ONCE__CLI_NUMBER, "N", "at most N requests at a time (default 16)", offsetof(settings_t, concurrency)},
    {"window", 0, ONCE__CLI_NUMBER, "N", "at most N messages in memory, an eighth of them for one key (default 4096)",
     offsetof(settings_t, window)},
    {"timeout", 0, ONCE__CLI_DURATION, "TIME", "timeout of a request (default 30s)", offsetof(settings_t, timeout)},
    {"tries", 0, ONCE__CLI_NUMBER, "N", "after N failed attempts a message becomes a dead letter (default 8)",
     offsetof(settings_t, tries)},
    {"backoff", 0, ONCE__CLI_DURATION, "TIME", "first pause between attempts; it doubles (default 200ms)",
     offsetof(settings_t, backoff)},
    {"backoff-max", 0, ONCE__CLI_DURATION, "TIME", "longest pause between attempts (default 30s)",
     offsetof(settings_t, backoff_max)},
    {"dead-letter", 0, ONCE__CLI_TEXT, "NAME", "topic or queue for dead letters (default: that of FROM with .dlq)",
     offsetof(settings_t, dead_letter)},
    {"ttl", 0, ONCE__CLI_TEXT, "TIME", "how long a message is recognised (default 8d)", offsetof(settings_t, ttl)},
    {"lease", 0, ONCE__CLI_TEXT, "TIME", "how long a silent consumer is presumed alive (default 30s)", offsetof(settings_t, lease)},
    {"recover", 0, ONCE__CLI_TEXT, "POLICY", "retry, hold or transactional (default retry)", offsetof(settings_t, recover)},
    {"release", 0, ONCE__CLI_TEXT, "STATUSES", "statuses the handler sends only before any effect, such as 503",
     offsetof(settings_t, release)},
    {"header", 0, ONCE__CLI_LIST, "NAME", "pass on this header of the message; may be repeated", offsetof(settings_t, headers)},
    {"content-type", 0, ONCE__CLI_TEXT, "TYPE", "for messages that have none (default application/json)",
     offsetof(settings_t, content_type)},
    {"cacert", 0, ONCE__CLI_TEXT, "FILE", "CA certificates to verify the handler with (default: the system's)",
     offsetof(settings_t, ca)},
    {"metrics", 0, ONCE__CLI_TEXT, "ADDRESS", "serve /metrics, /metrics.json, /health and /ready at PORT (of 127.0.0.1) or IP:PORT",
     offsetof(settings_t, metrics)},
    ONCE__CLI_CONFIG_OPTION(offsetof(settings_t, config)),
    {"log", 0, ONCE__CLI_TEXT, "LEVEL", "debug, info, warn, error (default info)", offsetof(settings_t, log)},
    {"drain", 0, ONCE__CLI_DURATION, "TIME", "how long to wait for running requests at the end (default 30s)",
     offsetof(settings_t, drain)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_consume = {
    .name = "consume",
    .operands = "FROM",
    .summary = "post each message of Kafka or RabbitMQ to a handler once",
    .details =
        "    once consume 'kafka://127.0.0.1:9092/orders?group=billing' --to "
        "http://127.0.0.1:3000/events\n"
        "\n"
        "FROM is kafka://[USER:PASSWORD@]HOST[:PORT],.../TOPIC?group=GROUP, or\n"
        "amqp[s]://[USER:PASSWORD@]HOST[:PORT]/VHOST/QUEUE. A message is recognised by its event\n"
        "id; duplicates are acknowledged and logged. 2xx: recorded, then acknowledged. 4xx: dead\n"
        "letter, except 408, 409, 425 and 429, which are retried like 5xx and timeouts.\n"
        "Logs JSON lines to standard output. INT and TERM finish running requests first.\n"
        "docs/consume.md says what is guaranteed.\n",
    .store = ONCE__CLI_NO_STORE,
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_consume,
};
