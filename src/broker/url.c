#include "broker/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place. 0, or -1: a bad escape or a zero byte. */
static int decode(char *text)
{
    char *out = text;

    for (; *text != '\0'; text++) {
        if (*text != '%') {
            *out++ = *text;
            continue;
        }
        if (hex_digit(text[1]) < 0 || hex_digit(text[2]) < 0) {
            return -1;
        }
        *out = (char)(hex_digit(text[1]) * 16 + hex_digit(text[2]));
        text += 2;
        if (*out++ == '\0') {
            return -1;
        }
    }
    *out = '\0';
    return 0;
}

static int read_params(once__broker_url_t *address, char *query)
{
    while (query != NULL && *query != '\0') {
        char *next = strchr(query, '&');
        char *value;
        if (next != NULL) {
            *next++ = '\0';
        }
        value = strchr(query, '=');
        if (value == NULL || address->param_count == ONCE__BROKER_URL_PARAMS_MAX) {
            return -1;
        }
        *value++ = '\0';
        if (decode(query) != 0 || decode(value) != 0) {
            return -1;
        }
        address->params[address->param_count].name = query;
        address->params[address->param_count++].value = value;
        query = next;
    }
    return 0;
}

static int read_user(once__broker_url_t *address, char *user)
{
    char *password = strchr(user, ':');

    if (password != NULL) {
        *password++ = '\0';
    }
    address->user = user;
    address->password = password;
    return decode(user) != 0 || (password != NULL && decode(password) != 0) ? -1 : 0;
}

/* `path` and `raw_query`: room for copies. */
static int read_parts(once__broker_url_t *address, char *text, char *path, char *raw_query)
{
    char *rest = strstr(text, "://"), *query, *slash, *at;

    if (rest == NULL) {
        return -1;
    }
    *rest = '\0';
    address->scheme = text;
    rest += 3;
    query = strchr(rest, '?');
    if (query != NULL) {
        *query++ = '\0';
        address->raw_query = memcpy(raw_query, query, strlen(query) + 1);
    }
    slash = strchr(rest, '/');
    if (slash != NULL) {
        *slash++ = '\0';
        address->raw_path = slash;
        memcpy(path, slash, strlen(slash) + 1);
    }
    address->path = path;
    at = strrchr(rest, '@');
    if (at != NULL) {
        *at++ = '\0';
        if (read_user(address, rest) != 0) {
            return -1;
        }
        rest = at;
    }
    address->hosts = rest;
    if (*rest == '\0' || decode(path) != 0) {
        return -1;
    }
    return strncmp(text, "http", 4) == 0 ? 0 : read_params(address, query);
}

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT, up to a comma. */
static int is_host(const char *text, size_t len)
{
    const char *end = text + len, *at = text;
    long port = 0;

    if (len > 255 + 6) {
        return 0;
    }
    at = *at == '[' ? memchr(at, ']', len) : at + strcspn(at, ":,");
    if (at == NULL || at == text) {
        return 0;
    }
    at += *at == ']';
    if (at == end) {
        return 1;
    }
    if (*at++ != ':' || at == end) {
        return 0;
    }
    for (; at < end && *at >= '0' && *at <= '9' && port < 65536; at++) {
        port = port * 10 + (*at - '0');
    }
    return at == end && port > 0 && port < 65536;
}

static int are_hosts(const char *hosts)
{
    for (const char *at = hosts;; at++) {
        size_t len = strcspn(at, ",");
        if (!is_host(at, len)) {
            return 0;
        }
        at += len;
        if (*at == '\0') {
            return 1;
        }
    }
}

int once__broker_url_read(once__broker_url_t *address, const char *url, char *error, size_t size)
{
    size_t len = strlen(url) + 1;

    memset(address, 0, sizeof(*address));
    address->raw_path = "";
    address->memory = malloc(3 * len);
    if (address->memory == NULL) {
        snprintf(error, size, "out of memory");
        return -1;
    }
    memcpy(address->memory, url, len);
    address->memory[len] = '\0'; /* no path */
    if (read_parts(address, address->memory, address->memory + len, address->memory + 2 * len) !=
        0) {
        snprintf(error, size,
                 "the URL cannot be read: it is "
                 "SCHEME://[USER:PASSWORD@]HOST[:PORT]/...[?NAME=VALUE&...]");
        return -1;
    }
    if (!are_hosts(address->hosts)) {
        snprintf(error, size, "the URL's HOST[:PORT] cannot be read; a port is 1 to 65535");
        return -1;
    }
    return 0;
}

void once__broker_url_free(once__broker_url_t *address)
{
    free(address->memory);
    memset(address, 0, sizeof(*address));
}

const char *once__broker_url_param(once__broker_url_t *address, const char *name)
{
    for (size_t i = 0; i < address->param_count; i++) {
        if (strcmp(address->params[i].name, name) == 0) {
            address->params[i].used = 1;
            return address->params[i].value;
        }
    }
    return NULL;
}

const char *once__broker_url_unknown(const once__broker_url_t *address)
{
    for (size_t i = 0; i < address->param_count; i++) {
        if (!address->params[i].used) {
            return address->params[i].name;
        }
    }
    return NULL;
}
