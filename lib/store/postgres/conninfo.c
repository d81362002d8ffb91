#include "store/postgres/conninfo.h"

#include <libpq-fe.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pg/tcp.h"

static int add(once__conninfo_t *info, const char *keyword, const char *value)
{
    char *copy = strdup(value);

    if (copy == NULL) {
        return ONCE_E_NOMEM;
    }
    info->keywords[info->count] = keyword;
    info->values[info->count] = info->memory[info->count] = copy;
    info->count++;
    return ONCE_OK;
}

/* Keywords are static text: the URL goes after opening. */
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

static int add_given(once__conninfo_t *info, once__url_t *url)
{
    PQconninfoOption *all = PQconndefaults();
    int code = all != NULL ? ONCE_OK : ONCE_E_NOMEM;

    for (size_t i = 0; code == ONCE_OK && i < sizeof(given) / sizeof(given[0]); i++) {
        /* What this libpq does not know stays in the URL, and is complained about as an unknown parameter. */
        const char *value = is_known(all, given[i]) ? once__url_take(url, given[i]) : NULL;
        if (value != NULL) {
            code = add(info, given[i], value);
        }
    }
    if (all != NULL) {
        PQconninfoFree(all);
    }
    return code;
}

/* Does libpq understand the part before the parameters? Its own words may show a password: ours do not. */
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

int once__conninfo_read(once__conninfo_t *info, once__url_t *url, once_error_t *err)
{
    int code = check(url->raw, err);

    memset(info, 0, sizeof(*info));
    if (code != ONCE_OK) {
        return code;
    }
    code = add(info, "application_name", "once");
#define ADD(keyword, value) code = code == ONCE_OK ? add(info, keyword, value) : code;
    ONCE__PG_TCP(ADD)
#undef ADD
    /* With several hosts, the one that takes writes; and no reads from replicas. */
    code = code == ONCE_OK ? add(info, "target_session_attrs", "read-write") : code;
    code = code == ONCE_OK ? add(info, "dbname", url->raw) : code;
    code = code == ONCE_OK ? add_given(info, url) : code;
    /* Whatever the URL, the environment or the database says: texts are UTF-8 here. */
    code = code == ONCE_OK ? add(info, "client_encoding", "UTF8") : code;
    if (code != ONCE_OK) {
        once__conninfo_free(info);
        return once__fail(err, code, "%s", once_error_text(code));
    }
    once__pq_tls_add(&info->tls, info->keywords, info->values);
    return ONCE_OK;
}

void once__conninfo_free(once__conninfo_t *info)
{
    for (unsigned i = 0; i < info->count; i++) {
        OPENSSL_cleanse(info->memory[i], strlen(info->memory[i]));
        free(info->memory[i]);
    }
    memset(info, 0, sizeof(*info));
}
