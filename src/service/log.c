#include "service/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

#define TEXT_MAX 1024 /* of one member */

static const char *const names[] = {"debug", "info", "warn", "error"};

typedef struct line {
    char *data; /* ONCE__SERVICE_LOG_LINE bytes */
    size_t len;
} line_t;

once__service_field_t once__service_field_text(const char *name, const char *text)
{
    return once__service_field_slice(name, (once_slice_t){text, text != NULL ? strlen(text) : 0});
}

once__service_field_t once__service_field_slice(const char *name, once_slice_t text)
{
    return (once__service_field_t){.name = name, .text = text};
}

once__service_field_t once__service_field_number(const char *name, int64_t number)
{
    return (once__service_field_t){.name = name, .is_number = 1, .number = number};
}

static void put(line_t *line, const char *bytes, size_t len)
{
    if (len <= ONCE__SERVICE_LOG_LINE - line->len) {
        memcpy(line->data + line->len, bytes, len);
        line->len += len;
    }
}

static void put_text(line_t *line, const char *text)
{
    put(line, text, strlen(text));
}

static void put_string(line_t *line, once_slice_t text)
{
    const char *bytes = text.data;
    size_t cut = text.len > TEXT_MAX ? TEXT_MAX : text.len;
    char code[6];

    put_text(line, "\"");
    for (size_t i = 0; i < cut;) {
        size_t len = once__utf8_len(bytes + i, text.len - i);
        if (len == 0) {
            put_text(line, "\\ufffd");
            len = 1;
        } else if (len == 1) {
            put(line, code, once__json_escape(code, bytes[i]));
        } else {
            put(line, bytes + i, len);
        }
        i += len;
    }
    put_text(line, cut < text.len ? "...\"" : "\"");
}

static void put_member(line_t *line, const once__service_field_t *field)
{
    char number[32];

    if (!field->is_number && field->text.data == NULL) {
        return;
    }
    put_text(line, ",\"");
    put_text(line, field->name);
    put_text(line, "\":");
    if (field->is_number) {
        snprintf(number, sizeof(number), "%" PRId64, field->number);
        put_text(line, number);
    } else {
        put_string(line, field->text);
    }
}

static void put_time(line_t *line)
{
    char text[64];
    struct timespec now;
    struct tm utc;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(text, sizeof(text), "{\"time\":\"%Y-%m-%dT%H:%M:%S", &utc);
    put_text(line, text);
    snprintf(text, sizeof(text), ".%03ldZ\"", now.tv_nsec / 1000000);
    put_text(line, text);
}

size_t once__service_log_line(char data[ONCE__SERVICE_LOG_LINE], const char *program,
                              once__service_log_level_t level, const char *message,
                              const once__service_field_t *fields)
{
    line_t line = {.len = 0};
    once__service_field_t first[] = {once__service_field_text("level", names[level]),
                                     once__service_field_text("program", program),
                                     once__service_field_text("message", message)};

    line.data = data;
    put_time(&line);
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        put_member(&line, &first[i]);
    }
    for (const once__service_field_t *field = fields; field != NULL && field->name != NULL;
         field++) {
        size_t before = line.len;
        put_member(&line, field);
        if (line.len > ONCE__SERVICE_LOG_LINE - 8) { /* no room for its end: it is left out */
            line.len = before;
        }
    }
    put_text(&line, "}\n");
    return line.len;
}

void once__service_log(const once__service_log_t *log, once__service_log_level_t level,
                       const char *message, const once__service_field_t *fields)
{
    char line[ONCE__SERVICE_LOG_LINE];
    const char *at = line;
    size_t len;

    if (level < log->level) {
        return;
    }
    len = once__service_log_line(line, log->program, level, message, fields);
    while (len > 0) {
        ssize_t done = write(log->fd, at, len);
        if (done <= 0) {
            return; /* a log that is not read must not stop the work */
        }
        at += done;
        len -= (size_t)done;
    }
}

int once__service_log_level_read(const char *text, once__service_log_level_t *level)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *level = (once__service_log_level_t)i;
            return 0;
        }
    }
    return -1;
}
