#include "pg/conninfo.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include <once/error.h>

static const struct {
    const char *keyword, *value;
} defaults[] = {
    {"target_session_attrs", "read-write"}, {"keepalives_idle", "5"},
    {"keepalives_interval", "2"},           {"keepalives_count", "3"},
    {"tcp_user_timeout", "10000"},
};

int once__pg_conninfo_add(once__pg_conninfo_t *info, const char *keyword, const char *value)
{
    char *copy = info->count < ONCE__PG_CONNINFO_MAX ? strdup(value) : NULL;

    if (copy == NULL) {
        return ONCE_E_NOMEM;
    }
    info->keywords[info->count] = keyword;
    info->values[info->count] = info->memory[info->count] = copy;
    info->count++;
    return ONCE_OK;
}

int once__pg_conninfo_begin(once__pg_conninfo_t *info, const char *name, const char *url)
{
    int code;

    memset(info, 0, sizeof(*info));
    code = once__pg_conninfo_add(info, "application_name", name);
    for (size_t i = 0; code == ONCE_OK && i < sizeof(defaults) / sizeof(defaults[0]); i++) {
        code = once__pg_conninfo_add(info, defaults[i].keyword, defaults[i].value);
    }
    return code == ONCE_OK ? once__pg_conninfo_add(info, "dbname", url) : code;
}

int once__pg_conninfo_end(once__pg_conninfo_t *info)
{
    int code = once__pg_conninfo_add(info, "client_encoding", "UTF8");

    if (code == ONCE_OK) {
        once__pg_tls_add(&info->tls, info->keywords, info->values);
    }
    return code;
}

void once__pg_conninfo_free(once__pg_conninfo_t *info)
{
    for (unsigned i = 0; i < info->count; i++) {
        OPENSSL_cleanse(info->memory[i], strlen(info->memory[i]));
        free(info->memory[i]);
    }
    memset(info, 0, sizeof(*info));
}
