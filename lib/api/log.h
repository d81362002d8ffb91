/*
 * Messages for the host (once_options_set_log): what no return value and no callback can say.
 */
#ifndef ONCE_API_LOG_H
#define ONCE_API_LOG_H

#include "api/handle.h"

/* Nothing happens unless the host wants messages of this level. A message is cut to one line of 300 bytes. */
void once__log(const once_t *once, once_log_level_t level, const char *format, ...)
    ONCE_PRINTF(3, 4);

/* Reports that the store cannot be used, why, and that it works again; each once. */
void once__log_store(once_t *once);

#endif
