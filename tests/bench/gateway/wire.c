#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t wire_message(const char *bytes, size_t len)
{
    static const char name[] = "\r\ncontent-length:";
    const char *end = memmem(bytes, len, "\r\n\r\n", 4);
    size_t body = 0, whole;

    if (end == NULL) {
        return 0;
    }
    for (const char *p = bytes; p + sizeof(name) < end + 2; p++) {
        p = memchr(p, '\r', (size_t)(end + 2 - p));
        if (p == NULL || p + sizeof(name) >= end + 2) {
            break;
        }
        if (strncasecmp(p, name, sizeof(name) - 1) == 0) {
            body = strtoul(p + sizeof(name) - 1, NULL, 10);
            break;
        }
    }
    whole = (size_t)(end - bytes) + 4 + body;
    return whole <= len ? whole : 0;
}

void wire_die(const char *what)
{
    perror(what);
    exit(2);
}
