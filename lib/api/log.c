#include "api/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void once__log(const once_t *once, once_log_level_t level, const char *format, ...)
{
    const once_options_t *options = &once->options;
    char message[300];
    va_list args;

    if (options->log == NULL || level > options->log_level) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    for (char *c = message; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' ? ' ' : *c; /* servers answer in several lines */
    }
    options->log(level, message, options->log_data);
}

/*
 * The store says in words what is wrong with it. If it says nothing and yet does not answer, that is all there is to report. The
 * text is compared with what was reported last, so that a store which is away for an hour is reported once.
 */
void once__log_store(once_t *once)
{
    const char *trouble;

    if (once->options.log == NULL) {
        return;
    }
    trouble = once__trouble(once);
    if (trouble[0] == '\0' && once->store_is_silent) {
        trouble = once_error_text(ONCE_E_UNAVAILABLE);
    }
    if (strncmp(trouble, once->trouble_logged, sizeof(once->trouble_logged) - 1) == 0) {
        return;
    }
    (void)snprintf(once->trouble_logged, sizeof(once->trouble_logged), "%s", trouble);
    if (trouble[0] != '\0') {
        once__log(once, ONCE_LOG_WARNING, "store: %s", trouble);
    } else {
        once__log(once, ONCE_LOG_NOTICE, "store: it can be used again");
    }
}
