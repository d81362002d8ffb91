#include "store/redis/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_MIN 7

typedef enum step { STEP_AUTH, STEP_SELECT, STEP_NAME, STEP_INFO, STEP_PING } step_t;

/* One command of it. */
typedef struct handshake {
    once__redis_call_t call;
    step_t step;
} handshake_t;

/* ------------------------------------------------------------------------------------------------------------ judging */

/* The value of a line `name:value` of INFO; it ends with the line. NULL: there is none. */
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
    /* A replica in a cluster still knows where the masters are. */
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

/* ----------------------------------------------------------------------------------------------------------- handshake */

static int begins(const redisReply *reply, const char *text)
{
    return strncmp(reply->str, text, strlen(text)) == 0;
}

static int judge_error(const handshake_t *handshake, const redisReply *reply, char *trouble)
{
    static const char *const steps[] = {"log in", "select the database", "connect", "ask for INFO",
                                        "ask the sentinel"};
    /* Some of these come before any command, and then the connection ends. */
    int is_away = begins(reply, "LOADING") || begins(reply, "MASTERDOWN") ||
                  begins(reply, "ERR max number of clients");

    if (handshake->step == STEP_NAME && !is_away && !begins(reply, "DENIED")) {
        return ONCE_OK; /* only a courtesy */
    }
    (void)snprintf(trouble, ONCE__REDIS_TROUBLE_SIZE, "once could not %s: %.120s",
                   steps[handshake->step], reply->str);
    return is_away ? ONCE_E_UNAVAILABLE : ONCE_E_CONFIG;
}

static void note_server(const char *info, once__redis_shared_t *shared)
{
    const char *version = find_line(info, "redis_version");

    if (version != NULL) {
        (void)snprintf(shared->server, sizeof(shared->server), "Redis %.*s",
                       (int)strcspn(version, "\r\n"), version);
    }
}

static int judge(const handshake_t *handshake, const redisReply *reply)
{
    once__redis_shared_t *shared = handshake->call.connection->shared;

    if (reply->type == REDIS_REPLY_ERROR) {
        return judge_error(handshake, reply, shared->trouble);
    }
    if (handshake->step != STEP_INFO) {
        return ONCE_OK;
    }
    if (reply->type != REDIS_REPLY_STRING) {
        return ONCE_E_UNAVAILABLE;
    }
    note_server(reply->str, shared);
    return once__redis_judge_info(reply->str, shared->settings, shared->trouble,
                                  &shared->max_bytes);
}

static void finish(once__redis_connection_t *connection, int code)
{
    if (code != ONCE_OK) {
        connection->refusal = code;
        once__redis_connection_condemn(connection);
        return;
    }
    if (!connection->is_sentinel && !connection->shared->is_complaint) {
        connection->shared->trouble[0] = '\0';
    }
    connection->failures = 0;
    connection->retry_at = 0;
    connection->state = ONCE__REDIS_READY;
    once__timer_stop(connection->shared->loop, &connection->timer);
    connection->shared->changed(connection->shared->data, connection);
}

static void answered(once__redis_call_t *call, const redisReply *reply)
{
    handshake_t *handshake = (handshake_t *)call;
    once__redis_connection_t *connection = call->connection;
    int code = reply != NULL ? judge(handshake, reply) : ONCE_OK;

    free(handshake);
    connection->handshake_count--;
    if (reply == NULL) {
        return; /* the connection ended, and its end is handled there */
    }
    if (code != ONCE_OK || connection->handshake_count == 0) {
        finish(connection, code);
    }
}

static int say(once__redis_connection_t *connection, step_t step, int argc, const char **argv)
{
    handshake_t *handshake = calloc(1, sizeof(*handshake));
    size_t lengths[3];

    if (handshake == NULL) {
        return -1;
    }
    for (int i = 0; i < argc; i++) {
        lengths[i] = strlen(argv[i]);
    }
    handshake->step = step;
    handshake->call.done = answered;
    if (once__redis_connection_call(connection, &handshake->call, argc, argv, lengths) != 0) {
        free(handshake);
        return -1;
    }
    connection->handshake_count++;
    return 0;
}

static int say_auth(once__redis_connection_t *connection, const char *user, const char *password)
{
    const char *with_user[] = {"AUTH", user, password}, *without[] = {"AUTH", password};

    if (password == NULL) {
        return 0;
    }
    return user != NULL ? say(connection, STEP_AUTH, 3, with_user)
                        : say(connection, STEP_AUTH, 2, without);
}

int once__redis_handshake(once__redis_connection_t *connection)
{
    const once__redis_settings_t *s = connection->shared->settings;
    const char *name[] = {"CLIENT", "SETNAME", "once"}, *info[] = {"INFO"};
    const char *ping[] = {"PING"};
    char number[16];
    const char *database[] = {"SELECT", number};
    int code;

    if (connection->is_sentinel) {
        code = say_auth(connection, s->sentinel_user, s->sentinel_password);
        return code == 0 ? say(connection, STEP_PING, 1, ping) : code;
    }
    (void)snprintf(number, sizeof(number), "%u", s->database);
    code = say_auth(connection, s->user, s->password);
    code = code == 0 && s->database != 0 ? say(connection, STEP_SELECT, 2, database) : code;
    code = code == 0 ? say(connection, STEP_NAME, 3, name) : code;
    return code == 0 ? say(connection, STEP_INFO, 1, info) : code;
}
