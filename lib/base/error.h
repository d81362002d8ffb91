/*
 * Failing with a sentence.
 */
#ifndef ONCE_BASE_ERROR_H
#define ONCE_BASE_ERROR_H

#include <once/error.h>

/* Sets `err` (may be NULL) and returns `code`, so that a failing function can end with it. */
int once__fail(once_error_t *err, int code, const char *format, ...) ONCE_PRINTF(3, 4);

#endif
