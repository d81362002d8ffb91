/*
 * What the files of the configuration share: directives.c (the table, and how
 * values are read), conf.c (create and merge), check.c (what is rejected).
 */
#ifndef NGX_HTTP_ONCE_CONF_H
#define NGX_HTTP_ONCE_CONF_H

#include "ngx_http_once.h"


/* Of a directive that takes a text or `off`: what the text must be. Stands in its `post`; its `offset` is an ngx_str_t. */

typedef struct {
    ngx_uint_t                 (*fits)(ngx_str_t *value);
    const char                  *advice;           /* for those that do not fit */
    ngx_uint_t                   is_file;          /* its name is completed */
} ngx_http_once_text_t;


/* Functions of directives. Each refuses a second time in the same block. */

char *ngx_http_once_set_on(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_store_timeout(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_name(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_text(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_require(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_scope(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_wait(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_store_body(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_quota(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_unknown_max(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_bodies(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_memory(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_once_set_retry_after(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_methods(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_on_store_error(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_once_set_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Says which value of the directive being read is wrong, and what to write instead. Returns NGX_CONF_ERROR. */
char *ngx_http_once_bad(ngx_conf_t *cf, ngx_str_t *value, const char *advice);

/* When merging there is no line number any more: names the location and says what to do. Returns NGX_CONF_ERROR. */
char *ngx_http_once_refuse(ngx_conf_t *cf, const char *fmt, const void *arg);

ngx_uint_t ngx_http_once_is(ngx_str_t *value, const char *word);

/* The value can be the name of a header; is visible ASCII that ends no quoted string. */
ngx_uint_t ngx_http_once_is_token(ngx_str_t *value);
ngx_uint_t ngx_http_once_is_plain(ngx_str_t *value);
ngx_uint_t ngx_http_once_is_given(ngx_str_t *value);
ngx_uint_t ngx_http_once_is_path(ngx_str_t *value);    /* of a location, without variables */

/* NULL: it names what is wrong. */
ngx_http_complex_value_t *ngx_http_once_compile(ngx_conf_t *cf,
    ngx_str_t *value);

/*
 * The store's URL is usable as far as this can be known without opening it: a store is opened by workers only. A relative
 * path of a local store becomes absolute, from nginx's prefix.
 */
char *ngx_http_once_check_store_url(ngx_conf_t *cf, ngx_str_t *url);

/* The URL asks for durability=claims-relaxed. */
ngx_uint_t ngx_http_once_store_relaxed(ngx_str_t *url);

/* It asks for encryption, and does not say encrypt_require=off. */
ngx_uint_t ngx_http_once_store_reads_sealed_only(ngx_str_t *url);

/* Of any location whose values are merged: notes where its error pages lead to. */
ngx_int_t ngx_http_once_add_pages(ngx_conf_t *cf);

/*
 * Of a guarded location whose values are merged. Refuses what cannot be guarded or would not be safe. `return` of a
 * location where `once on` was inherited leaves it unguarded: nothing runs there.
 */
char *ngx_http_once_check(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf);
ngx_uint_t ngx_http_once_returns(ngx_conf_t *cf);


#endif
