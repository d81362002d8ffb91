#include "store/redis/settings.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"

#define PORT          6379
#define SENTINEL_PORT 26379
#define DATABASE_MAX  65535
#define WAIT_MAX      100
#define WAIT_MS       1000
#define REPLY_MS      2000
#define CONNECT_MS    2000

static int bad(once_error_t *err, const char *what)
{
    return once__fail(err, ONCE_E_CONFIG, "store URL: %s", what);
}

static int no_memory(once_error_t *err)
{
    return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
}

/* ------------------------------------------------------------------------------------------------------ the authority */

static int read_user(once__redis_settings_t *s, const once__url_t *url, once_error_t *err)
{
    if (url->user == NULL) {
        return ONCE_OK;
    }
    if (url->password == NULL) {
        return bad(err, "before the @ goes USER:PASSWORD, or :PASSWORD for the default user");
    }
    s->user = url->user[0] != '\0' ? strdup(url->user) : NULL;
    s->password = strdup(url->password);
    return s->password != NULL && (s->user != NULL || url->user[0] == '\0') ? ONCE_OK
                                                                            : no_memory(err);
}

static int read_hosts(once__redis_settings_t *s, const once__url_t *url, once_error_t *err)
{
    uint16_t port = s->mode == ONCE__REDIS_SENTINEL ? SENTINEL_PORT : PORT;

    if (s->mode == ONCE__REDIS_SINGLE && url->host_count > 1) {
        return bad(err, "several hosts: write redis+sentinel:// or redis+cluster://");
    }
    for (size_t i = 0; i < url->host_count; i++) {
        memcpy(s->hosts[i].name, url->host[i].name, strlen(url->host[i].name) + 1);
        s->hosts[i].port = url->host[i].port != 0 ? url->host[i].port : port;
    }
    s->host_count = (unsigned)url->host_count;
    return ONCE_OK;
}

static int read_database(once__redis_settings_t *s, const char *text, once_error_t *err)
{
    uint64_t number = 0;

    if (*text == '\0') {
        return ONCE_OK;
    }
    if (once__number_parse(text, strlen(text), &number) != 0 || number > DATABASE_MAX) {
        return once__fail(err, ONCE_E_CONFIG,
                          "store URL: database: \"%.40s\" is not a number from 0 to %d", text,
                          DATABASE_MAX);
    }
    if (s->mode == ONCE__REDIS_CLUSTER && number != 0) {
        return bad(err, "a cluster has only database 0");
    }
    s->database = (unsigned)number;
    return ONCE_OK;
}

/* What follows the hosts: /DATABASE, with sentinels /NAME[/DATABASE]. */
static int read_path(once__redis_settings_t *s, const char *path, once_error_t *err)
{
    size_t len;

    if (s->mode != ONCE__REDIS_SENTINEL) {
        return read_database(s, path, err);
    }
    len = strcspn(path, "/");
    if (len == 0) {
        return bad(err, "after the hosts goes the master's name: redis+sentinel://HOST,.../NAME");
    }
    s->service = malloc(len + 1);
    if (s->service == NULL) {
        return no_memory(err);
    }
    (void)once__percent_decode(s->service, len + 1, path, len); /* the path is known to be fine */
    return read_database(s, path[len] == '/' ? path + len + 1 : "", err);
}

static int read_address(once__redis_settings_t *s, once__url_t *url, once_error_t *err)
{
    int code = once__url_authority(url, err);

    code = code == ONCE_OK ? read_user(s, url, err) : code;
    code = code == ONCE_OK ? read_hosts(s, url, err) : code;
    return code == ONCE_OK ? read_path(s, url->raw_path, err) : code;
}

/* --------------------------------------------------------------------------------------------------------- parameters */

static int take_text(once__url_t *url, const char *name, char **to, once_error_t *err)
{
    const char *value = once__url_take(url, name);

    if (value == NULL) {
        return ONCE_OK;
    }
    if (*value == '\0') {
        return once__fail(err, ONCE_E_CONFIG, "%s: is empty", name);
    }
    *to = strdup(value);
    return *to != NULL ? ONCE_OK : no_memory(err);
}

static int take_duration(once__url_t *url, const char *name, uint64_t *ms, once_error_t *err)
{
    const char *value = once__url_take(url, name);

    if (value != NULL && (once__duration_parse(value, ms) != 0 || *ms < 10 || *ms > 600000)) {
        return once__fail(err, ONCE_E_CONFIG,
                          "%s: \"%.40s\" is not a duration from 10ms to 10m; use 500ms or 2s", name,
                          value);
    }
    return ONCE_OK;
}

static int take_switch(once__url_t *url, const char *name, const char *on, const char *off, int *to,
                       once_error_t *err)
{
    const char *value = once__url_take(url, name);

    if (value == NULL) {
        return ONCE_OK;
    }
    if (strcmp(value, on) != 0 && strcmp(value, off) != 0) {
        return once__fail(err, ONCE_E_CONFIG, "%s: \"%.40s\" is neither %s nor %s", name, value, on,
                          off);
    }
    *to = strcmp(value, on) == 0;
    return ONCE_OK;
}

static int take_wait(once__redis_settings_t *s, once__url_t *url, once_error_t *err)
{
    const char *value = once__url_take(url, "wait");
    uint64_t count = 0;
    int code;

    if (value != NULL &&
        (once__number_parse(value, strlen(value), &count) != 0 || count > WAIT_MAX)) {
        return once__fail(err, ONCE_E_CONFIG, "wait: \"%.40s\" is not a number from 0 to %d", value,
                          WAIT_MAX);
    }
    s->wait = (unsigned)count;
    code = take_duration(url, "wait_timeout", &s->wait_ms, err);
    if (code == ONCE_OK && s->wait > 0 && s->wait_ms >= s->reply_ms) {
        return once__fail(err, ONCE_E_CONFIG,
                          "wait_timeout: must be shorter than reply_timeout (%llu ms)",
                          (unsigned long long)s->reply_ms);
    }
    return code;
}

static int take_tls(once__redis_settings_t *s, once__url_t *url, once_error_t *err)
{
    int code = take_switch(url, "tls", "on", "off", &s->tls, err);

    code = code == ONCE_OK ? take_text(url, "ca", &s->ca, err) : code;
    code = code == ONCE_OK ? take_text(url, "ca_dir", &s->ca_dir, err) : code;
    code = code == ONCE_OK ? take_text(url, "cert", &s->cert, err) : code;
    code = code == ONCE_OK ? take_text(url, "key", &s->key, err) : code;
    code = code == ONCE_OK ? take_text(url, "tls_name", &s->tls_name, err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    if (!s->tls && (s->ca != NULL || s->ca_dir != NULL || s->cert != NULL || s->key != NULL ||
                    s->tls_name != NULL)) {
        return bad(err, "ca, ca_dir, cert, key and tls_name need rediss:// or tls=on");
    }
    if ((s->cert == NULL) != (s->key == NULL)) {
        return bad(err, "cert and key go together");
    }
    return ONCE_OK;
}

static int take_prefix(once__redis_settings_t *s, once__url_t *url, once_error_t *err)
{
    const char *value = once__url_take(url, "prefix");

    if (value != NULL && strlen(value) > ONCE__REDIS_PREFIX_MAX) {
        return once__fail(err, ONCE_E_CONFIG, "prefix: is longer than %d bytes",
                          ONCE__REDIS_PREFIX_MAX);
    }
    s->prefix = strdup(value != NULL ? value : "once:");
    return s->prefix != NULL ? ONCE_OK : no_memory(err);
}

static int take_parameters(once__redis_settings_t *s, once__url_t *url, once_error_t *err)
{
    int code = take_duration(url, "connect_timeout", &s->connect_ms, err);

    code = code == ONCE_OK ? take_duration(url, "reply_timeout", &s->reply_ms, err) : code;
    code = code == ONCE_OK ? take_wait(s, url, err) : code;
    code = code == ONCE_OK ? take_tls(s, url, err) : code;
    code = code == ONCE_OK ? take_prefix(s, url, err) : code;
    if (code == ONCE_OK) {
        code = take_switch(url, "eviction", "accept", "refuse", &s->accept_eviction, err);
    }
    if (code == ONCE_OK) {
        code = take_switch(url, "dictionary", "off", "on", &s->no_dictionary, err);
    }
    if (code == ONCE_OK && s->mode == ONCE__REDIS_SENTINEL) {
        code = take_text(url, "sentinel_user", &s->sentinel_user, err);
        code = code == ONCE_OK ? take_text(url, "sentinel_password", &s->sentinel_password, err)
                               : code;
        if (code == ONCE_OK && s->sentinel_user != NULL && s->sentinel_password == NULL) {
            return bad(err, "sentinel_user needs sentinel_password");
        }
    }
    return code;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int once__redis_settings_read(once__redis_settings_t *settings, once__url_t *url,
                              uint64_t timeout_ms, once_error_t *err)
{
    int code;

    memset(settings, 0, sizeof(*settings));
    settings->tls = strcmp(url->scheme, "rediss") == 0;
    if (strcmp(url->scheme, "redis+sentinel") == 0) {
        settings->mode = ONCE__REDIS_SENTINEL;
    } else if (strcmp(url->scheme, "redis+cluster") == 0) {
        settings->mode = ONCE__REDIS_CLUSTER;
    }
    settings->connect_ms = at_most(timeout_ms, CONNECT_MS);
    settings->reply_ms = at_most(timeout_ms, REPLY_MS);
    settings->wait_ms = at_most(settings->reply_ms / 2, WAIT_MS);
    code = read_address(settings, url, err);
    code = code == ONCE_OK ? take_parameters(settings, url, err) : code;
    if (code != ONCE_OK) {
        once__redis_settings_free(settings);
    }
    return code;
}

static void wipe(char *secret)
{
    if (secret != NULL) {
        OPENSSL_cleanse(secret, strlen(secret));
    }
    free(secret);
}

void once__redis_settings_free(once__redis_settings_t *settings)
{
    wipe(settings->password);
    wipe(settings->sentinel_password);
    free(settings->user);
    free(settings->sentinel_user);
    free(settings->service);
    free(settings->prefix);
    free(settings->ca);
    free(settings->ca_dir);
    free(settings->cert);
    free(settings->key);
    free(settings->tls_name);
    memset(settings, 0, sizeof(*settings));
}
