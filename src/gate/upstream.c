/*
 * once gate: where it sends requests to.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/gate.h"
#include "cli/text.h"

#define HOST_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

static int bad_upstream(const once__cli_command_t *command, const char *option, const char *why)
{
    return once__cli_usage(command,
                           "--%s: %s; expected http://HOST[:PORT], https://HOST[:PORT], "
                           "http://unix:/PATH, or a port of this machine",
                           option, why);
}

/* Splits HOST[:PORT]; an IPv6 address is in brackets, and stays in them. */
static const char *split_host(once__gate_upstream_t *upstream, const char *text, uint16_t *port)
{
    size_t len = text[0] == '[' ? strcspn(text, "]") + 1 : strcspn(text, ":");
    struct in6_addr ignored;
    char plain[64];

    if (len == 0 || len >= sizeof(upstream->host) || len > strlen(text)) {
        return "it has no host";
    }
    memcpy(upstream->host, text, len);
    upstream->host[len] = '\0';
    if (text[0] == '[') {
        snprintf(plain, sizeof(plain), "%.*s", (int)len - 2, text + 1);
        if (inet_pton(AF_INET6, plain, &ignored) != 1) {
            return "the brackets do not contain an IPv6 address";
        }
    } else if (strspn(upstream->host, HOST_CHARACTERS) != len) {
        return "a host name may have only letters, digits, dots and dashes";
    }
    if (text[len] != '\0' &&
        (text[len] != ':' || once__gate_read_port(text + len + 1, port) != 0)) {
        return "a port must be between 1 and 65535";
    }
    return NULL;
}

/* The addresses of a host, which may be in brackets, or the error of getaddrinfo. */
static int resolve(const char *host, const char *port, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char plain[256];

    snprintf(plain, sizeof(plain), "%s", host[0] == '[' ? host + 1 : host);
    plain[strcspn(plain, "]")] = '\0';
    return getaddrinfo(plain, port, &hints, found);
}

static int is_known(const char *host)
{
    struct addrinfo *found = NULL;
    int code = resolve(host, NULL, &found);

    if (code == 0) {
        freeaddrinfo(found);
        return 1;
    }
    once__cli_say("cannot find the host %s: %s", host, gai_strerror(code));
    return 0;
}

int once__gate_upstream_answers(const once__gate_upstream_t *upstream)
{
    struct addrinfo *found = NULL;
    once__gate_address_t address;
    int answers = 0;

    if (strncmp(upstream->server, "unix:", 5) == 0) {
        return once__gate_read_address(NULL, "upstream", upstream->server, &address) ==
                   ONCE__CLI_OK &&
               once__gate_answers(&address);
    }
    if (resolve(upstream->host, strrchr(upstream->server, ':') + 1, &found) != 0) {
        return 0;
    }
    for (const struct addrinfo *at = found; at != NULL && !answers; at = at->ai_next) {
        memset(&address, 0, sizeof(address));
        memcpy(&address.sockaddr, at->ai_addr, at->ai_addrlen);
        address.sockaddr_len = at->ai_addrlen;
        answers = once__gate_answers(&address);
    }
    freeaddrinfo(found);
    return answers;
}

static int read_upstream_host(const once__cli_command_t *command, const char *option,
                              const char *text, once__gate_upstream_t *upstream)
{
    uint16_t port = upstream->tls ? 443 : 80;
    char rest[512];
    size_t len = strcspn(text, "/?#");
    const char *wrong;

    if (strchr(text, '@') != NULL) {
        return bad_upstream(command, option, "it must not have a user name or password");
    }
    if (text[len] != '\0' && strcmp(text + len, "/") != 0) {
        return bad_upstream(command, option,
                            "requests keep their own path, so it must not have one");
    }
    if (len >= sizeof(rest)) {
        return bad_upstream(command, option, "it is too long");
    }
    memcpy(rest, text, len);
    rest[len] = '\0';
    wrong = split_host(upstream, rest, &port);
    if (wrong != NULL) {
        return bad_upstream(command, option, wrong);
    }
    snprintf(upstream->server, sizeof(upstream->server), "%s:%u", upstream->host, port);
    snprintf(upstream->text, sizeof(upstream->text), "%s://%s", upstream->tls ? "https" : "http",
             upstream->server);
    return is_known(upstream->host) ? ONCE__CLI_OK : ONCE__CLI_STORE;
}

int once__gate_read_upstream(const once__cli_command_t *command, const char *option,
                             const char *url, once__gate_upstream_t *upstream)
{
    char local[32], wrong[128];
    const char *colon;
    uint16_t port;

    memset(upstream, 0, sizeof(*upstream));
    if (strncmp(url, "http://unix:", 12) == 0) {
        if (!once__gate_is_plain_path(url + 12) || strlen(url + 12) > 100) {
            return bad_upstream(command, option,
                                "the path of a socket must begin with / and have no colon");
        }
        snprintf(upstream->server, sizeof(upstream->server), "%s", url + 7);
        snprintf(upstream->host, sizeof(upstream->host), "localhost");
        snprintf(upstream->text, sizeof(upstream->text), "%s", url + 7);
        return ONCE__CLI_OK;
    }
    if (strncmp(url, "https://", 8) == 0) {
        upstream->tls = 1;
        return read_upstream_host(command, option, url + 8, upstream);
    }
    if (strncmp(url, "http://", 7) == 0) {
        return read_upstream_host(command, option, url + 7, upstream);
    }
    if (once__gate_read_port(url, &port) == 0) {
        snprintf(local, sizeof(local), "127.0.0.1:%u", port);
        return read_upstream_host(command, option, local, upstream);
    }
    colon = strrchr(url, ':');
    if (strstr(url, "//") == NULL && colon != NULL && colon > url &&
        once__gate_read_port(colon + 1, &port) == 0) {
        return read_upstream_host(command, option, url, upstream);
    }
    snprintf(wrong, sizeof(wrong), "\"%s\" is not an HTTP URL", once__cli_shown(url).text);
    return bad_upstream(command, option, wrong);
}
