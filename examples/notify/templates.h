/*
 * What is said, by type of event and channel. A folder has one folder for each type of event, and there:
 *     users              JSON pointers into the payload, one a line: each leads to a user's id, or to an object that is a user
 *     mail, sms, push    the texts; a channel without a file says nothing about this type
 * In the texts {{/amount}} is a JSON pointer into the payload; {{user.name}}, {{user.id}} and {{event.id}} are what they say.
 * The first line of a mail is its subject, the second is empty.
 */
#ifndef EXAMPLES_NOTIFY_TEMPLATES_H
#define EXAMPLES_NOTIFY_TEMPLATES_H

#include <jansson.h>

#include "channel.h"
#include "problem.h"
#include "users.h"

#define TEMPLATE_USERS_MAX 8

typedef struct template
{
    char *type;
    char *users[TEMPLATE_USERS_MAX]; /* JSON pointers, NULL behind the last one */
    char *text[CHANNELS];            /* NULL: the channel says nothing */
}
template_t;

typedef struct templates {
    template_t *list;
    size_t count;
} templates_t;

/* Reads and checks all. 0, or -1 after saying what is wrong on standard error. */
int templates_load(templates_t *templates, const char *folder);
void templates_free(templates_t *templates);

/* NULL: none for this type. */
const template_t *templates_find(const templates_t *templates, const char *type);

/*
 * The text for one user, to be freed. Values lose their control characters, so that none can add a line. NULL and the problem
 * when the payload lacks a value.
 */
char *template_render(const template_t *template, channel_t channel, json_t *payload,
                      const user_t *user, const char *event_id, problem_t *problem);

#endif
