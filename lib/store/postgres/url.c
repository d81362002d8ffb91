#include "store/postgres/url.h"

#include <libpq-fe.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

#define CONNECTIONS_DEFAULT 4

/* Keywords are static, because the URL is freed after opening. */
static const char *const given[] = {
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "require_auth",
    "channel_binding",
    "connect_timeout",
    "client_encoding",
    "options",
    "application_name",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "gssencmode",
    "sslmode",
    "requiressl",
    "sslcompression",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslrootcert",
    "sslcrl",
    "sslcrldir",
    "sslsni",
    "requirepeer",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "krbsrvname",
    "gsslib",
    "service",
    "target_session_attrs",
    "load_balance_hosts",
    "sslcertmode",
    "sslnegotiation",
    "gssdelegation",
    "replication",
};

static int is_known(const PQconninfoOption *all, const char *name)
{
    for (; all->keyword != NULL; all++) {
        if (strcmp(all->keyword, name) == 0) {
            return 1;
        }
    }
    return 0;
}

static int add_given(once__pg_conninfo_t *info, once__url_t *url)
{
    PQconninfoOption *all = PQconndefaults();
    int code = all != NULL ? ONCE_OK : ONCE_E_NOMEM;

    for (size_t i = 0; code == ONCE_OK && i < sizeof(given) / sizeof(given[0]); i++) {
        /* What this libpq does not know stays in the URL, and is reported as an unknown parameter. */
        const char *value = is_known(all, given[i]) ? once__url_take(url, given[i]) : NULL;
        if (value != NULL) {
            code = once__pg_conninfo_add(info, given[i], value);
        }
    }
    if (all != NULL) {
        PQconninfoFree(all);
    }
    return code;
}

/* Does libpq understand the part before the parameters? Its own message may show a password; this one does not. */
static int check(const char *text, once_error_t *err)
{
    PQconninfoOption *parsed = PQconninfoParse(text, NULL);

    if (parsed == NULL) {
        return once__fail(
            err, ONCE_E_CONFIG,
            "store URL: not as postgres://USER:PASSWORD@HOST:PORT/DATABASE; encode special "
            "characters as %%XX");
    }
    PQconninfoFree(parsed);
    return ONCE_OK;
}

static int take_connections(once__postgres_options_t *options, once__url_t *url, once_error_t *err)
{
    const char *text = once__url_take(url, "connections");
    uint64_t count = CONNECTIONS_DEFAULT;

    if (text != NULL && (once__number_parse(text, strlen(text), &count) != 0 || count < 1 ||
                         count > ONCE__POSTGRES_CONNECTIONS_MAX)) {
        return once__fail(err, ONCE_E_CONFIG, "connections: \"%.40s\" is not a number from 1 to %d",
                          text, ONCE__POSTGRES_CONNECTIONS_MAX);
    }
    options->connections = (unsigned)count;
    return ONCE_OK;
}

static int take_dictionary(once__postgres_options_t *options, once__url_t *url, once_error_t *err)
{
    const char *text = once__url_take(url, "dictionary");

    options->no_dictionary = text != NULL && strcmp(text, "off") == 0;
    if (text != NULL && !options->no_dictionary && strcmp(text, "on") != 0) {
        return once__fail(err, ONCE_E_CONFIG, "dictionary: \"%.40s\" is neither on nor off", text);
    }
    return ONCE_OK;
}

int once__postgres_url_read(once__pg_conninfo_t *info, once__postgres_options_t *options,
                            once__url_t *url, once_error_t *err)
{
    int code = check(url->raw, err);

    code = code == ONCE_OK ? take_connections(options, url, err) : code;
    code = code == ONCE_OK ? take_dictionary(options, url, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    code = once__pg_conninfo_begin(info, "once", url->raw);
    code = code == ONCE_OK ? add_given(info, url) : code;
    code = code == ONCE_OK ? once__pg_conninfo_end(info) : code;
    if (code != ONCE_OK) {
        once__pg_conninfo_free(info);
        return once__fail(err, code, "%s", once_error_text(code));
    }
    return ONCE_OK;
}
