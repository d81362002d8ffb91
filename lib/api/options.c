#include "api/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

void once__options_init(once_options_t *options)
{
    memset(options, 0, sizeof(*options));
    once__policy_init(&options->policy);
    options->store_timeout_ms = 5000;
    options->reap_ms = 60000;
    options->compress_from = 1024;
    options->insist = 1;
    options->renew = 1;
    options->encrypt_require = 1;
}

once_options_t *once_options_new(void)
{
    once_options_t *options = malloc(sizeof(*options));

    if (options != NULL) {
        once__options_init(options);
    }
    return options;
}

void once_options_free(once_options_t *options)
{
    free(options);
}

void once_options_set_log(once_options_t *options, once_log_level_t level, once_log_cb cb,
                          void *data)
{
    options->log = cb;
    options->log_data = data;
    options->log_level = level;
}

static int set_switch(const char *name, const char *value, int *out, once_error_t *err)
{
    if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0) {
        return once__fail(err, ONCE_E_CONFIG, "%s: \"%.40s\" is neither on nor off", name, value);
    }
    *out = strcmp(value, "on") == 0;
    return ONCE_OK;
}

static int set_duration(const char *name, const char *value, uint64_t *out, once_error_t *err)
{
    uint64_t ms;

    if (once__duration_parse(value, &ms) != 0 || ms == 0 || ms > ONCE__TTL_MAX_MS) {
        return once__fail(err, ONCE_E_CONFIG,
                          "%s: \"%.40s\" is not a duration; use 500ms, 30s, 5m, 24h or 7d", name,
                          value);
    }
    *out = ms;
    return ONCE_OK;
}

/* `file:PATH`, or `other` which empties the path. */
static int set_file(const char *name, const char *value, const char *other, char *path,
                    once_error_t *err)
{
    if (strcmp(value, other) == 0) {
        path[0] = '\0';
        return ONCE_OK;
    }
    if (strncmp(value, "file:", 5) != 0 || value[5] == '\0') {
        return once__fail(err, ONCE_E_CONFIG, "%s: write file:PATH or %s", name, other);
    }
    if (strlen(value + 5) >= ONCE__PATH_SIZE) {
        return once__fail(err, ONCE_E_CONFIG, "%s: the path is longer than %d bytes", name,
                          ONCE__PATH_SIZE - 1);
    }
    memcpy(path, value + 5, strlen(value + 5) + 1);
    return ONCE_OK;
}

static int set_reap(once_options_t *options, const char *value, once_error_t *err)
{
    if (strcmp(value, "off") == 0) {
        options->reap_ms = 0;
        return ONCE_OK;
    }
    return set_duration("reap", value, &options->reap_ms, err);
}

static int set_compress(once_options_t *options, const char *value, once_error_t *err)
{
    if (strcmp(value, "off") == 0) {
        options->compress_from = UINT64_MAX;
        return ONCE_OK;
    }
    if (once__size_parse(value, &options->compress_from) != 0) {
        return once__fail(err, ONCE_E_CONFIG,
                          "compress: \"%.40s\" is not a size; use 512, 1k, 1m or off", value);
    }
    return ONCE_OK;
}

static int is_policy(const char *name)
{
    static const char *const names[] = {"ttl",    "lease",   "recover",
                                        "record", "release", "release_ttl"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

int once_options_set(once_options_t *options, const char *name, const char *value,
                     once_error_t *err)
{
    if (options == NULL || name == NULL || value == NULL) {
        return once__fail(err, ONCE_E_INVALID, "%s", once_error_text(ONCE_E_INVALID));
    }
    if (is_policy(name)) {
        return once_policy_set(&options->policy, name, value, err);
    }
    if (strcmp(name, "store_timeout") == 0) {
        return set_duration(name, value, &options->store_timeout_ms, err);
    }
    if (strcmp(name, "insist") == 0) {
        return set_switch(name, value, &options->insist, err);
    }
    if (strcmp(name, "renew") == 0) {
        return set_switch(name, value, &options->renew, err);
    }
    if (strcmp(name, "thread") == 0) {
        return set_switch(name, value, &options->thread, err);
    }
    if (strcmp(name, "reap") == 0) {
        return set_reap(options, value, err);
    }
    if (strcmp(name, "secrets") == 0) {
        return set_file(name, value, "store", options->secrets_file, err);
    }
    if (strcmp(name, "encrypt") == 0) {
        return set_file(name, value, "off", options->encrypt_file, err);
    }
    if (strcmp(name, "encrypt_require") == 0) {
        return set_switch(name, value, &options->encrypt_require, err);
    }
    if (strcmp(name, "compress") == 0) {
        return set_compress(options, value, err);
    }
    return once__fail(
        err, ONCE_E_CONFIG,
        "\"%.40s\" is not an option; there are ttl, lease, recover, record, release, "
        "release_ttl, "
        "store_timeout, insist, renew, reap, thread, secrets, encrypt, encrypt_require, compress",
        name);
}

int once__options_from_url(once_options_t *options, once__url_t *url, once_error_t *err)
{
    static const char *const names[] = {
        "ttl",         "lease",         "recover", "record",          "release",
        "release_ttl", "store_timeout", "insist",  "renew",           "reap",
        "thread",      "secrets",       "encrypt", "encrypt_require", "compress"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = once__url_take(url, names[i]);
        int code = value != NULL ? once_options_set(options, names[i], value, err) : ONCE_OK;
        if (code != ONCE_OK) {
            return code;
        }
    }
    return ONCE_OK;
}
