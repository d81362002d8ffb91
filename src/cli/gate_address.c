/*
 * once gate: where it listens, and where it sends requests to.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/gate.h"
#include "cli/text.h"
#include "cli/units.h"

#define HOST_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

static int read_port(const char *text, uint16_t *port)
{
    uint64_t number;

    if (once__cli_read_number(text, &number) != 0 || number == 0 || number > 65535) {
        return -1;
    }
    *port = (uint16_t)number;
    return 0;
}

/* Nothing that ends a path in a configuration, or that nginx would take for a variable or options behind it. */
static int is_plain_path(const char *path)
{
    for (const char *at = path; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == ':' || *at == '$') {
            return 0;
        }
    }
    return path[0] == '/';
}

static int read_unix(const char *path, once__gate_address_t *address)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&address->sockaddr;

    if (!is_plain_path(path) || strlen(path) >= sizeof(un->sun_path) ||
        strlen(path) + sizeof("unix:") > sizeof(address->text)) {
        return -1;
    }
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, strlen(path) + 1);
    address->sockaddr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
    snprintf(address->text, sizeof(address->text), "unix:%s", path);
    return 0;
}

static int read_ipv4(const char *host, uint16_t port, once__gate_address_t *address)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&address->sockaddr;
    char text[INET_ADDRSTRLEN];

    if (inet_pton(AF_INET, host, &in->sin_addr) != 1) {
        return -1;
    }
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    address->sockaddr_len = sizeof(*in);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    snprintf(address->text, sizeof(address->text), "%s:%u", text, port);
    return 0;
}

static int read_ipv6(const char *host, uint16_t port, once__gate_address_t *address)
{
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address->sockaddr;
    char text[INET6_ADDRSTRLEN];

    if (inet_pton(AF_INET6, host, &in6->sin6_addr) != 1) {
        return -1;
    }
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    address->sockaddr_len = sizeof(*in6);
    inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
    snprintf(address->text, sizeof(address->text), "[%s]:%u", text, port);
    return 0;
}

static int read_host_and_port(const char *text, once__gate_address_t *address)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : 0;
    uint16_t port;

    if (colon == NULL) {
        return read_port(text, &port) == 0 ? read_ipv4("127.0.0.1", port, address) : -1;
    }
    if (len >= sizeof(host) || read_port(colon + 1, &port) != 0) {
        return -1;
    }
    memcpy(host, text, len);
    host[len] = '\0';
    if (strcmp(host, "*") == 0) {
        return read_ipv4("0.0.0.0", port, address);
    }
    if (strcmp(host, "localhost") == 0) {
        return read_ipv4("127.0.0.1", port, address);
    }
    if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        return read_ipv6(host + 1, port, address);
    }
    return read_ipv4(host, port, address);
}

int once__gate_read_address(const once__cli_command_t *command, const char *option,
                            const char *text, once__gate_address_t *address)
{
    int code;

    memset(address, 0, sizeof(*address));
    if (strncmp(text, "unix:", 5) == 0) {
        code = read_unix(text + 5, address);
    } else {
        code = read_host_and_port(text, address);
    }
    if (code == 0) {
        return ONCE__CLI_OK;
    }
    return once__cli_usage(command,
                           "--%s needs an address such as 127.0.0.1:8080, [::1]:8080, *:8080 or "
                           "unix:/run/gate.sock, not \"%s\"",
                           option, once__cli_shown(text).text);
}

int once__gate_answers(const once__gate_address_t *address)
{
    const struct timeval patience = {0, 200000}; /* a filter may swallow it */
    int fd = socket(address->sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int answers =
        fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
        connect(fd, (const struct sockaddr *)&address->sockaddr, address->sockaddr_len) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return answers;
}

/* A gate that was killed leaves its socket file; nobody can listen on it any more, nor beside it. */
static void remove_stale(const once__gate_address_t *address)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)&address->sockaddr;
    struct stat st;

    if (un->sun_family == AF_UNIX && lstat(un->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        !once__gate_answers(address)) {
        unlink(un->sun_path);
    }
}

static const char *why_not(const once__gate_address_t *address, int error)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)&address->sockaddr;
    struct stat st;

    if (error != EADDRINUSE) {
        return strerror(error);
    }
    if (un->sun_family == AF_UNIX && lstat(un->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        return "there is a file that is no socket; choose another path, or remove it";
    }
    if (!once__gate_answers(address)) {
        return "it is in use, if only by an outgoing connection; choose another address";
    }
    return "another program does; choose another address";
}

int once__gate_check_address(const once__gate_address_t *address)
{
    int fd = socket(address->sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    int code = ONCE__CLI_OK;

    remove_stale(address);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (address->sockaddr.ss_family == AF_INET6) {
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
        }
    }
    if (fd < 0 ||
        bind(fd, (const struct sockaddr *)&address->sockaddr, address->sockaddr_len) != 0 ||
        listen(fd, 1) != 0) {
        once__cli_say("cannot listen on %s: %s", address->text, why_not(address, errno));
        code = ONCE__CLI_STORE;
    } else if (address->sockaddr.ss_family == AF_UNIX) {
        unlink(((const struct sockaddr_un *)&address->sockaddr)->sun_path);
    }
    if (fd >= 0) {
        close(fd);
    }
    return code;
}

static int bad_upstream(const once__cli_command_t *command, const char *why)
{
    return once__cli_usage(command,
                           "--upstream: %s; it is http://HOST[:PORT], https://HOST[:PORT] or "
                           "http://unix:/PATH",
                           why);
}

/* Splits HOST[:PORT]; an IPv6 address is in brackets, and stays in them. */
static const char *split_host(once__gate_upstream_t *upstream, const char *text, uint16_t *port)
{
    size_t len = text[0] == '[' ? strcspn(text, "]") + 1 : strcspn(text, ":");
    struct in6_addr ignored;
    char plain[64];

    if (len == 0 || len >= sizeof(upstream->host) || len > strlen(text)) {
        return "there is no host in it";
    }
    memcpy(upstream->host, text, len);
    upstream->host[len] = '\0';
    if (text[0] == '[') {
        snprintf(plain, sizeof(plain), "%.*s", (int)len - 2, text + 1);
        if (inet_pton(AF_INET6, plain, &ignored) != 1) {
            return "that is no IPv6 address";
        }
    } else if (strspn(upstream->host, HOST_CHARACTERS) != len) {
        return "a host name has letters, digits, dots and dashes";
    }
    if (text[len] != '\0' && (text[len] != ':' || read_port(text + len + 1, port) != 0)) {
        return "a port is a number from 1 to 65535";
    }
    return NULL;
}

static int is_known(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char plain[256];
    int code;

    snprintf(plain, sizeof(plain), "%s", host[0] == '[' ? host + 1 : host);
    plain[strcspn(plain, "]")] = '\0';
    code = getaddrinfo(plain, NULL, &hints, &found);
    if (code == 0) {
        freeaddrinfo(found);
        return 1;
    }
    once__cli_say("cannot find the upstream's host %s: %s", host, gai_strerror(code));
    return 0;
}

static int read_upstream_host(const once__cli_command_t *command, const char *text,
                              once__gate_upstream_t *upstream)
{
    uint16_t port = upstream->tls ? 443 : 80;
    char rest[512];
    size_t len = strcspn(text, "/?#");
    const char *wrong;

    if (strchr(text, '@') != NULL) {
        return bad_upstream(command, "a user name or password cannot be used");
    }
    if (text[len] != '\0' && strcmp(text + len, "/") != 0) {
        return bad_upstream(command, "requests keep their own path, so it cannot have one");
    }
    if (len >= sizeof(rest)) {
        return bad_upstream(command, "it is too long");
    }
    memcpy(rest, text, len);
    rest[len] = '\0';
    wrong = split_host(upstream, rest, &port);
    if (wrong != NULL) {
        return bad_upstream(command, wrong);
    }
    snprintf(upstream->server, sizeof(upstream->server), "%s:%u", upstream->host, port);
    snprintf(upstream->text, sizeof(upstream->text), "%s://%s", upstream->tls ? "https" : "http",
             upstream->server);
    return is_known(upstream->host) ? ONCE__CLI_OK : ONCE__CLI_STORE;
}

int once__gate_read_upstream(const once__cli_command_t *command, const char *url,
                             once__gate_upstream_t *upstream)
{
    memset(upstream, 0, sizeof(*upstream));
    if (strncmp(url, "http://unix:", 12) == 0) {
        if (!is_plain_path(url + 12) || strlen(url + 12) > 100) {
            return bad_upstream(command, "the path of a socket begins with / and has no colon");
        }
        snprintf(upstream->server, sizeof(upstream->server), "%s", url + 7);
        snprintf(upstream->host, sizeof(upstream->host), "localhost");
        snprintf(upstream->text, sizeof(upstream->text), "%s", url + 7);
        return ONCE__CLI_OK;
    }
    if (strncmp(url, "https://", 8) == 0) {
        upstream->tls = 1;
        return read_upstream_host(command, url + 8, upstream);
    }
    if (strncmp(url, "http://", 7) == 0) {
        return read_upstream_host(command, url + 7, upstream);
    }
    return bad_upstream(command, "it is no HTTP URL");
}
