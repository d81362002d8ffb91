/*
 * once ui: a page that shows operations and lets people decide the stuck ones.
 */
#include "ui/ui.h"

#include <curl/curl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/config.h"
#include "cli/letters.h"
#include "cli/store.h"
#include "cli/text.h"
#include "service/notify.h"
#include "service/signals.h"

#define TICK_MS 1000

/* http://HOST[:PORT], with nothing behind it. */
static int is_origin(const char *text)
{
    const char *host = strstr(text, "://");

    return (strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0) &&
           host[3] != '\0' && strcspn(host + 3, "/?#@ \\") == strlen(host + 3) &&
           strlen(text) < 290;
}

static int check_urls(const once__cli_call_t *call, const char *option,
                      const once__cli_list_t *urls)
{
    for (size_t i = 0; i < urls->count; i++) {
        if (strncmp(urls->items[i], "http://", 7) != 0 &&
            strncmp(urls->items[i], "https://", 8) != 0) {
            return once__cli_usage(call->command, "--%s needs the URL of its metrics: http://...",
                                   option);
        }
    }
    return ONCE__CLI_OK;
}

static int check_letters(const once__cli_call_t *call, const once__cli_list_t *urls)
{
    for (size_t i = 0; i < urls->count; i++) {
        once__cli_replay_t replay = {.from = urls->items[i]};
        char error[400];
        if (once__cli_replay_check(&replay, error, sizeof(error)) != 0) {
            return once__cli_usage(call->command, "--dlq needs kafka://HOST[:PORT]/NAME.dlq or "
                                                  "amqp[s]://HOST[:PORT]/VHOST/NAME.dlq");
        }
    }
    return ONCE__CLI_OK;
}

static int check_prefix(const once__cli_call_t *call, once__ui_t *ui)
{
    const char *prefix = ui->set->prefix != NULL ? ui->set->prefix : "";
    size_t len = strlen(prefix);

    while (len > 0 && prefix[len - 1] == '/') {
        len--;
    }
    if (len >= sizeof(ui->prefix) || (len > 0 && prefix[0] != '/') ||
        strspn(prefix, "/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") !=
            strlen(prefix)) {
        return once__cli_usage(call->command, "--prefix needs a path such as /once");
    }
    memcpy(ui->prefix, prefix, len);
    ui->prefix[len] = '\0';
    return ONCE__CLI_OK;
}

static int check_settings(const once__cli_call_t *call, once__ui_t *ui)
{
    const once__ui_settings_t *set = ui->set;
    int code = once__cli_check_values(call);

    if (code == ONCE__CLI_OK && set->role != NULL && strcmp(set->role, "view") != 0 &&
        strcmp(set->role, "operate") != 0) {
        code = once__cli_usage(call->command, "--role is view or operate");
    }
    if (code == ONCE__CLI_OK && set->token_file != NULL &&
        (set->role != NULL || set->trust_header != NULL)) {
        code = once__cli_usage(call->command, "the token file says who may do what: give it alone, "
                                              "without --role and --trust-header");
    }
    if (code == ONCE__CLI_OK && set->trust_header != NULL &&
        !once__is_token(set->trust_header, strlen(set->trust_header))) {
        code = once__cli_usage(call->command, "--trust-header needs the name of a header");
    }
    for (size_t i = 0; code == ONCE__CLI_OK && i < set->origins.count; i++) {
        if (!is_origin(set->origins.items[i])) {
            code = once__cli_usage(call->command,
                                   "--origin needs https://HOST[:PORT], without a path");
        }
    }
    code = code == ONCE__CLI_OK ? check_urls(call, "gate", &set->gates) : code;
    code = code == ONCE__CLI_OK ? check_urls(call, "relay", &set->relays) : code;
    code = code == ONCE__CLI_OK ? check_urls(call, "consume", &set->consumers) : code;
    code = code == ONCE__CLI_OK ? check_letters(call, &set->letters) : code;
    return code == ONCE__CLI_OK ? check_prefix(call, ui) : code;
}

/* Where to look. The token is behind a #, which browsers do not send: it reaches no log. */
static int announce(once__ui_t *ui, unsigned port)
{
    const char *listen = ui->set->listen != NULL ? ui->set->listen : "127.0.0.1:8090";
    const char *colon = strrchr(listen, ':');
    char token[ONCE__UI_SECRET_SIZE];
    int code = once__ui_sessions_load(ui->sessions, token);

    if (code != ONCE__CLI_OK) {
        return code;
    }
    if (ui->set->origins.count > 0) {
        printf("once ui: %s%s/", ui->set->origins.items[0], ui->prefix);
    } else {
        printf("once ui: http://%.*s:%u%s/", colon != NULL ? (int)(colon - listen) : 9,
               colon != NULL ? listen : "127.0.0.1", port, ui->prefix);
    }
    if (token[0] != '\0') {
        printf("#%s (for one browser, within an hour; a new one: kill -HUP %ld)", token,
               (long)getpid());
    }
    puts("");
    fflush(stdout);
    explicit_bzero(token, sizeof(token));
    return ONCE__CLI_OK;
}

static int serve(once__ui_t *ui, int signals)
{
    unsigned port = 0;
    once__ui_server_t *server = once__ui_server_start(ui, &port);
    int code = server != NULL ? announce(ui, port) : ONCE__CLI_STORE, number = 0;

    while (code == ONCE__CLI_OK && number != SIGINT && number != SIGTERM) {
        struct pollfd fd = {signals, POLLIN, 0};
        (void)poll(&fd, 1, TICK_MS);
        number = once__service_signals_take(signals);
        if (number == SIGHUP) {
            (void)announce(ui, port); /* a file that cannot be read leaves the tokens as they are */
        }
        once__ui_server_tick(server);
        (void)once__service_notify_turn(); /* TICK_MS is soon enough */
    }
    once__service_notify_stopping();
    once__ui_server_stop(server);
    return code;
}

/* The handle that is opened last is the one that errors are explained by. */
static int open_all(const once__cli_call_t *call, once__ui_t *ui, once_t **counting)
{
    int code = once__cli_open_threaded(call, counting);

    if (code == ONCE__CLI_OK && ui->set->letters.count > 0) {
        code = once__cli_open_threaded(call, &ui->replaying);
    }
    return code == ONCE__CLI_OK ? once__cli_open_threaded(call, &ui->once) : code;
}

static int run_ui(const once__cli_call_t *call)
{
    once__ui_t ui = {.set = call->settings, .url = call->url};
    once_t *counting = NULL;
    int code = check_settings(call, &ui), signals;

    if (code != ONCE__CLI_OK) {
        return code;
    }
    signals = once__service_signals_open(); /* before any thread begins: they inherit it */
    if (signals < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        once__cli_say("cannot receive signals");
        return ONCE__CLI_STORE;
    }
    code = open_all(call, &ui, &counting);
    if (code == ONCE__CLI_OK) {
        (void)pthread_mutex_init(&ui.deciding, NULL);
        (void)pthread_mutex_init(&ui.asking, NULL);
        ui.sessions = once__ui_sessions_new(ui.set);
        ui.watch = once__ui_watch_start(&ui, counting);
        if (ui.sessions != NULL && ui.watch != NULL) {
            code = serve(&ui, signals);
        } else {
            once__cli_say("out of memory");
            code = ONCE__CLI_STORE;
        }
        once__ui_watch_stop(ui.watch);
        once__ui_sessions_free(ui.sessions);
        (void)pthread_mutex_destroy(&ui.asking);
        (void)pthread_mutex_destroy(&ui.deciding);
    }
    once__cli_close(ui.once);
    once__cli_close(ui.replaying);
    once__cli_close(counting);
    (void)close(signals);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    ONCE__CLI_CONFIG_OPTION(offsetof(once__ui_settings_t, config)),
    {"listen", 0, ONCE__CLI_TEXT, "ADDRESS", "PORT (of 127.0.0.1), IP:PORT or [IPV6]:PORT (default 8090)",
     offsetof(once__ui_settings_t, listen)},
    {"role", 0, ONCE__CLI_TEXT, "ROLE", "what the printed address, or a name from --trust-header, may do: view (default), operate",
     offsetof(once__ui_settings_t, role)},
    {"token-file", 0, ONCE__CLI_TEXT, "FILE", "who may do what: lines of ROLE TOKEN NAME, instead of a printed token",
     offsetof(once__ui_settings_t, token_file)},
    {"trust-header", 0, ONCE__CLI_TEXT, "NAME", "the header in which a proxy says who it is, instead of a token",
     offsetof(once__ui_settings_t, trust_header)},
    {"origin", 0, ONCE__CLI_LIST, "URL", "the address at which a proxy serves the page: https://HOST[:PORT]; may be repeated",
     offsetof(once__ui_settings_t, origins)},
    {"prefix", 0, ONCE__CLI_TEXT, "PATH", "serve it below this path, such as /once", offsetof(once__ui_settings_t, prefix)},
    {"gate", 0, ONCE__CLI_LIST, "URL", "metrics of a gate: http://HOST:PORT/metrics; may be repeated", offsetof(once__ui_settings_t, gates)},
    {"relay", 0, ONCE__CLI_LIST, "URL", "metrics of a relay; may be repeated", offsetof(once__ui_settings_t, relays)},
    {"consume", 0, ONCE__CLI_LIST, "URL", "metrics of a consumer; may be repeated", offsetof(once__ui_settings_t, consumers)},
    {"dlq", 0, ONCE__CLI_LIST, "URL", "dead letters to show and to replay: a topic or queue NAME.dlq; may be repeated",
     offsetof(once__ui_settings_t, letters)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_ui = {
    .name = "ui",
    .operands = "[URL]",
    .summary = "serve a page: see operations, decide the stuck ones",
    .details =
        "    once ui ./once-data --role operate --gate http://127.0.0.1:9090/metrics\n"
        "\n"
        "Prints its address with a token for one browser; HUP prints a new one, or reads the\n"
        "token file again. Decisions follow the rules of keys settle and are added to the\n"
        "audit trail. The store of --dlq is the consumer's, which has the records of its\n"
        "messages. docs/ui.md says what to look at when you are called.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(once__ui_settings_t),
    .run = run_ui,
};
