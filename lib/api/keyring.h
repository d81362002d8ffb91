/*
 * The handle's secrets: loaded from the store or a file, created by the first process that needs them, rotated by
 * once_secret_rotate.
 */
#ifndef ONCE_API_KEYRING_H
#define ONCE_API_KEYRING_H

#include "api/handle.h"

/* Reads a file at once, or asks the store, whose answer arrives later. */
int once__keyring_open(once_t *once, once_error_t *err);
void once__keyring_close(once_t *once);

/* What is wrong with the secrets, in words; empty: nothing. */
const char *once__keyring_trouble(const once_t *once);

/* Loads the secrets again, unless that is under way. ONCE_OK: parked asks are started or failed when it is done. */
int once__keyring_reload(once_t *once);

#endif
