/*
 * What the files of the configuration share: directives.c (the table, and how
 * values are read), module.c (create and merge), check.c (what is rejected).
 */
#ifndef NGX_HTTP_ONCE_CONF_H
#define NGX_HTTP_ONCE_CONF_H

#include "ngx_http_once.h"


/*
 * Directives that are read outside of directives.c: by module.c, identify.c,
 * wait.c, admit.c, headers.c, redact.c, mcp.c, probe.c, problem.c and
 * profile.c.
 */

char *ngx_http_once_set_on(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_scope(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_wait(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_quota(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_redact(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_mcp(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_error(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_error_body(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_error_header(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_key_format(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_profile(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_define_profile(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* An empty configuration of a location. NULL: out of memory. */
void *ngx_http_once_create_loc_conf(ngx_conf_t *cf);

/* Sets what is not set: from the block around it, or by default. */
void ngx_http_once_inherit(ngx_http_once_loc_conf_t *prev,
    ngx_http_once_loc_conf_t *conf);

/* Before the merge, where once_mcp is on: what is not written by hand. */
ngx_int_t ngx_http_once_mcp_defaults(ngx_conf_t *cf,
    ngx_http_once_loc_conf_t *conf);
ngx_int_t ngx_http_once_identify_mcp_key(ngx_conf_t *cf,
    ngx_http_once_loc_conf_t *conf);

/* The merge of a location with a profile, which is used instead of defaults. */
ngx_int_t ngx_http_once_profile_merge(ngx_conf_t *cf,
    ngx_http_once_loc_conf_t *conf);

/*
 * Logs which value of the current directive is invalid, and what it must be.
 * Returns NGX_CONF_ERROR.
 */
char *ngx_http_once_bad(ngx_conf_t *cf, ngx_str_t *value, const char *advice);

ngx_uint_t ngx_http_once_is(ngx_str_t *value, const char *word);

/*
 * The name of a header: letters, digits, "-", "_" and ".". RFC 9110 allows
 * more in a token, but in a directive the rest is a slip ("$name", "a|b").
 */
ngx_uint_t ngx_http_once_is_token(ngx_str_t *value);

/* The value is visible ASCII that ends no quoted string. */
ngx_uint_t ngx_http_once_is_plain(ngx_str_t *value);

/* NULL: invalid, and logged. */
ngx_http_complex_value_t *ngx_http_once_compile(ngx_conf_t *cf,
    ngx_str_t *value);

/*
 * Checks the URL of a store without opening it: only workers open stores. A
 * relative path of a local store becomes absolute, from nginx's prefix.
 */
char *ngx_http_once_check_store(ngx_conf_t *cf, ngx_str_t *url);

/* Of any location, after the merge: notes where its error pages redirect. */
ngx_int_t ngx_http_once_entry_add_pages(ngx_conf_t *cf);

/*
 * Of a guarded location, after the merge: rejects what cannot be guarded or
 * would not be safe.
 */
char *ngx_http_once_check(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf);

/* Whether the location starts with `return`, which nothing can guard. */
ngx_uint_t ngx_http_once_check_returns(ngx_conf_t *cf);

/*
 * Logs the location and what to do: the merge has no line number. Returns
 * NGX_CONF_ERROR.
 */
char *ngx_http_once_reject(ngx_conf_t *cf, const char *fmt,
    const void *arg);


#endif
