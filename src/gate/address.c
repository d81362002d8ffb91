/*
 * once gate: where it listens.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/units.h"
#include "gate/gate.h"
#include "cli/text.h"

int once__gate_read_port(const char *text, uint16_t *port)
{
    uint64_t number;

    if (once__number_parse(text, strlen(text), &number) != 0 || number == 0 || number > 65535) {
        return -1;
    }
    *port = (uint16_t)number;
    return 0;
}

int once__gate_is_plain_path(const char *path)
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

    if (!once__gate_is_plain_path(path) || strlen(path) >= sizeof(un->sun_path) ||
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
        return once__gate_read_port(text, &port) == 0 ? read_ipv4("127.0.0.1", port, address) : -1;
    }
    if (len >= sizeof(host) || once__gate_read_port(colon + 1, &port) != 0) {
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

int once__gate_is_local(const once__gate_address_t *address)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)&address->sockaddr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address->sockaddr;

    if (address->sockaddr.ss_family == AF_INET) {
        return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return address->sockaddr.ss_family == AF_UNIX || IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
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
        return "a file that is not a socket has this name; choose another path, or remove it";
    }
    if (!once__gate_answers(address)) {
        return "it is already in use, perhaps by an outgoing connection; choose another address";
    }
    return "it is already in use by another program; choose another address";
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
