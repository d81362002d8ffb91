/*
 * The users to notify, and their addresses. A user is an object with `id`, `name` and one address for each channel that reaches it:
 * `mail`, `sms`, `push`. It is found by its id in a file (an object of such objects, by id), or stands in the event itself.
 */
#ifndef EXAMPLES_NOTIFY_USERS_H
#define EXAMPLES_NOTIFY_USERS_H

#include <jansson.h>

#include "channel.h"
#include "problem.h"

typedef struct user {
    const char *id;
    const char *name;              /* the id, if there is no name */
    const char *address[CHANNELS]; /* NULL: the channel does not reach the user */
} user_t;

/* Reads and checks the file. NULL after saying what is wrong on standard error. An object: json_decref it. */
json_t *users_load(const char *path);

/* `who` is an id or an object; the user's texts are borrowed from it or from `users`. 0, or -1 and the problem. */
int users_find(json_t *users, json_t *who, user_t *user, problem_t *problem);

#endif
