/*
 * What the rest of the handle needs of the asks under way.
 */
#ifndef ONCE_API_BEGIN_H
#define ONCE_API_BEGIN_H

#include "api/handle.h"

/* Can it be asked? ONCE_OK, or what once_begin answers. */
int once__ask_check(const once_t *once, const once_ask_t *ask);

/* The secrets have come: starts the asks that waited for them. */
void once__begin_secrets_ready(once_t *once);

/* They cannot be had: tells the asks that waited for them. */
void once__begin_secrets_failed(once_t *once, int error);

/* The handle is closing: tells every ask under way, and gives back what was granted. */
void once__begin_close_all(once_t *once);

#endif
