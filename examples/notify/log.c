#include "log.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void stamp(char *out, size_t size)
{
    struct timespec now;
    struct tm parts;
    size_t len;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    len = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + len, size - len, ".%03ldZ", now.tv_nsec / 1000000);
}

/* One write: lines of several threads do not mix. */
static void put(const json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT);
    size_t len;

    if (text == NULL) {
        return;
    }
    len = strlen(text);
    text[len] = '\n'; /* in place of the terminator */
    if (write(STDERR_FILENO, text, len + 1) < 0) {
        /* Nobody reads the log any more. Notifications are still to be sent. */
    }
    free(text);
}

void log_line(const char *level, const char *what, const char *format, ...)
{
    char at[48];
    json_t *line, *more;
    va_list args;

    stamp(at, sizeof(at));
    line = json_pack("{s:s, s:s, s:s, s:s}", "time", at, "level", level, "program", "notify",
                     "message", what);
    va_start(args, format);
    more = json_vpack_ex(NULL, 0, format, args);
    va_end(args);
    if (line != NULL) {
        json_object_update(line, more);
        put(line);
    }
    json_decref(more);
    json_decref(line);
}
