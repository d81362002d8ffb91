/*
 * once health: whether a program answers. For health checks in a container, which has no other client.
 */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include <once/once.h>

#include "cli/commands.h"
#include "cli/text.h"

#define TIMEOUT_MS 5000
#define LONGEST_MS 3600000

typedef struct settings {
    once__cli_number_t timeout;
} settings_t;

static size_t drop(const char *bytes, size_t size, size_t count, void *data)
{
    (void)bytes;
    (void)data;
    return size * count;
}

/* Returns whether curl takes the address: http://, https://, or unix:PATH for /health at that socket. */
static int set_address(CURL *easy, const char *url)
{
    if (strncmp(url, "unix:", 5) == 0) {
        return curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, url + 5) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_URL, "http://localhost/health") == CURLE_OK;
    }
    return curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK;
}

static int ask(CURL *easy, const char *url, uint64_t timeout_ms)
{
    char trouble[CURL_ERROR_SIZE] = "";
    long status = 0;
    CURLcode code;

    if (easy == NULL || !set_address(easy, url)) {
        once__cli_say("out of memory");
        return ONCE__CLI_STORE;
    }
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, trouble);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "once/" ONCE_VERSION);
    code = curl_easy_perform(easy);
    if (code != CURLE_OK) {
        once__cli_say("%s: %s", once__cli_shown_url(url).text,
                      trouble[0] != '\0' ? trouble : curl_easy_strerror(code));
        return ONCE__CLI_NO;
    }
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        once__cli_say("%s: answered %ld", once__cli_shown_url(url).text, status);
        return ONCE__CLI_NO;
    }
    puts("ok");
    return ONCE__CLI_OK;
}

static int run_health(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    const char *url = call->operands[0];
    uint64_t timeout_ms = set->timeout.given ? set->timeout.value : TIMEOUT_MS;
    CURL *easy;
    int code;

    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0 &&
        strncmp(url, "unix:/", 6) != 0) {
        return once__cli_usage(call->command,
                               "give http://HOST:PORT/PATH or unix:/PATH of a socket, not \"%s\"",
                               once__cli_shown_url(url).text);
    }
    if (timeout_ms == 0 || timeout_ms > LONGEST_MS) {
        return once__cli_usage(call->command, "--timeout must be between 1ms and 1h");
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        once__cli_say("libcurl cannot be used");
        return ONCE__CLI_STORE;
    }
    easy = curl_easy_init();
    code = ask(easy, url, timeout_ms);
    curl_easy_cleanup(easy);
    curl_global_cleanup();
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"timeout", 0, ONCE__CLI_DURATION, "TIME", "how long to wait for the answer (default 5s)",
     offsetof(settings_t, timeout)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_health = {
    .name = "health",
    .operands = "ADDRESS",
    .summary = "ask a running gate, relay, consumer or server whether it works",
    .details =
        "    once health http://127.0.0.1:9090/ready\n"
        "    once health unix:/run/once/serve.sock\n"
        "\n"
        "Exits with 0 if it answers 200, otherwise with 1. For health checks in containers,\n"
        "where there is no other client. /health and /ready are at the address of --status\n"
        "or --metrics; a socket of \"once serve\" is asked for /health.\n",
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_health,
};
