#include "broker/kafka/headers.h"

#include <string.h>

#define BYTES_MAX (1u << 30)
#define ROOM_KEEP 4096

/* Precedes each header, which is a name, a zero byte and a value. */
typedef struct lengths {
    uint32_t name, value;
} lengths_t;

int once__kafka_headers_add(once__kafka_headers_t *headers, once_slice_t name, once_slice_t value)
{
    const lengths_t lengths = {(uint32_t)name.len, (uint32_t)value.len};
    size_t more = sizeof(lengths) + name.len + 1 + value.len;
    const char *text = name.data;
    char *at;

    headers->buf.max = BYTES_MAX;
    at = name.len <= BYTES_MAX && value.len <= BYTES_MAX ? once__buf_reserve(&headers->buf, more)
                                                         : NULL;
    if (at == NULL) {
        /* what is in it stays valid, and smaller headers can be added */
        headers->buf.error = ONCE_OK;
        return -1;
    }
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
    once__buf_added(&headers->buf, more);
    return 0;
}

void once__kafka_headers_each(const once__kafka_headers_t *headers,
                              void (*each)(void *data, once_slice_t name, once_slice_t value),
                              void *data)
{
    lengths_t lengths;

    for (size_t from = 0; from < headers->buf.len;) {
        const char *name = headers->buf.data + from + sizeof(lengths);
        memcpy(&lengths, headers->buf.data + from, sizeof(lengths));
        each(data, (once_slice_t){name, lengths.name},
             (once_slice_t){name + lengths.name + 1, lengths.value});
        from += sizeof(lengths) + lengths.name + 1 + lengths.value;
    }
}

void once__kafka_headers_clear(once__kafka_headers_t *headers)
{
    once__buf_reset(&headers->buf, ROOM_KEEP);
}

void once__kafka_headers_free(once__kafka_headers_t *headers)
{
    once__buf_free(&headers->buf);
}
