#include "store/redis/buffer.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_KEEP ((size_t)1 << 20) /* a rare giant must not stay for ever */

char *once__redis_buffer_reserve(once__redis_buffer_t *buffer, size_t more)
{
    if (buffer->room - buffer->len < more) {
        size_t room = buffer->room < ONCE__REDIS_ROOM_MIN ? ONCE__REDIS_ROOM_MIN : buffer->room;
        char *data;
        while (room - buffer->len < more) {
            room *= 2;
        }
        data = realloc(buffer->data, room);
        if (data == NULL) {
            return NULL;
        }
        buffer->data = data;
        buffer->room = room;
    }
    return buffer->data + buffer->len;
}

void once__redis_buffer_empty(once__redis_buffer_t *buffer)
{
    buffer->len = buffer->from = 0;
    if (buffer->room > ROOM_KEEP) {
        free(buffer->data);
        memset(buffer, 0, sizeof(*buffer));
    }
}
