#include "cli/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/console.h"

/* One byte's escaped form; returns its length. */
static size_t escape_byte(char out[4], uint8_t byte)
{
    char hex[3];

    if (byte == '\\') {
        memcpy(out, "\\\\", 2);
        return 2;
    }
    if (byte >= 0x20 && byte <= 0x7e) {
        out[0] = (char)byte;
        return 1;
    }
    out[0] = '\\';
    out[1] = 'x';
    once__hex(hex, &byte, 1);
    memcpy(out + 2, hex, 2);
    return 4;
}

size_t once__cli_escape(char *out, size_t size, once_slice_t bytes)
{
    const uint8_t *data = bytes.data;
    size_t used = 0;
    size_t kept = 0; /* how much can stay when "..." must follow */

    for (size_t i = 0; i < bytes.len; i++) {
        char piece[4];
        size_t len = escape_byte(piece, data[i]);
        if (used + len >= size) {
            size_t dots = size > 4 ? 3 : size - 1;
            memcpy(out + kept, "...", dots);
            out[kept + dots] = '\0';
            return kept + dots;
        }
        memcpy(out + used, piece, len);
        used += len;
        if (used + 3 < size) {
            kept = used;
        }
    }
    out[used] = '\0';
    return used;
}

once__cli_shown_t once__cli_shown(const char *argument)
{
    once__cli_shown_t shown = {{0}};
    const char *slashes = strstr(argument, "://");
    once_slice_t bytes = once__slice_of(argument);

    if (slashes != NULL) {
        bytes.len = (size_t)(slashes - argument) + 3;
    }
    /* Leaves room for the dots that stand for what a URL hides. */
    once__cli_escape(shown.text, sizeof(shown.text) - 3, bytes);
    if (slashes != NULL) {
        memcpy(shown.text + strlen(shown.text), "...", 4);
    }
    return shown;
}

/* A parameter that names the host, with `?` or `&` before it. */
static const char *host_of(const char *query)
{
    while (query != NULL && strncmp(query + 1, "host=", 5) != 0) {
        query = strchr(query + 1, '&');
    }
    return query;
}

once__cli_shown_t once__cli_shown_url(const char *url)
{
    const char *begin = strstr(url, "://"), *end, *at, *host;
    once__cli_shown_t shown = {{0}};
    char plain[sizeof(shown.text)];
    size_t scheme;

    if (begin == NULL) {
        return once__cli_shown(url);
    }
    begin += 3;
    scheme = (size_t)(begin - url);
    /* Credentials end with the last @ before the path, and may contain anything else. */
    at = memrchr(begin, '@', strcspn(begin, "/"));
    begin = at != NULL ? at + 1 : begin;
    end = begin + strcspn(begin, "?#");
    if (memchr(begin, '@', (size_t)(end - begin)) != NULL) {
        return once__cli_shown(url); /* a password that is not encoded: its end is ambiguous */
    }
    host = host_of(strchr(end, '?'));
    snprintf(plain, sizeof(plain), "%.*s%.*s%s%.*s", (int)scheme, url, (int)(end - begin), begin,
             host != NULL ? "?" : "", host != NULL ? (int)strcspn(host + 1, "&") : 0,
             host != NULL ? host + 1 : "");
    once__cli_escape(shown.text, sizeof(shown.text), once__slice_of(plain));
    return shown;
}

static _Thread_local char *heard;
static _Thread_local size_t heard_size;

void once__cli_hear(char *text, size_t size)
{
    heard = text;
    heard_size = size;
    if (text != NULL) {
        text[0] = '\0';
    }
}

/* The text may come from a server: control bytes are escaped. Backslashes stay, arguments were escaped before. */
__attribute__((format(printf, 2, 0))) static void write_line(once__cli_colour_t colour,
                                                             const char *format, va_list values)
{
    char text[1024];

    vsnprintf(text, sizeof(text), format, values);
    if (heard != NULL) {
        if (colour == ONCE__CLI_RED) { /* advice is for terminals */
            snprintf(heard, heard_size, "%s", text);
        }
        return;
    }
    fflush(stdout);
    fprintf(stderr, "%sonce:%s ", once__cli_colour(stderr, colour),
            once__cli_colour(stderr, ONCE__CLI_PLAIN));
    for (const char *at = text; *at != '\0'; at++) {
        char piece[4];
        size_t len = *at == '\\' ? 1 : escape_byte(piece, (uint8_t)*at);
        fwrite(*at == '\\' ? at : piece, 1, len, stderr);
    }
    fputc('\n', stderr);
}

void once__cli_say(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    write_line(ONCE__CLI_RED, format, values);
    va_end(values);
}

void once__cli_note(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    write_line(ONCE__CLI_PLAIN, format, values);
    va_end(values);
}
