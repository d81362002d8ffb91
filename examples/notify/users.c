#include "users.h"

#include <stdio.h>
#include <string.h>

#define ADDRESS_MAX 254

/* A mail address goes into the dialogue with a mail server: nothing in it may end a line or an argument there. */
static int mail_valid(const char *text)
{
    const char *at = strchr(text, '@');

    return at != NULL && at != text && at[1] != '\0' && strchr(at + 1, '@') == NULL;
}

static int address_valid(channel_t channel, const char *text)
{
    size_t len = strlen(text);

    if (len == 0 || len > ADDRESS_MAX) {
        return 0;
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (*c <= 0x20 || *c >= 0x7f || strchr("<>\",;\\()", *c) != NULL) {
            return 0;
        }
    }
    return channel != CHANNEL_MAIL || mail_valid(text);
}

/* 0, or -1: `wrong` names the member that is. */
static int read_user(const char *id, json_t *object, user_t *user, const char **wrong)
{
    const json_t *name = json_object_get(object, "name");

    *user = (user_t){.id = id, .name = id};
    *wrong = "id";
    if (id == NULL || id[0] == '\0' || strlen(id) > ADDRESS_MAX) {
        return -1;
    }
    *wrong = "name";
    if (name != NULL && (user->name = json_string_value(name)) == NULL) {
        return -1;
    }
    for (channel_t channel = 0; channel < CHANNELS; channel++) {
        const json_t *address = json_object_get(object, channel_name(channel));

        *wrong = channel_name(channel);
        if (address == NULL || json_is_null(address)) {
            continue;
        }
        user->address[channel] = json_string_value(address);
        if (user->address[channel] == NULL || !address_valid(channel, user->address[channel])) {
            return -1;
        }
    }
    return 0;
}

json_t *users_load(const char *path)
{
    json_error_t error;
    json_t *users = json_load_file(path, JSON_REJECT_DUPLICATES, &error), *object;
    const char *id, *wrong;
    user_t user;

    if (!json_is_object(users)) {
        fprintf(stderr, "notify: %s: %s\n", path, users == NULL ? error.text : "not a JSON object");
        json_decref(users);
        return NULL;
    }
    json_object_foreach(users, id, object)
    {
        if (read_user(id, object, &user, &wrong) != 0) {
            fprintf(stderr, "notify: %s: user %s: the member \"%s\" is not what it should be\n",
                    path, id, wrong);
            json_decref(users);
            return NULL;
        }
    }
    return users;
}

int users_find(json_t *users, json_t *who, user_t *user, problem_t *problem)
{
    const char *id = json_string_value(json_is_object(who) ? json_object_get(who, "id") : who);
    json_t *object = json_is_object(who) ? who : json_object_get(users, id != NULL ? id : "");
    const char *wrong;

    if (object == NULL) {
        return problem_set(problem, 422, PROBLEM_BAD_EVENT,
                           "the event names a user who is not known");
    }
    if (read_user(id, object, user, &wrong) != 0) {
        return problem_set(problem, 422, PROBLEM_BAD_EVENT,
                           "the member \"%s\" of a user in the event is not what it should be",
                           wrong);
    }
    return 0;
}
