#include "broker/kafka/headers.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 256
#define ROOM_KEEP  4096

/* Precedes each header, which is a name, a zero byte and a value. */
typedef struct lengths {
    uint32_t name, value;
} lengths_t;

static int reserve(once__kafka_headers_t *headers, size_t more)
{
    size_t room = headers->room != 0 ? headers->room : ROOM_FIRST;
    char *bytes;

    while (room < headers->len + more) {
        room *= 2;
    }
    if (room == headers->room) {
        return 0;
    }
    bytes = realloc(headers->bytes, room);
    if (bytes == NULL) {
        return -1;
    }
    headers->bytes = bytes;
    headers->room = room;
    return 0;
}

int once__kafka_headers_add(once__kafka_headers_t *headers, once_slice_t name, once_slice_t value)
{
    const lengths_t lengths = {(uint32_t)name.len, (uint32_t)value.len};
    size_t more = sizeof(lengths) + name.len + 1 + value.len;
    const char *text = name.data;
    char *at;

    if (name.len > UINT32_MAX || value.len > UINT32_MAX ||
        (headers->room - headers->len < more && reserve(headers, more) != 0)) {
        return -1;
    }
    at = headers->bytes + headers->len;
    memcpy(at, &lengths, sizeof(lengths));
    at += sizeof(lengths);
    if (value.data == text + name.len + 1) { /* as librdkafka stores them: in one piece */
        memcpy(at, text, name.len + 1 + value.len);
    } else {
        memcpy(at, text, name.len);
        at[name.len] = '\0';
        if (value.len > 0) {
            memcpy(at + name.len + 1, value.data, value.len);
        }
    }
    headers->len += more;
    return 0;
}

void once__kafka_headers_each(const once__kafka_headers_t *headers,
                              void (*each)(void *data, once_slice_t name, once_slice_t value),
                              void *data)
{
    lengths_t lengths;

    for (size_t from = 0; from < headers->len;) {
        const char *name = headers->bytes + from + sizeof(lengths);
        memcpy(&lengths, headers->bytes + from, sizeof(lengths));
        each(data, (once_slice_t){name, lengths.name},
             (once_slice_t){name + lengths.name + 1, lengths.value});
        from += sizeof(lengths) + lengths.name + 1 + lengths.value;
    }
}

void once__kafka_headers_clear(once__kafka_headers_t *headers)
{
    headers->len = 0;
    if (headers->room > ROOM_KEEP) {
        once__kafka_headers_free(headers);
    }
}

void once__kafka_headers_free(once__kafka_headers_t *headers)
{
    free(headers->bytes);
    *headers = (once__kafka_headers_t){NULL, 0, 0};
}
