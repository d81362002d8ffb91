/*
 * The directives: how their values are read, and the table of all of them at
 * the end. Those with a syntax of their own are read in the file of their
 * subject (ngx_http_once_conf.h). What depends on more than one directive is
 * decided by the merge.
 */
#include "ngx_http_once_conf.h"
#include "ngx_http_once_request.h"


#define NGX_HTTP_ONCE_NAME_MAX  100

#define NGX_HTTP_ONCE_ANYWHERE                                                \
    (NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF)

#define ngx_http_once_slot(field)  offsetof(ngx_http_once_loc_conf_t, field)
#define ngx_http_once_main_slot(field)                                        \
    offsetof(ngx_http_once_main_conf_t, field)


/* The `post` of a directive that takes a text or `off`. */
typedef struct {
    ngx_uint_t                 (*is_valid)(ngx_str_t *value);
    const char                  *advice;
    ngx_uint_t                   is_file;      /* relative to the prefix */
} ngx_http_once_text_t;


typedef enum {
    NGX_HTTP_ONCE_NUMBER = 0,
    NGX_HTTP_ONCE_SIZE,
    NGX_HTTP_ONCE_MSEC,
    NGX_HTTP_ONCE_SEC
} ngx_http_once_unit_e;


/* The `post` of a directive that takes a number, or a word for 0. */
typedef struct {
    ngx_http_once_unit_e         unit;
    off_t                        min;
    off_t                        max;
    const char                  *zero;         /* "off", "auto"; NULL: none */
    const char                  *advice;
} ngx_http_once_number_t;


static ngx_conf_bitmask_t  ngx_http_once_methods[] = {
    { ngx_string("POST"), NGX_HTTP_POST },
    { ngx_string("PATCH"), NGX_HTTP_PATCH },
    { ngx_string("PUT"), NGX_HTTP_PUT },
    { ngx_string("DELETE"), NGX_HTTP_DELETE },
    { ngx_null_string, 0 }
};


char *
ngx_http_once_bad(ngx_conf_t *cf, ngx_str_t *value, const char *advice)
{
    ngx_str_t  *args;

    args = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive: %s",
                       value, &args[0], advice);

    return NGX_CONF_ERROR;
}


ngx_uint_t
ngx_http_once_is(ngx_str_t *value, const char *word)
{
    return value->len == ngx_strlen(word)
           && ngx_strncmp(value->data, word, value->len) == 0;
}


ngx_uint_t
ngx_http_once_is_token(ngx_str_t *value)
{
    u_char      c;
    ngx_uint_t  i;

    for (i = 0; i < value->len; i++) {
        c = value->data[i];

        if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z')
            || (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '.')
        {
            continue;
        }

        return 0;
    }

    return value->len > 0;
}


/* Visible ASCII that ends neither a quoted string nor <>. */

ngx_uint_t
ngx_http_once_is_plain(ngx_str_t *value)
{
    u_char      c;
    ngx_uint_t  i;

    for (i = 0; i < value->len; i++) {
        c = value->data[i];

        if (c <= ' ' || c >= 0x7f || c == '<' || c == '>' || c == '"') {
            return 0;
        }
    }

    return value->len > 0;
}


/* The path of a location, without variables. */

static ngx_uint_t
ngx_http_once_is_path(ngx_str_t *value)
{
    ngx_uint_t  i;

    if (value->len == 0 || value->data[0] != '/') {
        return 0;
    }

    for (i = 0; i < value->len; i++) {
        if (value->data[i] <= ' ' || ngx_strchr("?#$\x7f", value->data[i])) {
            return 0;
        }
    }

    return 1;
}


static ngx_uint_t
ngx_http_once_is_given(ngx_str_t *value)
{
    return value->len != 0;
}


ngx_http_complex_value_t *
ngx_http_once_compile(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_http_complex_value_t          *cv;
    ngx_http_compile_complex_value_t   ccv;

    cv = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (cv == NULL) {
        return NULL;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = cv;

    return ngx_http_compile_complex_value(&ccv) == NGX_OK ? cv : NULL;
}


static char *
ngx_http_once_set_text(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_str_t             *value, *field;
    ngx_http_once_text_t  *text;

    text = cmd->post;
    field = (ngx_str_t *) (p + cmd->offset);

    if (field->data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "off")) {
        ngx_str_set(field, "");
        return NGX_CONF_OK;
    }

    if (!text->is_valid(&value[1])) {
        return ngx_http_once_bad(cf, &value[1], text->advice);
    }

    *field = value[1];

    if (text->is_file && ngx_conf_full_name(cf->cycle, field, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* The field at `offset` is of the size of a word, and -1 while not set. */

static char *
ngx_http_once_set_number(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    off_t                    n;
    ngx_int_t               *field;
    ngx_str_t               *value;
    ngx_http_once_number_t  *number;

    number = cmd->post;
    field = (ngx_int_t *) (p + cmd->offset);

    if (*field != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (number->zero && ngx_http_once_is(&value[1], number->zero)) {
        *field = 0;
        return NGX_CONF_OK;
    }

    switch (number->unit) {

    case NGX_HTTP_ONCE_SIZE:
        n = ngx_parse_offset(&value[1]);
        break;

    case NGX_HTTP_ONCE_MSEC:
    case NGX_HTTP_ONCE_SEC:
        n = ngx_parse_time(&value[1], number->unit == NGX_HTTP_ONCE_SEC);
        break;

    default:
        n = ngx_atoi(value[1].data, value[1].len);
    }

    if (n < number->min || n > number->max) {
        return ngx_http_once_bad(cf, &value[1], number->advice);
    }

    *field = (ngx_int_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_once_set_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->store_url.data) {
        return "is duplicate";
    }

    value = cf->args->elts;
    olcf->store_url = value[1];

    return ngx_http_once_check_store(cf, &olcf->store_url);
}


static char *
ngx_http_once_set_name(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->name.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0 || value[1].len > NGX_HTTP_ONCE_NAME_MAX) {
        return ngx_http_once_bad(cf, &value[1], "it must be 1 to 100 bytes");
    }

    olcf->name = value[1];

    return NGX_CONF_OK;
}


static char *
ngx_http_once_set_describe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->describe != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "off")) {
        olcf->describe = NGX_HTTP_ONCE_DESCRIBE_OFF;
        return NGX_CONF_OK;
    }

    if (ngx_http_once_is(&value[1], "path")) {
        olcf->describe = NGX_HTTP_ONCE_DESCRIBE_PATH;
        return NGX_CONF_OK;
    }

    if (value[1].len == 0) {
        return ngx_http_once_bad(cf, &value[1],
                                 "it must be off, path, or a text");
    }

    olcf->describe = NGX_HTTP_ONCE_DESCRIBE_VALUE;
    olcf->describe_value = ngx_http_once_compile(cf, &value[1]);

    return olcf->describe_value ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_once_set_subject(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->subject != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "off")) {
        olcf->subject = NULL;
        return NGX_CONF_OK;
    }

    if (ngx_http_script_variables_count(&value[1]) == 0) {
        return ngx_http_once_bad(cf, &value[1],
                                 "it must be off, or have a variable: all "
                                 "records would have the same subject");
    }

    olcf->subject = ngx_http_once_compile(cf, &value[1]);

    return olcf->subject ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* once_record and once_release may have several arguments. */

static ngx_int_t
ngx_http_once_join(ngx_conf_t *cf, ngx_str_t *text)
{
    u_char      *p;
    size_t       len;
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;
    len = 0;

    for (i = 1; i < cf->args->nelts; i++) {
        len += value[i].len + 1;
    }

    p = ngx_pnalloc(cf->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;

    for (i = 1; i < cf->args->nelts; i++) {
        if (i > 1) {
            *p++ = ',';
        }

        p = ngx_cpymem(p, value[i].data, value[i].len);
    }

    *p = '\0';
    text->len = p - text->data;

    return NGX_OK;
}


/* The library validates it: called here to report the line. */

static char *
ngx_http_once_set_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    int             code;
    ngx_str_t      *text;
    once_error_t    err;
    once_policy_t  *policy;

    text = (ngx_str_t *) (p + cmd->offset);

    if (text->data) {
        return "is duplicate";
    }

    if (ngx_http_once_join(cf, text) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    policy = once_policy_new();
    if (policy == NULL) {
        return NGX_CONF_ERROR;
    }

    code = once_policy_set(policy,
                           (char *) cmd->name.data + sizeof("once_") - 1,
                           (char *) text->data, &err);
    once_policy_free(policy);

    return code == ONCE_OK ? NGX_CONF_OK
                           : ngx_http_once_bad(cf, text, err.text);
}


static char *
ngx_http_once_set_methods(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t           *value;
    ngx_uint_t           i;
    ngx_conf_bitmask_t  *method;

    if (olcf->methods) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        for (method = ngx_http_once_methods; method->name.len; method++) {
            if (ngx_http_once_is(&value[i], (char *) method->name.data)) {
                break;
            }
        }

        if (method->name.len == 0) {
            return ngx_http_once_bad(cf, &value[i], "only POST, PATCH, PUT "
                                     "and DELETE can be guarded; others have "
                                     "no effect that could happen twice");
        }

        olcf->methods |= method->mask;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_once_set_require(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->require != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_once_is(&value[1], "on")) {
        olcf->require = NGX_HTTP_ONCE_REQUIRE_ON;
        return NGX_CONF_OK;
    }

    if (ngx_http_once_is(&value[1], "off")) {
        olcf->require = NGX_HTTP_ONCE_REQUIRE_OFF;
        return NGX_CONF_OK;
    }

    if (ngx_http_script_variables_count(&value[1]) == 0) {
        return ngx_http_once_bad(cf, &value[1], "it must be on, off or a "
                                 "variable such as $require_key");
    }

    olcf->require = NGX_HTTP_ONCE_REQUIRE_VALUE;
    olcf->require_value = ngx_http_once_compile(cf, &value[1]);

    return olcf->require_value ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_once_set_on_store_error(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_str_t  *value;

    if (olcf->pass_on_error != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    olcf->pass_on_error = ngx_http_once_is(&value[1], "pass");

    if (!olcf->pass_on_error && !ngx_http_once_is(&value[1], "fail")) {
        return ngx_http_once_bad(cf, &value[1], "it must be fail (answer "
                                 "503) or pass (forward unguarded)");
    }

    return NGX_CONF_OK;
}


/* --------------------------------------------------------------- the table */

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


static ngx_http_once_text_t  ngx_http_once_expires_header = {
    ngx_http_once_is_token,
    "it must be the name of a response header such as Idempotency-Expires, "
    "or off",
    0
};


static ngx_http_once_text_t  ngx_http_once_echo_key = {
    ngx_http_once_is_token,
    "it must be the name of a response header such as Idempotency-Key, or off",
    0
};


static ngx_http_once_text_t  ngx_http_once_authorize_uri = {
    ngx_http_once_is_path,
    "it must be the path of a location such as /authorize, without "
    "variables, or off",
    0
};


static ngx_http_once_text_t  ngx_http_once_docs = {
    ngx_http_once_is_plain,
    "it must be the URL of a page that explains the errors, without spaces "
    "or quotes, or off",
    0
};


static ngx_http_once_number_t  ngx_http_once_store_timeout = {
    NGX_HTTP_ONCE_MSEC, 1, NGX_MAX_OFF_T_VALUE, NULL,
    "it must be a time such as 5s or 500ms"
};


static ngx_http_once_number_t  ngx_http_once_store_body = {
    NGX_HTTP_ONCE_SIZE, 1, ONCE_BODY_STORE_MAX, "off",
    "it must be a size from 1 to 16m, or off; larger responses pass through "
    "and are recorded without their body"
};


static ngx_http_once_number_t  ngx_http_once_bodies = {
    NGX_HTTP_ONCE_SIZE, 1, NGX_MAX_OFF_T_VALUE, "off",
    "it must be a size such as 1g, or off"
};


static ngx_http_once_number_t  ngx_http_once_stats = {
    NGX_HTTP_ONCE_MSEC, 1000, NGX_MAX_OFF_T_VALUE, "off",
    "it must be a time of at least 1s, or off"
};


/* Twice the largest response, so that any can be replayed and recorded. */

static ngx_http_once_number_t  ngx_http_once_memory = {
    NGX_HTTP_ONCE_SIZE, 2 * (ONCE_BODY_STORE_MAX + ONCE_HEADERS_MAX),
    NGX_MAX_OFF_T_VALUE, NULL,
    "it must be a size of at least 33m, which fits the largest response that "
    "can be recorded"
};


static ngx_http_once_number_t  ngx_http_once_unknown_max = {
    NGX_HTTP_ONCE_NUMBER, 1, 10000, "off",
    "it must be a number from 1 to 10000, or off"
};


static ngx_http_once_number_t  ngx_http_once_retry_after = {
    NGX_HTTP_ONCE_SEC, 1, 86400, "auto",
    "it must be auto, or seconds from 1 to 86400"
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
      ngx_http_once_set_number,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(store_timeout),
      &ngx_http_once_store_timeout },

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
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_key,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_key_format"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_key_format,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_scope"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_scope,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_scope_path"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(scope_path),
      NULL },

    { ngx_string("once_describe"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_describe,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_subject"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_subject,
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
      ngx_http_once_set_number,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(store_body),
      &ngx_http_once_store_body },

    { ngx_string("once_store_no_store"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(store_no_store),
      NULL },

    { ngx_string("once_mcp"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_mcp,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_redact"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_once_set_redact,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_bodies"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_once_set_number,
      NGX_HTTP_MAIN_CONF_OFFSET,
      ngx_http_once_main_slot(bodies),
      &ngx_http_once_bodies },

    { ngx_string("once_stats"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_once_set_number,
      NGX_HTTP_MAIN_CONF_OFFSET,
      ngx_http_once_main_slot(stats),
      &ngx_http_once_stats },

    { ngx_string("once_memory"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_once_set_number,
      NGX_HTTP_MAIN_CONF_OFFSET,
      ngx_http_once_main_slot(memory),
      &ngx_http_once_memory },

    { ngx_string("once_quota"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_quota,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_unknown_max"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_number,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(unknown_max),
      &ngx_http_once_unknown_max },

    { ngx_string("once_retry_after"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_number,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(retry_after),
      &ngx_http_once_retry_after },

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

    { ngx_string("once_expires_header"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_text,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(expires_header),
      &ngx_http_once_expires_header },

    { ngx_string("once_echo_key"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_text,
      NGX_HTTP_LOC_CONF_OFFSET,
      ngx_http_once_slot(echo_key),
      &ngx_http_once_echo_key },

    { ngx_string("once_error"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_2MORE,
      ngx_http_once_set_error,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_error_body"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_once_set_error_body,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_error_header"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_once_set_error_header,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_profile"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_once_set_profile,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_profile_define"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE12,
      ngx_http_once_define_profile,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

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
      ngx_http_once_problem_page,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_probe"),
      NGX_HTTP_ONCE_ANYWHERE|NGX_CONF_TAKE123,
      ngx_http_once_set_probe,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("once_ready"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_once_ready,
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
