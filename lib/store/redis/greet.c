#include "store/redis/greet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_MIN 7

typedef enum step { STEP_AUTH, STEP_SELECT, STEP_NAME, STEP_INFO, STEP_PING } step_t;

typedef struct greeting {
    once__redis_call_t call;
    step_t step;
} greeting_t;

/* ------------------------------------------------------------------------------------------------------------ judging */

/* The value of a line `name:value` of INFO, as text that ends with the line. NULL: there is none. */
static const char *find_line(const char *info, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = info; line != NULL && *line != '\0';) {
        if (strncmp(line, name, len) == 0 && line[len] == ':') {
            return line + len + 1;
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return NULL;
}

static int line_is(const char *info, const char *name, const char *value)
{
    const char *found = find_line(info, name);

    return found != NULL && strncmp(found, value, strlen(value)) == 0 &&
           strchr("\r\n", found[strlen(value)]) != NULL;
}

static unsigned long long line_number(const char *info, const char *name)
{
    const char *found = find_line(info, name);

    return found != NULL ? strtoull(found, NULL, 10) : 0;
}

static int refuse(char *trouble, int code, const char *text)
{
    (void)snprintf(trouble, ONCE__REDIS_TROUBLE_SIZE, "%s", text);
    return code;
}

static int judge_eviction(const char *info, const once__redis_settings_t *settings, char *trouble)
{
    const char *policy = find_line(info, "maxmemory_policy");

    if (policy == NULL || settings->accept_eviction || line_number(info, "maxmemory") == 0 ||
        line_is(info, "maxmemory_policy", "noeviction")) {
        return ONCE_OK;
    }
    (void)snprintf(trouble, ONCE__REDIS_TROUBLE_SIZE,
                   "maxmemory-policy is %.*s: a full Redis would forget records, and operations "
                   "would run twice; set noeviction",
                   (int)strcspn(policy, "\r\n"), policy);
    return ONCE_E_CONFIG;
}

int once__redis_judge_info(const char *info, const once__redis_settings_t *settings,
                           char trouble[ONCE__REDIS_TROUBLE_SIZE], uint64_t *max_bytes)
{
    int is_cluster = line_is(info, "cluster_enabled", "1");

    *max_bytes = line_number(info, "maxmemory");
    if (line_number(info, "redis_version") < VERSION_MIN) {
        return refuse(trouble, ONCE_E_CONFIG, "the server is older than Redis 7.0");
    }
    if (settings->mode == ONCE__REDIS_CLUSTER && !is_cluster) {
        return refuse(trouble, ONCE_E_CONFIG, "the server is not part of a cluster: redis://");
    }
    if (settings->mode != ONCE__REDIS_CLUSTER && is_cluster) {
        return refuse(trouble, ONCE_E_CONFIG, "the server is part of a cluster: redis+cluster://");
    }
    if (line_is(info, "loading", "1")) {
        return refuse(trouble, ONCE_E_UNAVAILABLE, "the server is loading its data");
    }
    /* A cluster's replicas can still tell where the masters are. */
    if (settings->mode != ONCE__REDIS_CLUSTER && !line_is(info, "role", "master")) {
        return refuse(trouble, ONCE_E_UNAVAILABLE, "the server is a replica");
    }
    return judge_eviction(info, settings, trouble);
}

void once__redis_add_size(const char *info, unsigned database, uint64_t *keys, uint64_t *bytes)
{
    char name[16];
    const char *found;

    (void)snprintf(name, sizeof(name), "db%u", database);
    found = find_line(info, name);
    if (found != NULL && strncmp(found, "keys=", 5) == 0) {
        *keys += strtoull(found + 5, NULL, 10);
    }
    *bytes += line_number(info, "used_memory");
}

/* ----------------------------------------------------------------------------------------------------------- greeting */

static int begins(const redisReply *reply, const char *text)
{
    return strncmp(reply->str, text, strlen(text)) == 0;
}

static int judge_error(const greeting_t *greeting, const redisReply *reply, char *trouble)
{
    static const char *const steps[] = {"log in", "select the database", "connect", "ask for INFO",
                                        "ask the sentinel"};
    /* Some of these come before anything was asked, and the connection ends. */
    int is_away = begins(reply, "LOADING") || begins(reply, "MASTERDOWN") ||
                  begins(reply, "ERR max number of clients");

    if (greeting->step == STEP_NAME && !is_away && !begins(reply, "DENIED")) {
        return ONCE_OK; /* a courtesy */
    }
    (void)snprintf(trouble, ONCE__REDIS_TROUBLE_SIZE, "once could not %s: %.120s",
                   steps[greeting->step], reply->str);
    return is_away ? ONCE_E_UNAVAILABLE : ONCE_E_CONFIG;
}

static int judge(const greeting_t *greeting, const redisReply *reply)
{
    once__redis_shared_t *shared = greeting->call.link->shared;

    if (reply->type == REDIS_REPLY_ERROR) {
        return judge_error(greeting, reply, shared->trouble);
    }
    if (greeting->step == STEP_INFO) {
        return reply->type == REDIS_REPLY_STRING
                   ? once__redis_judge_info(reply->str, shared->settings, shared->trouble,
                                            &shared->max_bytes)
                   : ONCE_E_UNAVAILABLE;
    }
    return ONCE_OK;
}

static void answered(once__redis_call_t *call, const redisReply *reply)
{
    greeting_t *greeting = (greeting_t *)call;
    once__redis_link_t *link = call->link;
    int code = reply != NULL ? judge(greeting, reply) : ONCE_OK;

    free(greeting);
    link->greeting_count--;
    if (reply == NULL) {
        return; /* whoever ended the connection says so */
    }
    if (code != ONCE_OK || link->greeting_count == 0) {
        once__redis_link_greeted(link, code);
    }
}

static int say(once__redis_link_t *link, step_t step, int argc, const char **argv)
{
    greeting_t *greeting = calloc(1, sizeof(*greeting));
    size_t lengths[3];

    if (greeting == NULL) {
        return -1;
    }
    for (int i = 0; i < argc; i++) {
        lengths[i] = strlen(argv[i]);
    }
    greeting->step = step;
    greeting->call.done = answered;
    if (once__redis_link_call(link, &greeting->call, argc, argv, lengths) != 0) {
        free(greeting);
        return -1;
    }
    link->greeting_count++;
    return 0;
}

static int say_who(once__redis_link_t *link, const char *user, const char *password)
{
    const char *with_user[] = {"AUTH", user, password}, *without[] = {"AUTH", password};

    if (password == NULL) {
        return 0;
    }
    return user != NULL ? say(link, STEP_AUTH, 3, with_user) : say(link, STEP_AUTH, 2, without);
}

int once__redis_greet(once__redis_link_t *link)
{
    const once__redis_settings_t *s = link->shared->settings;
    const char *name[] = {"CLIENT", "SETNAME", "once"}, *info[] = {"INFO"};
    const char *ping[] = {"PING"};
    char number[16];
    const char *database[] = {"SELECT", number};
    int code;

    if (link->is_sentinel) {
        code = say_who(link, s->sentinel_user, s->sentinel_password);
        return code == 0 ? say(link, STEP_PING, 1, ping) : code;
    }
    (void)snprintf(number, sizeof(number), "%u", s->database);
    code = say_who(link, s->user, s->password);
    code = code == 0 && s->database != 0 ? say(link, STEP_SELECT, 2, database) : code;
    code = code == 0 ? say(link, STEP_NAME, 3, name) : code;
    return code == 0 ? say(link, STEP_INFO, 1, info) : code;
}
