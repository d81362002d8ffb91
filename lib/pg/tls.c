#include "pg/tls.h"

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LIBPQ_WITH_SYSTEM 160000 /* knows sslrootcert=system */
#define PARAMS_MAX        64

/* ------------------------------------------------------------------------------------------------- this machine, or not */

static int is_loopback(const char *address)
{
    struct in6_addr six;
    struct in_addr four;

    if (inet_pton(AF_INET, address, &four) == 1) {
        return ntohl(four.s_addr) >> 24 == 127;
    }
    if (inet_pton(AF_INET6, address, &six) != 1) {
        return 0;
    }
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

/* Is this host, or this address, the local machine? In libpq's notation, and one of a list. */
static int is_here(const char *host, const char *hostaddr)
{
    if (hostaddr[0] != '\0') {
        return is_loopback(hostaddr);
    }
    /* A directory, an abstract socket, or nothing: libpq's default socket. */
    if (host[0] == '\0' || host[0] == '/' || host[0] == '@') {
        return 1;
    }
    return strcasecmp(host, "localhost") == 0 || is_loopback(host);
}

/* Reads the next part of a list with commas. Returns 0 if there is none. */
static int next_part(const char **list, char part[256])
{
    size_t len;

    if (*list == NULL) {
        return 0;
    }
    len = strcspn(*list, ",");
    snprintf(part, 256, "%.*s", (int)len, *list);
    *list = (*list)[len] == ',' ? *list + len + 1 : NULL;
    return 1;
}

static int are_here(const char *hosts, const char *addresses)
{
    char host[256] = "", address[256] = "";

    for (;;) {
        int more = next_part(&hosts, host);
        more |= next_part(&addresses, address);
        if (!more) {
            return 1;
        }
        if (!is_here(host, address)) {
            return 0;
        }
        host[0] = address[0] = '\0';
    }
}

/* ---------------------------------------------------------------------------------------------------- what was decided */

static const char *value_of(const PQconninfoOption *options, const char *keyword)
{
    for (; options != NULL && options->keyword != NULL; options++) {
        if (strcmp(options->keyword, keyword) == 0) {
            return options->val != NULL ? options->val : "";
        }
    }
    return "";
}

static int is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0';
}

/* Is there an sslmode in the environment, the parameters, or the URL among them? */
static int is_decided(const char *const *keywords, const char *const *values)
{
    int decided = is_set("PGSSLMODE") || is_set("PGREQUIRESSL");

    for (size_t i = 0; !decided && keywords[i] != NULL; i++) {
        if (values[i] == NULL || values[i][0] == '\0') {
            continue;
        }
        decided = strcmp(keywords[i], "sslmode") == 0 || strcmp(keywords[i], "requiressl") == 0;
        if (strcmp(keywords[i], "dbname") == 0) {
            PQconninfoOption *url = PQconninfoParse(values[i], NULL);
            decided = decided || value_of(url, "sslmode")[0] != '\0';
            PQconninfoFree(url);
        }
    }
    return decided;
}

/*
 * Returns the parameters with what the environment and service files add. libpq reveals that for a connection only: one to port 0,
 * which it refuses before it looks up a name.
 */
static PQconninfoOption *resolve(const char *const *keywords, const char *const *values)
{
    const char *names[PARAMS_MAX + 2], *texts[PARAMS_MAX + 2];
    PQconninfoOption *options;
    PGconn *conn;
    size_t n = 0;

    for (; n < PARAMS_MAX && keywords[n] != NULL; n++) {
        names[n] = keywords[n];
        texts[n] = values[n];
    }
    names[n] = "port";
    texts[n] = "0";
    names[n + 1] = texts[n + 1] = NULL;
    conn = PQconnectStartParams(names, texts, 1);
    options = conn != NULL ? PQconninfo(conn) : NULL;
    PQfinish(conn);
    return options;
}

/* ---------------------------------------------------------------------------------------------------------- authorities */

static int has_own_authorities(void)
{
    struct passwd user, *found = NULL;
    char names[1024], path[512];
    const char *homes[2] = {getenv("HOME"), NULL};

    if (getpwuid_r(geteuid(), &user, names, sizeof(names), &found) == 0 && found != NULL) {
        homes[1] = user.pw_dir;
    }

    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/.postgresql/root.crt", homes[i] != NULL ? homes[i] : "");
        if (homes[i] != NULL && access(path, F_OK) == 0) {
            return 1;
        }
    }
    return 0;
}

static const char *system_authorities(void)
{
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};

    if (PQlibVersion() >= LIBPQ_WITH_SYSTEM) {
        return "system";
    }
    if (is_set("SSL_CERT_FILE")) {
        return getenv("SSL_CERT_FILE");
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (access(files[i], R_OK) == 0) {
            return files[i];
        }
    }
    return "";
}

static void put(const char **keywords, const char **values, const char *keyword, const char *value)
{
    size_t n = 0;

    while (keywords[n] != NULL) {
        n++;
    }
    keywords[n] = keyword;
    values[n] = value;
    keywords[n + 1] = values[n + 1] = NULL;
}

void once__pg_tls_add(once__pg_tls_t *tls, const char **keywords, const char **values)
{
    PQconninfoOption *options = is_decided(keywords, values) ? NULL : resolve(keywords, values);

    memset(tls, 0, sizeof(*tls));
    if (options != NULL && strcmp(value_of(options, "sslmode"), "prefer") == 0 &&
        !are_here(value_of(options, "host"), value_of(options, "hostaddr"))) {
        tls->sslmode = "verify-full";
        put(keywords, values, "sslmode", tls->sslmode);
        if (value_of(options, "sslrootcert")[0] == '\0' && !has_own_authorities()) {
            snprintf(tls->sslrootcert, sizeof(tls->sslrootcert), "%s", system_authorities());
            put(keywords, values, "sslrootcert", tls->sslrootcert);
        }
    }
    PQconninfoFree(options);
}

const char *once__pg_tls_advice(const once__pg_tls_t *tls, const char *complaint)
{
    if (tls->sslmode == NULL ||
        (strstr(complaint, "SSL") == NULL && strstr(complaint, "certificate") == NULL)) {
        return "";
    }
    return "; the certificate of a server that is not this machine is checked: name its authority "
           "with sslrootcert=FILE in the URL, or, where the network itself is trusted, say so with "
           "sslmode=disable";
}
