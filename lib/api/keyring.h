/*
 * The handle's secrets: loaded from the store or a file, created by whoever comes first, rotated by once_secret_rotate.
 */
#ifndef ONCE_API_KEYRING_H
#define ONCE_API_KEYRING_H

#include "api/handle.h"

/* Reads a file (right away) or asks the store (the answer comes later). */
int once__keyring_open(once_t *once, once_error_t *err);
void once__keyring_close(once_t *once);

/* What is wrong with the secrets, for people; empty: nothing. */
const char *once__keyring_trouble(const once_t *once);

/* Somebody rotated, or the last load failed: loads again, unless that is under way. ONCE_OK: who is parked will hear of it. */
int once__keyring_reload(once_t *once);

#endif
