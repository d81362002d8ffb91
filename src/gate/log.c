/*
 * once gate: what nginx writes, on its way to standard output.
 *
 * As text it is passed on as it comes. As JSON the access log, which nginx writes as JSON, and the error log, which becomes JSON
 * here, come through pipes of their own, so that nothing that a client sends can pass for a line of the other one.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "gate/internal.h"
#include "service/log.h"

#define CHUNK       4096 /* a writable pipe has room for this many bytes: writing never blocks */
#define SOURCE_SIZE (64 * 1024) /* longer lines are passed on in pieces */
#define WIDER       3           /* a byte that is no UTF-8 becomes U+FFFD */
#define OUT_SIZE    (WIDER * SOURCE_SIZE + 2 * ONCE__SERVICE_LOG_LINE)

typedef struct source {
    int fd; /* -1: it has ended */
    size_t len;
    char data[SOURCE_SIZE];
} source_t;

struct once__gate_log {
    int json;
    source_t output, errors;
    size_t out_len;
    char out[OUT_SIZE];
};

once__gate_log_t *once__gate_log_new(int output, int errors, int json)
{
    once__gate_log_t *log = malloc(sizeof(*log));

    if (log != NULL) {
        log->json = json;
        log->output.fd = output;
        log->errors.fd = errors;
        log->output.len = log->errors.len = log->out_len = 0;
    }
    return log;
}

static void end(source_t *source)
{
    if (source->fd >= 0) {
        close(source->fd);
        source->fd = -1;
    }
}

void once__gate_log_free(once__gate_log_t *log)
{
    if (log != NULL) {
        end(&log->output);
        end(&log->errors);
        free(log);
    }
}

/* ------------------------------------------------------------------------------------------------------------ lines */

/* Paths are decoded in the access log, and may be anything. */
static void pass_line(once__gate_log_t *log, const char *line, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t step = once__utf8_len(line + i, len - i);
        memcpy(log->out + log->out_len, step > 0 ? line + i : "\xef\xbf\xbd", step > 0 ? step : 3);
        log->out_len += step > 0 ? step : 3;
        i += step > 0 ? step : 1;
    }
    log->out[log->out_len++] = '\n';
}

static int read_level(const char *name, size_t len, once__service_log_level_t *level)
{
    static const struct {
        const char *name;
        once__service_log_level_t level;
    } levels[] = {
        {"debug", ONCE__SERVICE_LOG_DEBUG}, {"info", ONCE__SERVICE_LOG_INFO},
        {"notice", ONCE__SERVICE_LOG_INFO}, {"warn", ONCE__SERVICE_LOG_WARN},
        {"error", ONCE__SERVICE_LOG_ERROR}, {"crit", ONCE__SERVICE_LOG_ERROR},
        {"alert", ONCE__SERVICE_LOG_ERROR}, {"emerg", ONCE__SERVICE_LOG_ERROR},
    };

    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strlen(levels[i].name) == len && memcmp(levels[i].name, name, len) == 0) {
            *level = levels[i].level;
            return 1;
        }
    }
    return 0;
}

/* Behind "12#12: " and "*34 ". */
static char *skip_numbers(char *text, int64_t *process, int64_t *connection)
{
    char *at;

    *process = strtoll(text, &at, 10);
    if (at == text || *at != '#') {
        *process = 0;
        return text;
    }
    at += strcspn(at, " ");
    text = *at == ' ' ? at + 1 : at;
    if (*text == '*') {
        *connection = strtoll(text + 1, &at, 10);
        text = *at == ' ' ? at + 1 : text;
    }
    return text;
}

/* The query of a request may have credentials in it. */
static void cut_queries(char *text)
{
    char *to = text;

    for (const char *at = text; *at != '\0';) {
        at += *at == '?' ? strcspn(at, " \"") : 0;
        if (*at != '\0') {
            *to++ = *at++;
        }
    }
    *to = '\0';
}

/* "2031/05/17 08:30:00 [error] 12#12: *34 message, client: 10.0.0.7, server: , request: ..." */
static void tell_error(once__gate_log_t *log, char *line)
{
    once__service_log_level_t level = ONCE__SERVICE_LOG_WARN;
    char *open = strchr(line, '['), *close = open != NULL ? strchr(open, ']') : NULL;
    int64_t process = 0, connection = 0;
    char *message = line, *context;

    if (close != NULL && open - line <= 20 &&
        read_level(open + 1, (size_t)(close - open) - 1, &level)) {
        message = close + 1 + strspn(close + 1, " ");
        message = skip_numbers(message, &process, &connection);
    }
    context = strstr(message, ", client: ");
    if (context != NULL) {
        *context = '\0';
        context += 2;
        cut_queries(context);
    }
    log->out_len += once__service_log_line(
        log->out + log->out_len, "gate", level, message,
        ONCE__SERVICE_FIELDS(once__service_field_number("process", process),
                             once__service_field_number("connection", connection),
                             once__service_field_text("context", context)));
}

/* Moves whole lines on, as many as there is room for. The last one of a pipe that has ended need not be whole. */
static void move_lines(once__gate_log_t *log, source_t *source)
{
    size_t done = 0;

    while (done < source->len && log->out_len + ONCE__SERVICE_LOG_LINE <= OUT_SIZE) {
        char *line = source->data + done, *newline = memchr(line, '\n', source->len - done);
        size_t len = newline != NULL ? (size_t)(newline - line) : source->len - done;
        if (newline == NULL && source->fd >= 0 && (done > 0 || source->len < SOURCE_SIZE - 1)) {
            break;
        }
        if (log->out_len + WIDER * len + ONCE__SERVICE_LOG_LINE > OUT_SIZE) {
            break;
        }
        if (source == &log->errors) {
            line[len] = '\0'; /* there is room: a source is never filled to its last byte */
            tell_error(log, line);
        } else {
            pass_line(log, line, len);
        }
        done += len + (newline != NULL);
    }
    source->len -= done;
    memmove(source->data, source->data + done, source->len);
}

static void fill(once__gate_log_t *log)
{
    if (log->json) {
        move_lines(log, &log->errors);
        move_lines(log, &log->output);
    } else if (log->out_len == 0) {
        memcpy(log->out, log->output.data, log->output.len);
        log->out_len = log->output.len;
        log->output.len = 0;
    }
    assert(log->out_len <= OUT_SIZE);
}

void once__gate_log_say(once__gate_log_t *log, const char *text, const char *message)
{
    if (log == NULL || !log->json) {
        puts(text);
        fflush(stdout);
    } else if (log->out_len + ONCE__SERVICE_LOG_LINE <= OUT_SIZE) {
        log->out_len += once__service_log_line(log->out + log->out_len, "gate",
                                               ONCE__SERVICE_LOG_INFO, message, NULL);
    }
}

/* ---------------------------------------------------------------------------------------------------------- the pipes */

void once__gate_log_poll(const once__gate_log_t *log, struct pollfd polls[ONCE__GATE_LOG_POLLS])
{
    int reads = log->out_len == 0;

    polls[0] = (struct pollfd){reads ? log->output.fd : -1, POLLIN, 0};
    polls[1] = (struct pollfd){reads ? log->errors.fd : -1, POLLIN, 0};
    polls[2] = (struct pollfd){reads ? -1 : STDOUT_FILENO, POLLOUT, 0};
}

static void take(once__gate_log_t *log, source_t *source)
{
    size_t room = log->json ? SOURCE_SIZE - 1 - source->len : CHUNK;
    ssize_t got = read(source->fd, source->data + source->len, room);

    if (got > 0) {
        source->len += (size_t)got;
    } else if (got == 0 || errno != EINTR) {
        end(source);
    }
}

/* A reader that is slow must not keep signals waiting. */
static void give(once__gate_log_t *log)
{
    size_t len = log->out_len < CHUNK ? log->out_len : CHUNK;
    ssize_t written = write(STDOUT_FILENO, log->out, len);

    if (written < 0 && errno != EAGAIN && errno != EINTR) {
        written = (ssize_t)log->out_len; /* the reader is gone */
    }
    if (written > 0) {
        log->out_len -= (size_t)written;
        memmove(log->out, log->out + written, log->out_len);
    }
}

void once__gate_log_turn(once__gate_log_t *log, const struct pollfd polls[ONCE__GATE_LOG_POLLS])
{
    if (polls[0].revents != 0) {
        take(log, &log->output);
    }
    if (polls[1].revents != 0) {
        take(log, &log->errors);
    }
    if (polls[2].revents != 0) {
        give(log);
    }
    fill(log);
}

void once__gate_log_cut(once__gate_log_t *log)
{
    if (log->output.fd < 0 && log->errors.fd < 0) {
        return; /* only standard output is slow */
    }
    end(&log->output);
    end(&log->errors);
    log->output.len = log->errors.len = log->out_len = 0;
}

int once__gate_log_is_done(const once__gate_log_t *log)
{
    return log->output.fd < 0 && log->errors.fd < 0 && log->output.len == 0 &&
           log->errors.len == 0 && log->out_len == 0;
}
