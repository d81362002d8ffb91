/*
 * The directives: their names, places and the functions that read them.
 */
#include "ngx_http_once_conf.h"


#define NGX_HTTP_ONCE_ANYWHERE                                                \
    (NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF)

#define ngx_http_once_slot(field)  offsetof(ngx_http_once_loc_conf_t, field)


static ngx_http_once_text_t  ngx_http_once_secret_file = {
    ngx_http_once_is_given,
    "name a file, or write off to keep the secrets in the store",
    1
};


static ngx_http_once_text_t  ngx_http_once_replay_header = {
    ngx_http_once_is_token,
    "it must be the name of a response header such as Idempotent-Replayed, "
    "or off",
    0
};


static ngx_http_once_text_t  ngx_http_once_authorize_uri = {
    ngx_http_once_is_path,
    "it must be the path of a location, such as /authorize, without "
    "variables; or off",
    0
};


static ngx_http_once_text_t  ngx_http_once_docs = {
    ngx_http_once_is_plain,
    "it must be the URL of a page that explains the errors, without spaces "
    "or quotes; or off",
    0
};


ngx_command_t  ngx_http_once_commands[] = {

    { ngx_string("once"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_FLAG,
      ngx_http_once_set_on,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(on),
      NULL },

    { ngx_string("once_name"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_name,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_store"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_store,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_store_timeout"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_store_timeout,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_secret_file"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_text,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(secret_file),
      &ngx_http_once_secret_file },

    { ngx_string("once_methods"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_methods,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_require"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_require,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_key"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_once_set_key,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_scope"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_scope,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_authorize"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_text,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(authorize),
      &ngx_http_once_authorize_uri },

    { ngx_string("once_fingerprint"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_fingerprint,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_ttl"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_policy,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(ttl),
      NULL },

    { ngx_string("once_lease"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_policy,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(lease),
      NULL },

    { ngx_string("once_recover"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_policy,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(recover),
      NULL },

    { ngx_string("once_record"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_policy,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(record),
      NULL },

    { ngx_string("once_release"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_policy,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(release),
      NULL },

    { ngx_string("once_release_ttl"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_policy,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(release_ttl),
      NULL },

    { ngx_string("once_wait"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_once_set_wait,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_store_body"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_store_body,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_bodies"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_once_set_bodies,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_memory"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_once_set_memory,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_quota"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_quota,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_unknown_max"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_unknown_max,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_retry_after"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_retry_after,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_early_lookup"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(early_lookup),
      NULL },

    { ngx_string("once_on_store_error"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_on_store_error,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_replay_header"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_text,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(replay_header),
      &ngx_http_once_replay_header },

    { ngx_string("once_replay_headers"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_replay_headers,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_docs"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_text,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(docs),
      &ngx_http_once_docs },

    { ngx_string("once_problems"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_once_problems_page,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_probe"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE123,
      ngx_http_once_set_probe,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_once_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};
