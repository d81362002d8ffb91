/*
 * once gate: addresses. Where it listens, where requests go (--upstream), and what may be asked before a replay (--auth).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/units.h"
#include "base/url.h"
#include "cli/text.h"
#include "gate/internal.h"

#define HOST_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

/* A path that means nothing else to nginx. */
static int is_plain_path(const char *path)
{
    for (const char *at = path; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == ':' || *at == '$') {
            return 0;
        }
    }
    return path[0] == '/';
}

static int is_port(const char *text)
{
    uint64_t number;

    return once__number_parse(text, strlen(text), &number) == 0 && number > 0 && number <= 65535;
}

/* ------------------------------------------------------------------------------------------------------------ listening */

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

/* An address of IPv6 is in brackets, and nothing else is. */
static int read_ip(const char *text, once__gate_address_t *address)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&address->sockaddr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address->sockaddr;
    char copy[128], shown[INET6_ADDRSTRLEN];
    once__url_host_t host;

    if (snprintf(copy, sizeof(copy), is_port(text) ? "127.0.0.1:%s" : "%s", text) >=
            (int)sizeof(copy) ||
        once__url_host_read(&host, copy) != NULL || host.port == 0) {
        return -1;
    }
    host.name = strcmp(host.name, "*") == 0           ? "0.0.0.0"
                : strcmp(host.name, "localhost") == 0 ? "127.0.0.1"
                                                      : host.name;
    if (text[0] == '[') {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(host.port);
        address->sockaddr_len = sizeof(*in6);
        if (inet_pton(AF_INET6, host.name, &in6->sin6_addr) != 1) {
            return -1;
        }
        inet_ntop(AF_INET6, &in6->sin6_addr, shown, sizeof(shown));
    } else {
        in->sin_family = AF_INET;
        in->sin_port = htons(host.port);
        address->sockaddr_len = sizeof(*in);
        if (inet_pton(AF_INET, host.name, &in->sin_addr) != 1) {
            return -1;
        }
        inet_ntop(AF_INET, &in->sin_addr, shown, sizeof(shown));
    }
    snprintf(address->text, sizeof(address->text), text[0] == '[' ? "[%s]:%u" : "%s:%u", shown,
             host.port);
    return 0;
}

int once__gate_read_address(const char *option, const char *text, once__gate_address_t *address)
{
    int is_unix = strncmp(text, "unix:", 5) == 0;

    memset(address, 0, sizeof(*address));
    if ((is_unix ? read_unix(text + 5, address) : read_ip(text, address)) == 0) {
        return ONCE__CLI_OK;
    }
    return ONCE__GATE_USAGE("--%s needs an address such as 127.0.0.1:8080, [::1]:8080, *:8080 or "
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

static int answers(const void *sockaddr, socklen_t len, int family)
{
    const struct timeval patience = {0, 200000}; /* a firewall may swallow it */
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int answered = fd >= 0 &&
                   setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
                   connect(fd, sockaddr, len) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return answered;
}

int once__gate_answers(const once__gate_address_t *address)
{
    return answers(&address->sockaddr, address->sockaddr_len, address->sockaddr.ss_family);
}

/* A gate that was killed leaves its socket file, and no program can listen on that again. */
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
    return once__gate_answers(address)
               ? "it is already in use by another program; choose another address"
               : "it is already in use, perhaps by an outgoing connection; choose another address";
}

int once__gate_check_address(const once__gate_address_t *address)
{
    int fd = socket(address->sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    int code = ONCE__CLI_OK;

    remove_stale(address);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    }
    if (fd >= 0 && address->sockaddr.ss_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
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

/* ------------------------------------------------------------------------------------------------------------- upstream */

static int bad_upstream(const char *option, const char *why)
{
    return ONCE__GATE_USAGE("--%s: %s; expected http://HOST[:PORT], https://HOST[:PORT], "
                            "http://unix:/PATH, or a port of this machine",
                            option, why);
}

/* Reads HOST[:PORT]; the brackets of IPv6 stay. Returns NULL, or what is wrong. */
static const char *read_host(once__gate_upstream_t *upstream, char *text)
{
    int is_ipv6 = text[0] == '[';
    once__url_host_t host;
    struct in6_addr ignored;
    const char *wrong = once__url_host_read(&host, text);

    if (wrong != NULL) {
        return strstr(wrong, "port") != NULL ? "a port must be between 1 and 65535"
                                             : "it has no host";
    }
    if (is_ipv6 && inet_pton(AF_INET6, host.name, &ignored) != 1) {
        return "the brackets do not contain an IPv6 address";
    }
    if (!is_ipv6 && host.name[strspn(host.name, HOST_CHARACTERS)] != '\0') {
        return "a host name may have only letters, digits, dots and dashes";
    }
    snprintf(upstream->host, sizeof(upstream->host), is_ipv6 ? "[%s]" : "%s", host.name);
    snprintf(upstream->server, sizeof(upstream->server), "%s:%u", upstream->host,
             host.port != 0  ? (unsigned)host.port
             : upstream->tls ? 443U
                             : 80U);
    snprintf(upstream->text, sizeof(upstream->text), "%s://%s", upstream->tls ? "https" : "http",
             upstream->server);
    return NULL;
}

/* The addresses of the server, or the error of getaddrinfo. */
static int resolve(const once__gate_upstream_t *upstream, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char host[256];

    snprintf(host, sizeof(host), "%s", upstream->host + (upstream->host[0] == '['));
    host[strcspn(host, "]")] = '\0';
    return getaddrinfo(host, strrchr(upstream->server, ':') + 1, &hints, found);
}

static int read_authority(const char *option, const char *text, once__gate_upstream_t *upstream)
{
    struct addrinfo *found = NULL;
    char authority[512];
    size_t len = strcspn(text, "/?#");
    const char *wrong = NULL;
    int code;

    if (strchr(text, '@') != NULL) {
        wrong = "it must not have a user name or password";
    } else if (text[len] != '\0' && strcmp(text + len, "/") != 0) {
        wrong = "requests keep their own path, so it must not have one";
    } else if (len >= sizeof(authority)) {
        wrong = "it is too long";
    } else {
        snprintf(authority, sizeof(authority), "%.*s", (int)len, text);
        wrong = read_host(upstream, authority);
    }
    if (wrong != NULL) {
        return bad_upstream(option, wrong);
    }
    code = resolve(upstream, &found);
    if (code != 0) {
        once__cli_say("cannot find the host %s: %s", upstream->host, gai_strerror(code));
        return ONCE__CLI_STORE;
    }
    freeaddrinfo(found);
    return ONCE__CLI_OK;
}

static int read_socket(const char *option, const char *server, once__gate_upstream_t *upstream)
{
    const char *path = server + strlen("unix:");

    if (!is_plain_path(path) || strlen(path) > 100) {
        return bad_upstream(option, "the path of a socket must begin with / and have no colon");
    }
    snprintf(upstream->server, sizeof(upstream->server), "%s", server);
    snprintf(upstream->host, sizeof(upstream->host), "localhost");
    snprintf(upstream->text, sizeof(upstream->text), "%s", server);
    return ONCE__CLI_OK;
}

int once__gate_read_upstream(const char *option, const char *url, once__gate_upstream_t *upstream)
{
    const char *colon = strrchr(url, ':');
    char text[128];

    memset(upstream, 0, sizeof(*upstream));
    if (strncmp(url, "http://unix:", 12) == 0) {
        return read_socket(option, url + 7, upstream);
    }
    upstream->tls = strncmp(url, "https://", 8) == 0;
    if (upstream->tls || strncmp(url, "http://", 7) == 0) {
        return read_authority(option, url + 7 + upstream->tls, upstream);
    }
    if (is_port(url)) {
        snprintf(text, sizeof(text), "127.0.0.1:%s", url);
        return read_authority(option, text, upstream);
    }
    if (strstr(url, "//") == NULL && colon != NULL && colon > url && is_port(colon + 1)) {
        return read_authority(option, url, upstream);
    }
    snprintf(text, sizeof(text), "\"%s\" is not an HTTP URL", once__cli_shown(url).text);
    return bad_upstream(option, text);
}

int once__gate_upstream_answers(const once__gate_upstream_t *upstream)
{
    struct addrinfo *found = NULL;
    once__gate_address_t address;
    int answered = 0;

    if (strncmp(upstream->server, "unix:", 5) == 0) {
        memset(&address, 0, sizeof(address));
        return read_unix(upstream->server + 5, &address) == 0 && once__gate_answers(&address);
    }
    if (resolve(upstream, &found) != 0) {
        return 0;
    }
    for (const struct addrinfo *at = found; at != NULL && !answered; at = at->ai_next) {
        answered = answers(at->ai_addr, at->ai_addrlen, at->ai_family);
    }
    freeaddrinfo(found);
    return answered;
}

/* ----------------------------------------------------------------------------------------------------------------- auth */

/* As a word in proxy_pass: a $ would be a variable there, and a space would end the request line. */
static const char *check_path(const char *path)
{
    for (const char *at = path; *at != '\0'; at++) {
        if (*at <= ' ' || *at >= 0x7f || strchr("$#\"\\{};", *at) != NULL) {
            return "its path has characters that must be encoded with %";
        }
    }
    return strlen(path) < ONCE__GATE_AUTH_PATH ? NULL : "its path is too long";
}

int once__gate_read_auth(once__gate_plan_t *plan)
{
    once__gate_auth_t *auth = &plan->auth;
    const char *text = plan->options->auth;
    const char *host, *path, *wrong;
    char url[512];

    if (text == NULL) {
        return ONCE__CLI_OK;
    }
    host = strstr(text, "://");
    path = text[0] == '/' ? text : host != NULL ? host + 3 + strcspn(host + 3, "/?#") : "";
    if (path[0] != '/') {
        wrong = text[0] == '\0' ? "it is empty" : "it has no path";
    } else if (strncmp(text, "http://unix:", 12) == 0) {
        wrong = "a unix socket cannot have a path after it";
    } else {
        wrong = (size_t)(path - text) < sizeof(url) ? check_path(path) : "it is too long";
    }
    if (wrong != NULL) {
        return ONCE__GATE_USAGE("--auth: %s; expected http://HOST[:PORT]/PATH, "
                                "https://HOST[:PORT]/PATH, or /PATH of the backend",
                                wrong);
    }
    snprintf(auth->path, sizeof(auth->path), "%s", path);
    auth->given = 1;
    auth->own = path != text;
    snprintf(url, sizeof(url), "%.*s", (int)(path - text), text);
    return auth->own ? once__gate_read_upstream("auth", url, &auth->server) : ONCE__CLI_OK;
}
