/*
 * Profiles: the rules of a wire protocol as defaults of directives. A profile
 * is data: the table below, or once_profile_define. What is configured wins:
 *
 *   the location's own  >  inherited  >  the profile  >  the default
 *
 * Therefore a profile is read into a configuration of its own, which takes the
 * place of the defaults: the blocks around a location are merged once more on
 * top of it, from the outermost to the location.
 *
 * docs/profiles.md has the same table; a test compares them.
 */
#include "ngx_http_once_conf.h"


#define NGX_HTTP_ONCE_PROFILES  6
#define NGX_HTTP_ONCE_WORDS     8    /* of a directive in the table */


typedef struct {
    const char                  *directive;
    const char                  *value[NGX_HTTP_ONCE_PROFILES];
} ngx_http_once_rule_t;


/* A profile that is used, or was defined. */
typedef struct {
    ngx_str_t                    name;
    ngx_http_once_loc_conf_t    *conf;    /* all values are set */
} ngx_http_once_profile_t;


static const char *const  ngx_http_once_profile_names[] = {
    "default", "draft07", "stripe", "acp", "ucp", "iceberg"
};


/*
 * In the order of the names. Words are separated by spaces. The status of
 * response-lost and backend-unavailable is 502 or 504 unless it is set.
 */

static const ngx_http_once_rule_t  ngx_http_once_rules[] = {

    { "once_methods",
      { "POST PATCH", "POST PATCH", "POST", "POST", "POST PUT PATCH DELETE",
        "POST DELETE" } },

    { "once_require",
      { "on", "on", "off", "on", "off", "off" } },

    { "once_key",
      { "Idempotency-Key", "Idempotency-Key strict", "Idempotency-Key",
        "Idempotency-Key", "Idempotency-Key", "Idempotency-Key" } },

    { "once_key_format",
      { "any", "any", "any", "any", "min=22", "uuid7" } },

    { "once_scope_path",
      { "off", "off", "off", "on", "on", "off" } },

    { "once_fingerprint",
      { "exact", "exact", "exact", "json", "exact", "json" } },

    { "once_wait",
      { "off", "off", "off", "off", "off", "5s" } },

    { "once_record",
      { "2xx 3xx 4xx", "2xx 3xx 4xx", "all", "2xx 3xx 4xx", "2xx 3xx 4xx",
        "2xx 3xx 4xx" } },

    { "once_ttl",
      { "24h", "24h", "24h", "24h", "48h", "24h" } },

    { "once_on_store_error",
      { "fail", "fail", "fail", "fail", "fail", "fail" } },

    { "once_echo_key",
      { "off", "off", "Idempotency-Key", "Idempotency-Key", "off", "off" } },

    { "once_replay_header",
      { "Idempotent-Replayed", "Idempotent-Replayed", "Idempotent-Replayed",
        "Idempotent-Replayed", "Idempotent-Replayed",
        "Idempotent-Replayed" } },

    { "once_expires_header",
      { "Idempotency-Expires", "Idempotency-Expires", "off",
        "Idempotency-Expires", "Idempotency-Expires", "off" } },

    { "once_error_body",
      { "problem", "problem",
        "{\"error\":{\"type\":\"$once_error_type\","
        "\"code\":\"$once_error_code\",\"message\":\"$once_error_detail\"}}",
        "{\"type\":\"$once_error_type\",\"code\":\"$once_error_code\","
        "\"message\":\"$once_error_detail\"}",
        "{\"ucp\":{\"version\":\"2026-08-25\",\"status\":\"error\"},"
        "\"messages\":[{\"type\":\"error\",\"code\":\"$once_error_code\","
        "\"content\":\"$once_error_detail\","
        "\"severity\":\"$once_error_type\"}]}",
        "{\"error\":{\"message\":\"$once_error_detail\","
        "\"type\":\"$once_error_type\",\"code\":$once_error_status}}" } },

    { "once_error_header",
      { "off", "off", "Stripe-Should-Retry $once_error_retryable", "off",
        "off", "off" } },

    { "once_error key-missing",
      { "status=400 code=key-missing type=invalid_request_error",
        "status=400 code=key-missing type=invalid_request_error",
        "status=400 code=idempotency_key_missing type=invalid_request_error",
        "status=400 code=idempotency_key_required type=invalid_request",
        "status=400 code=idempotency_key_required type=recoverable",
        "status=400 code=key-missing type=BadRequestException" } },

    { "once_error key-invalid",
      { "status=400 code=key-invalid type=invalid_request_error",
        "status=400 code=key-invalid type=invalid_request_error",
        "status=400 code=idempotency_key_invalid type=invalid_request_error",
        "status=400 code=idempotency_key_invalid type=invalid_request",
        "status=400 code=idempotency_key_invalid type=recoverable",
        "status=400 code=key-invalid type=BadRequestException" } },

    { "once_error scope-missing",
      { "status=400 code=scope-missing type=invalid_request_error",
        "status=400 code=scope-missing type=invalid_request_error",
        "status=400 code=caller_unknown type=invalid_request_error",
        "status=400 code=caller_unknown type=invalid_request",
        "status=400 code=caller_unknown type=recoverable",
        "status=400 code=scope-missing type=BadRequestException" } },

    { "once_error in-flight",
      { "status=409 code=in-flight type=idempotency_error",
        "status=409 code=in-flight type=idempotency_error",
        "status=409 code=idempotency_key_in_use type=idempotency_error",
        "status=409 code=idempotency_in_flight type=invalid_request",
        "status=409 code=idempotency_in_flight type=recoverable",
        "status=503 code=in-flight type=request_in_progress" } },

    { "once_error in-doubt",
      { "status=409 code=in-doubt type=idempotency_error",
        "status=409 code=in-doubt type=idempotency_error",
        "status=409 code=idempotency_key_in_use type=idempotency_error",
        "status=409 code=idempotency_in_flight type=invalid_request",
        "status=409 code=idempotency_in_flight type=recoverable",
        "status=500 code=in-doubt type=CommitStateUnknownException" } },

    { "once_error outcome-unknown",
      { "status=409 code=outcome-unknown type=idempotency_error",
        "status=409 code=outcome-unknown type=idempotency_error",
        "status=409 code=outcome_unknown type=idempotency_error",
        "status=409 code=idempotency_outcome_unknown type=invalid_request",
        "status=409 code=idempotency_outcome_unknown "
        "type=requires_buyer_review",
        "status=500 code=outcome-unknown type=CommitStateUnknownException" } },

    { "once_error key-reused",
      { "status=422 code=key-reused type=idempotency_error",
        "status=422 code=key-reused type=idempotency_error",
        "status=400 code=idempotency_key_reused type=idempotency_error",
        "status=422 code=idempotency_conflict type=invalid_request",
        "status=409 code=idempotency_conflict type=recoverable",
        "status=422 code=key-reused type=idempotency_key_conflict" } },

    { "once_error too-many-waiters",
      { "status=429 code=too-many-waiters type=rate_limit_error",
        "status=429 code=too-many-waiters type=rate_limit_error",
        "status=429 code=rate_limit type=rate_limit_error",
        "status=429 code=rate_limited type=service_unavailable",
        "status=429 code=rate_limited type=recoverable",
        "status=429 code=too-many-waiters type=TooManyRequestsException" } },

    { "once_error quota-exceeded",
      { "status=429 code=quota-exceeded type=rate_limit_error",
        "status=429 code=quota-exceeded type=rate_limit_error",
        "status=429 code=rate_limit type=rate_limit_error",
        "status=429 code=rate_limited type=service_unavailable",
        "status=429 code=rate_limited type=recoverable",
        "status=429 code=quota-exceeded type=TooManyRequestsException" } },

    { "once_error response-incomplete",
      { "status=502 code=response-incomplete type=api_error",
        "status=502 code=response-incomplete type=api_error",
        "status=502 code=response-incomplete type=api_error",
        "status=502 code=response_lost type=processing_error",
        "status=502 code=response_lost type=recoverable",
        "status=502 code=response-lost type=CommitStateUnknownException" } },

    { "once_error response-lost",
      { "code=response-lost type=api_error",
        "code=response-lost type=api_error",
        "code=response-lost type=api_error",
        "code=response_lost type=processing_error",
        "code=response_lost type=recoverable",
        "code=response-lost type=CommitStateUnknownException" } },

    { "once_error backend-unavailable",
      { "code=backend-unavailable type=api_error",
        "code=backend-unavailable type=api_error",
        "code=backend-unavailable type=api_error",
        "code=backend_unavailable type=service_unavailable",
        "code=backend_unavailable type=recoverable",
        "status=503 code=backend-unavailable "
        "type=ServiceUnavailableException" } },

    { "once_error store-unavailable",
      { "status=503 code=store-unavailable type=api_error",
        "status=503 code=store-unavailable type=api_error",
        "status=503 code=store-unavailable type=api_error",
        "status=503 code=idempotency_unavailable type=service_unavailable",
        "status=503 code=idempotency_unavailable type=recoverable",
        "status=503 code=store-unavailable "
        "type=ServiceUnavailableException" } },

    { "once_error authorization-unavailable",
      { "status=503 code=authorization-unavailable type=api_error",
        "status=503 code=authorization-unavailable type=api_error",
        "status=503 code=authorization-unavailable type=api_error",
        "status=503 code=authorization_unavailable type=service_unavailable",
        "status=503 code=authorization_unavailable type=recoverable",
        "status=503 code=authorization-unavailable "
        "type=ServiceUnavailableException" } },

    { "once_error out-of-memory",
      { "status=503 code=out-of-memory type=api_error",
        "status=503 code=out-of-memory type=api_error",
        "status=503 code=out-of-memory type=api_error",
        "status=503 code=overloaded type=service_unavailable",
        "status=503 code=overloaded type=recoverable",
        "status=503 code=out-of-memory "
        "type=ServiceUnavailableException" } },

    { "once_error too-many-unknown",
      { "status=503 code=too-many-unknown type=api_error",
        "status=503 code=too-many-unknown type=api_error",
        "status=503 code=too-many-unknown type=api_error",
        "status=503 code=too_many_unknown type=service_unavailable",
        "status=503 code=too_many_unknown type=recoverable",
        "status=503 code=too-many-unknown "
        "type=ServiceUnavailableException" } },

    { NULL, { NULL, NULL, NULL, NULL, NULL, NULL } }
};


/* ------------------------------------------------------------- directives */

static ngx_command_t *
ngx_http_once_profile_command(ngx_str_t *name)
{
    ngx_command_t  *cmd;

    for (cmd = ngx_http_once_commands; cmd->name.len; cmd++) {
        if (ngx_http_once_is(name, (char *) cmd->name.data)) {
            return cmd;
        }
    }

    return NULL;
}


/* Only what a protocol can prescribe is part of a profile. */

static ngx_uint_t
ngx_http_once_profile_has(ngx_str_t *name)
{
    size_t                       len;
    const ngx_http_once_rule_t  *rule;

    for (rule = ngx_http_once_rules; rule->directive; rule++) {
        len = strcspn(rule->directive, " ");

        if (name->len == len
            && ngx_strncmp(name->data, rule->directive, len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* As in nginx's own table: a bit for each number of arguments. */

static ngx_uint_t
ngx_http_once_profile_takes(ngx_command_t *cmd, ngx_uint_t n)
{
    if (cmd->type & NGX_CONF_FLAG) {
        return n == 1;
    }

    if (cmd->type & (NGX_CONF_1MORE|NGX_CONF_2MORE)) {
        return n >= ((cmd->type & NGX_CONF_2MORE) ? 2 : 1);
    }

    return n < NGX_HTTP_ONCE_WORDS && (cmd->type & ((ngx_uint_t) 1 << n));
}


/* Sets one directive, whose words are cf->args, in the profile's own conf. */

static char *
ngx_http_once_profile_set(ngx_conf_t *cf, ngx_command_t *dummy, void *conf)
{
    char           *rv;
    ngx_str_t      *value;
    ngx_command_t  *cmd;

    value = cf->args->elts;
    cmd = ngx_http_once_profile_has(&value[0])
          ? ngx_http_once_profile_command(&value[0]) : NULL;

    if (cmd == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" cannot be a part of a profile", &value[0]);
        return NGX_CONF_ERROR;
    }

    if (!ngx_http_once_profile_takes(cmd, cf->args->nelts - 1)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid number of arguments "
                           "in \"%V\" directive", &value[0]);
        return NGX_CONF_ERROR;
    }

    rv = cmd->set(cf, cmd, conf);

    if (rv == NGX_CONF_OK || rv == NGX_CONF_ERROR) {
        return rv;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" directive %s", &value[0],
                       rv);

    return NGX_CONF_ERROR;
}


/* ------------------------------------------------------------ the profiles */

static ngx_int_t
ngx_http_once_profile_split(ngx_conf_t *cf, ngx_array_t *words,
    const char *text)
{
    size_t      len;
    ngx_str_t  *word;

    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {

        len = strcspn(text, " ");

        word = ngx_array_push(words);
        if (word == NULL) {
            return NGX_ERROR;
        }

        word->len = len;
        word->data = ngx_pnalloc(cf->pool, len + 1);
        if (word->data == NULL) {
            return NGX_ERROR;
        }

        ngx_cpystrn(word->data, (u_char *) text, len + 1);

        text += len;
    }

    return NGX_OK;
}


/* Reads a column of the table. */

static ngx_int_t
ngx_http_once_profile_read(ngx_conf_t *cf, ngx_uint_t column,
    ngx_http_once_loc_conf_t *conf)
{
    char                        *rv;
    ngx_array_t                 *args, words;
    const ngx_http_once_rule_t  *rule;

    if (ngx_array_init(&words, cf->pool, NGX_HTTP_ONCE_WORDS,
                       sizeof(ngx_str_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (rule = ngx_http_once_rules; rule->directive; rule++) {

        words.nelts = 0;

        if (ngx_http_once_profile_split(cf, &words, rule->directive) != NGX_OK
            || ngx_http_once_profile_split(cf, &words, rule->value[column])
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        args = cf->args;
        cf->args = &words;

        rv = ngx_http_once_profile_set(cf, NULL, conf);

        cf->args = args;

        if (rv != NGX_CONF_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_http_once_profile_t *
ngx_http_once_profile_add(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_http_once_profile_t    *profile;
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    if (omcf->profiles == NULL) {
        omcf->profiles = ngx_array_create(cf->pool, NGX_HTTP_ONCE_PROFILES,
                                          sizeof(ngx_http_once_profile_t));
        if (omcf->profiles == NULL) {
            return NULL;
        }
    }

    profile = ngx_array_push(omcf->profiles);
    if (profile == NULL) {
        return NULL;
    }

    profile->name = *name;
    profile->conf = ngx_http_once_create_loc_conf(cf);

    return profile->conf ? profile : NULL;
}


/* NGX_DECLINED: there is none of that name. */

static ngx_int_t
ngx_http_once_profile_find(ngx_conf_t *cf, ngx_str_t *name,
    ngx_http_once_loc_conf_t **conf)
{
    ngx_uint_t                  i;
    ngx_http_once_profile_t    *profile;
    ngx_http_once_loc_conf_t   *none;
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    for (i = 0; omcf->profiles && i < omcf->profiles->nelts; i++) {
        profile = omcf->profiles->elts;

        if (profile[i].name.len == name->len
            && ngx_strncmp(profile[i].name.data, name->data, name->len) == 0)
        {
            *conf = profile[i].conf;
            return NGX_OK;
        }
    }

    for (i = 0; i < NGX_HTTP_ONCE_PROFILES; i++) {
        if (ngx_http_once_is(name, ngx_http_once_profile_names[i])) {
            break;
        }
    }

    if (i == NGX_HTTP_ONCE_PROFILES) {
        return NGX_DECLINED;
    }

    none = ngx_http_once_create_loc_conf(cf);
    profile = ngx_http_once_profile_add(cf, name);

    if (none == NULL || profile == NULL
        || ngx_http_once_profile_read(cf, i, profile->conf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_once_inherit(none, profile->conf);
    *conf = profile->conf;

    return NGX_OK;
}


static char *
ngx_http_once_profile_unknown(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown profile \"%V\": it must be default, draft07, "
                       "stripe, acp, ucp, iceberg, or the name of a "
                       "\"once_profile_define\" before this line", name);

    return NGX_CONF_ERROR;
}


/* The blocks from the outermost on, each on top of the one around it. */

static ngx_http_once_loc_conf_t *
ngx_http_once_profile_compose(ngx_conf_t *cf,
    ngx_http_once_loc_conf_t *written, ngx_http_once_loc_conf_t *base)
{
    ngx_http_once_loc_conf_t  *conf;

    if (written->outer) {
        base = ngx_http_once_profile_compose(cf, written->outer, base);
        if (base == NULL) {
            return NULL;
        }
    }

    conf = ngx_palloc(cf->temp_pool, sizeof(ngx_http_once_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    *conf = *written;
    ngx_http_once_inherit(base, conf);

    return conf;
}


ngx_int_t
ngx_http_once_profile_merge(ngx_conf_t *cf, ngx_http_once_loc_conf_t *conf)
{
    ngx_http_once_loc_conf_t  *written, *merged;

    written = conf->written;

    merged = ngx_http_once_profile_compose(cf, written, conf->profile);
    if (merged == NULL) {
        return NGX_ERROR;
    }

    merged->profile = conf->profile;
    *conf = *merged;
    conf->written = written;

    return NGX_OK;
}


char *
ngx_http_once_set_profile(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_once_loc_conf_t *olcf = conf;

    ngx_int_t   rc;
    ngx_str_t  *value;

    if (olcf->profile) {
        return "is duplicate";
    }

    value = cf->args->elts;
    rc = ngx_http_once_profile_find(cf, &value[1], &olcf->profile);

    if (rc == NGX_DECLINED) {
        return ngx_http_once_profile_unknown(cf, &value[1]);
    }

    return rc == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* once_profile_define NAME [BASE] { directives } */

char *
ngx_http_once_define_profile(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                      *rv;
    ngx_int_t                  rc;
    ngx_str_t                 *value, name, base;
    ngx_conf_t                 save;
    ngx_http_once_profile_t   *profile;
    ngx_http_once_loc_conf_t  *known;

    value = cf->args->elts;
    name = value[1];
    ngx_str_set(&base, "default");

    if (cf->args->nelts == 3) {
        base = value[2];
    }

    if (!ngx_http_once_is_token(&name)) {
        return ngx_http_once_bad(cf, &name, "the name of a profile has "
                                 "letters, digits, \"-\", \"_\" and \".\"");
    }

    rc = ngx_http_once_profile_find(cf, &name, &known);

    if (rc != NGX_DECLINED) {
        return rc == NGX_OK ? "has the name of a profile that there is"
                            : NGX_CONF_ERROR;
    }

    rc = ngx_http_once_profile_find(cf, &base, &known);

    if (rc != NGX_OK) {
        return rc == NGX_DECLINED ? ngx_http_once_profile_unknown(cf, &base)
                                  : NGX_CONF_ERROR;
    }

    profile = ngx_http_once_profile_add(cf, &name);
    if (profile == NULL) {
        return NGX_CONF_ERROR;
    }

    save = *cf;
    cf->handler = ngx_http_once_profile_set;
    cf->handler_conf = (void *) profile->conf;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv == NGX_CONF_OK) {
        ngx_http_once_inherit(known, profile->conf);
    }

    return rv;
}
