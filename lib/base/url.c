/*
 * The memory of a URL is four copies of its text: one whose path and parameters are decoded in place, one as written, one for the
 * decoded authority and the path behind it, and one for the hosts as written.
 */
#include "base/url.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"

static int decode(char *text)
{
    size_t len = strlen(text);

    return once__percent_decode(text, len + 1, text, len);
}

static int is_scheme(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int ok = (text[i] >= 'a' && text[i] <= 'z') || (i > 0 && text[i] == '+') ||
                 (i > 0 && text[i] >= '0' && text[i] <= '9');
        if (!ok) {
            return 0;
        }
    }
    return len > 0;
}

/* Ends the text at the first `separator` and returns what is behind it; NULL: there is none. */
static char *cut(char *text, char separator)
{
    char *at = strchr(text, separator);

    if (at != NULL) {
        *at++ = '\0';
    }
    return at;
}

static int add_param(once__url_t *url, char *text, unsigned flags, once_error_t *err)
{
    once__url_param_t *param = &url->params[url->param_count];
    char *value = cut(text, '=');

    if (url->param_count == ONCE__URL_PARAMS_MAX) {
        return once__fail(err, ONCE_E_CONFIG, "%s: more than %d parameters", url->what,
                          ONCE__URL_PARAMS_MAX);
    }
    if (value == NULL || text[0] == '\0') {
        return once__fail(err, ONCE_E_CONFIG, "%s: parameter %zu is not name=value", url->what,
                          url->param_count + 1);
    }
    if (decode(text) != 0 || decode(value) != 0) {
        return once__fail(err, ONCE_E_CONFIG, "%s: bad %%-escape in parameter %zu", url->what,
                          url->param_count + 1);
    }
    for (size_t i = 0; i < url->param_count && !(flags & ONCE__URL_REPEAT); i++) {
        if (strcmp(url->params[i].name, text) == 0) {
            return once__fail(err, ONCE_E_CONFIG, "%s: %s is given twice", url->what, text);
        }
    }
    *param = (once__url_param_t){text, value, 0};
    url->param_count++;
    return ONCE_OK;
}

static int has_params(const once__url_t *url)
{
    return strcmp(url->scheme, "http") != 0 && strcmp(url->scheme, "https") != 0;
}

static int split(once__url_t *url, unsigned flags, once_error_t *err)
{
    char *path = cut(url->memory, ':');
    char *query = path != NULL ? cut(path, '?') : NULL;
    int code = ONCE_OK;

    if (path == NULL || !is_scheme(url->memory, (size_t)(path - url->memory - 1))) {
        return once__fail(
            err, ONCE_E_CONFIG,
            "%s: write scheme:path or scheme://HOST/path, for example memory: or memory:NAME",
            url->what);
    }
    url->scheme = url->memory;
    url->path = path;
    if (decode(path) != 0) {
        return once__fail(err, ONCE_E_CONFIG, "%s: bad %%-escape before the parameters", url->what);
    }
    while (code == ONCE_OK && query != NULL && *query != '\0' && has_params(url)) {
        char *next = cut(query, '&');
        code = add_param(url, query, flags, err);
        query = next;
    }
    return code;
}

int once__url_parse(once__url_t *url, const char *what, const char *text, unsigned flags,
                    once_error_t *err)
{
    size_t size = strlen(text) + 1;
    int code;

    *url = (once__url_t){.what = what, .memory = calloc(4, size)};
    if (url->memory == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    memcpy(url->memory, text, size);
    memcpy(url->memory + size, text, size);
    url->raw = url->memory + size;
    url->raw_query = cut(url->memory + size, '?');
    code = split(url, flags, err);
    if (code != ONCE_OK) {
        once__url_free(url);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------ the authority */

const char *once__url_host_read(once__url_host_t *host, char *text)
{
    char *port;
    uint64_t number = 0;

    if (text[0] == '[') { /* an IPv6 address */
        port = cut(++text, ']');
        if (port == NULL || (*port != '\0' && *port != ':')) {
            return port == NULL ? "has \"[\" without \"]\""
                                : "has something between ] and its port";
        }
        port = *port == ':' ? port + 1 : NULL;
    } else {
        port = cut(text, ':');
    }
    if (text[0] == '\0' || strlen(text) > ONCE__URL_HOST_MAX) {
        return text[0] == '\0' ? "is missing" : "is too long";
    }
    if (port != NULL && (once__number_parse(port, strlen(port), &number) != 0 || number == 0 ||
                         number > UINT16_MAX)) {
        return "has a port that is not a number from 1 to 65535";
    }
    *host = (once__url_host_t){text, (uint16_t)number};
    return NULL;
}

static int read_hosts(once__url_t *url, char *text, once_error_t *err)
{
    while (text != NULL) {
        char *next = cut(text, ',');
        const char *wrong;
        if (url->host_count == ONCE__URL_HOSTS_MAX) {
            return once__fail(err, ONCE_E_CONFIG, "%s: more than %d hosts", url->what,
                              ONCE__URL_HOSTS_MAX);
        }
        wrong = once__url_host_read(&url->host[url->host_count], text);
        if (wrong != NULL) {
            return once__fail(err, ONCE_E_CONFIG, "%s: host %zu %s", url->what, url->host_count + 1,
                              wrong);
        }
        url->host_count++;
        text = next;
    }
    return ONCE_OK;
}

int once__url_authority(once__url_t *url, once_error_t *err)
{
    size_t size = (size_t)(url->raw - url->memory);
    char *text = url->memory + 2 * size, *hosts = text, *path, *at;
    const char *raw = url->raw + strlen(url->scheme) + 1;

    if (strncmp(raw, "//", 2) != 0) {
        return once__fail(err, ONCE_E_CONFIG, "%s: write %s://HOST", url->what, url->scheme);
    }
    url->user = url->password = NULL;
    url->host_count = 0;
    memcpy(text, raw + 2, strlen(raw + 2) + 1);
    path = cut(text, '/');
    path = path != NULL ? path : text + strlen(text);
    url->raw_path = raw + 2 + (path - text);
    url->path = path;
    (void)decode(path); /* once__url_parse() has done it before: no escape is bad, here and below */
    at = strrchr(text, '@');
    if (at != NULL) {
        char *password;
        *at++ = '\0';
        password = cut(text, ':');
        url->user = text;
        url->password = password;
        (void)decode(text);
        (void)(password != NULL ? decode(password) : 0);
        hosts = at;
    }
    url->hosts = memcpy(url->memory + 3 * size, hosts, strlen(hosts) + 1);
    return read_hosts(url, hosts, err);
}

/* -------------------------------------------------------------------------------------------------------------- users */

void once__url_free(once__url_t *url)
{
    if (url->memory != NULL) {
        explicit_bzero(url->memory, 4 * (size_t)(url->raw - url->memory));
    }
    free(url->memory);
    memset(url, 0, sizeof(*url));
}

const char *once__url_take(once__url_t *url, const char *name)
{
    for (size_t i = 0; i < url->param_count; i++) {
        if (strcmp(url->params[i].name, name) == 0) {
            url->params[i].taken = 1;
            return url->params[i].value;
        }
    }
    return NULL;
}

const char *once__url_untaken(const once__url_t *url)
{
    for (size_t i = 0; i < url->param_count; i++) {
        if (!url->params[i].taken) {
            return url->params[i].name;
        }
    }
    return NULL;
}
