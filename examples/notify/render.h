/* Texts with {{...}} in them. */
#ifndef EXAMPLES_NOTIFY_RENDER_H
#define EXAMPLES_NOTIFY_RENDER_H

#include <jansson.h>

#include "users.h"

#define RENDER_NAME_MAX 128

typedef struct render {
    json_t *payload;
    const user_t *user;
    const char *event_id;
    char missing[RENDER_NAME_MAX]; /* out: what had no value */
} render_t;

/* 0: everything between {{ and }} is a name that can have a value. Else -1, and `why` says what is wrong. */
int render_check(const char *text, char *why, size_t size);

/* To be freed; NULL: `missing` says of what there is no value. */
char *render_text(const char *text, render_t *values);

#endif
