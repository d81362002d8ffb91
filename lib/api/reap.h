/*
 * Removing expired records: on demand, and by a timer of the handle.
 */
#ifndef ONCE_API_REAP_H
#define ONCE_API_REAP_H

#include "api/handle.h"

int once__reap_start(once_t *once, once_error_t *err);
void once__reap_stop(once_t *once);

#endif
