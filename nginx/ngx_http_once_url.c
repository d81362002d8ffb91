/*
 * The store's URL, as far as it can be judged without opening the store: the
 * master must not open one, its workers would inherit threads and locks.
 */
#include "ngx_http_once_conf.h"

#include <once/local.h>

#include <sys/prctl.h>


/* The next `name=value` of a query; 0: no more. */

static ngx_uint_t
ngx_http_once_next_param(ngx_str_t *query, ngx_str_t *name, ngx_str_t *value)
{
    u_char  *p, *end, *equal;

    if (query->len == 0) {
        return 0;
    }

    end = ngx_strlchr(query->data, query->data + query->len, '&');
    p = end ? end : query->data + query->len;

    equal = ngx_strlchr(query->data, p, '=');

    name->data = query->data;
    name->len = (equal ? equal : p) - query->data;
    value->data = equal ? equal + 1 : p;
    value->len = p - value->data;

    query->len -= p - query->data + (end ? 1 : 0);
    query->data = end ? end + 1 : p;

    return 1;
}


static void
ngx_http_once_query(ngx_str_t *url, ngx_str_t *query)
{
    u_char  *p;

    p = ngx_strlchr(url->data, url->data + url->len, '?');

    query->data = p ? p + 1 : url->data + url->len;
    query->len = url->data + url->len - query->data;
}


/* Decodes into `out`, terminated; a value that is too long is cut. */

static void
ngx_http_once_decode(ngx_str_t *text, char *out, size_t size)
{
    u_char  *dst, *src;

    dst = (u_char *) out;
    src = text->data;

    ngx_unescape_uri(&dst, &src, ngx_min(text->len, size - 1), 0);

    *dst = '\0';
}


/* Does a parameter of this name begin with these words? */

static ngx_uint_t
ngx_http_once_store_says(ngx_str_t *url, const char *wanted, const char *words)
{
    char       option[32], text[32];
    ngx_str_t  query, name, value;

    ngx_http_once_query(url, &query);

    while (ngx_http_once_next_param(&query, &name, &value)) {

        ngx_http_once_decode(&name, option, sizeof(option));
        ngx_http_once_decode(&value, text, sizeof(text));

        if (ngx_strcmp(option, wanted) == 0
            && ngx_strncmp(text, words, ngx_strlen(words)) == 0)
        {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_http_once_store_relaxed(ngx_str_t *url)
{
    return ngx_http_once_store_says(url, "durability", "claims-relaxed");
}


ngx_uint_t
ngx_http_once_store_reads_sealed_only(ngx_str_t *url)
{
    return ngx_http_once_store_says(url, "encrypt", "file:")
           && !ngx_http_once_store_says(url, "encrypt_require", "off");
}


/* `local:data` is below nginx's prefix, wherever nginx was started. */

static ngx_int_t
ngx_http_once_absolute(ngx_conf_t *cf, ngx_str_t *url)
{
    u_char     *p;
    size_t      skip, escape;
    ngx_str_t   prefix, full;

    skip = sizeof("local:") - 1;

    if (url->len > skip && url->data[skip] == '/') {
        return NGX_OK;
    }

    prefix = cf->cycle->prefix;
    escape = ngx_escape_uri(NULL, prefix.data, prefix.len, NGX_ESCAPE_URI);

    full.len = skip + prefix.len + 2 * escape + url->len - skip;
    full.data = ngx_pnalloc(cf->pool, full.len + 1);
    if (full.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(full.data, "local:", skip);
    p = (u_char *) ngx_escape_uri(p, prefix.data, prefix.len, NGX_ESCAPE_URI);
    p = ngx_cpymem(p, url->data + skip, url->len - skip);
    *p = '\0';

    *url = full;

    return NGX_OK;
}


/* Other stores do nothing by being opened, as long as nobody dispatches. */

static int
ngx_http_once_try_open(ngx_str_t *url, once_error_t *err)
{
    int      code;
    once_t  *once;

    code = once_open((char *) url->data, NULL, &once, err);

    if (code == ONCE_OK) {
        once_close(once, 0);
    }

    return code;
}


/*
 * Options that have a directive of their own, or that nginx decides: callbacks
 * must run in its event loop, and claims must be renewed.
 */

static char *
ngx_http_once_check_reserved(ngx_conf_t *cf, ngx_str_t *url)
{
    char        option[64];
    ngx_str_t   query, name, value;
    ngx_uint_t  i;

    static const char *const  directives[] = {
        "ttl", "lease", "recover", "record", "release", "release_ttl",
        "store_timeout", NULL
    };

    ngx_http_once_query(url, &query);

    while (ngx_http_once_next_param(&query, &name, &value)) {

        ngx_http_once_decode(&name, option, sizeof(option));

        for (i = 0; directives[i]; i++) {
            if (ngx_strcmp(option, directives[i]) == 0) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "\"%s\" in \"once_store\": write "
                                   "\"once_%s\" instead", option, option);
                return NGX_CONF_ERROR;
            }
        }

        if (ngx_strcmp(option, "thread") == 0
            || ngx_strcmp(option, "renew") == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%s\" in \"once_store\" is not for nginx: "
                               "take it out", option);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


/*
 * A store belongs to its workers: a master of root looks at it with their eyes.
 * ONCE_E_NOT_FOUND: nobody can tell yet who they are, for `user` does not stand
 * ahead of the store.
 */

static int
ngx_http_once_look_as_worker(ngx_conf_t *cf, ngx_str_t *url,
    once_error_t *err)
{
    int               code, ends;
    pid_t             parent;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                           ngx_core_module);

    if (geteuid() != 0 || ccf->user == 0) {
        return once_local_exists((char *) url->data, err);
    }

    if (ccf->user == (ngx_uid_t) NGX_CONF_UNSET_UINT) {
        return ONCE_E_NOT_FOUND;
    }

    /* the system forgets whose end ends the master when its user changes */

    parent = getppid();
    ends = 0;
    (void) prctl(PR_GET_PDEATHSIG, &ends);

    if (setegid(ccf->group) == -1 || seteuid(ccf->user) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "seteuid(%d) failed", ccf->user);
        code = ONCE_E_IO;

    } else {
        code = once_local_exists((char *) url->data, err);
    }

    if (seteuid(0) == -1 || setegid(getgid()) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno, "seteuid(0) failed");
        return ONCE_E_CONFIG;
    }

    if (ends) {
        (void) prctl(PR_SET_PDEATHSIG, ends);

        if (getppid() != parent) {
            (void) raise(ends);
        }
    }

    return code;
}


/* A directory that is missing, locked or damaged is the workers' to tell. */

static int
ngx_http_once_check_local(ngx_conf_t *cf, ngx_str_t *url, once_error_t *err)
{
    int  code;

    code = ngx_http_once_look_as_worker(cf, url, err);

    if (code == ONCE_E_CONFIG || code == ONCE_E_UNSUPPORTED) {
        return code;
    }

    return once_store_check((char *) url->data, err);
}


char *
ngx_http_once_check_store_url(ngx_conf_t *cf, ngx_str_t *url)
{
    int           code;
    once_error_t  err;

    ngx_memzero(&err, sizeof(err));

    if (ngx_http_once_check_reserved(cf, url) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (url->len > 6 && ngx_strncmp(url->data, "local:", 6) == 0) {

        if (ngx_http_once_absolute(cf, url) != NGX_OK) {
            return NGX_CONF_ERROR;
        }

        code = ngx_http_once_check_local(cf, url, &err);

    } else {
        code = ngx_http_once_try_open(url, &err);
    }

    if (code == ONCE_OK) {
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"once_store\" cannot be used: %s",
                       err.text[0] ? err.text : once_error_text(code));

    return NGX_CONF_ERROR;
}
