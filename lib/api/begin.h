/*
 * Asks under way, as the rest of the handle sees them.
 */
#ifndef ONCE_API_BEGIN_H
#define ONCE_API_BEGIN_H

#include "api/handle.h"

/*
 * Reads what a caller asks: `ask` becomes ours, whatever version of the struct the caller has. `digest` is that of the body, or
 * NULL if the ask has the body itself. The errors are those that once_begin returns.
 */
int once__ask_read(once_ask_t *ask, const once_ask_t *given, const uint8_t *digest);

/* The secrets are loaded: starts the asks that waited for them. */
void once__begin_secrets_ready(once_t *once);

/* They cannot be loaded: fails the asks that waited for them. */
void once__begin_secrets_failed(once_t *once, int error);

/* The handle is closing: fails every ask under way, and releases what was granted. */
void once__begin_close_all(once_t *once);

#endif
