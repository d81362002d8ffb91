#include "base/buf.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 64

static void assert_buf_state(const once__buf_t *buf)
{
    assert(buf->len <= buf->max);                    /* I-1 */
    assert((buf->data == NULL) == (buf->room == 0)); /* I-2 */
    assert(buf->data == NULL ? buf->len == 0 : buf->len < buf->room);
}

static int set_error(once__buf_t *buf, int code)
{
    buf->error = code;
    return code;
}

static int make_room(once__buf_t *buf, size_t more)
{
    size_t room = buf->room < ROOM_MIN ? ROOM_MIN : buf->room;
    size_t need;
    char *data;

    if (buf->error != ONCE_OK) {
        return buf->error;
    }
    assert_buf_state(buf);
    if (more > buf->max - buf->len || buf->len + more == SIZE_MAX) {
        return set_error(buf, ONCE_E_TOO_BIG);
    }
    need = buf->len + more + 1;
    if (need <= buf->room) {
        return ONCE_OK;
    }
    while (room < need) {
        room = room > SIZE_MAX / 2 ? need : room * 2;
    }
    room = room - 1 > buf->max ? buf->max + 1 : room;
    data = realloc(buf->data, room);
    if (data == NULL) {
        return set_error(buf, ONCE_E_NOMEM);
    }
    buf->data = data;
    buf->room = room;
    return ONCE_OK;
}

char *once__buf_reserve(once__buf_t *buf, size_t more)
{
    return make_room(buf, more) == ONCE_OK ? buf->data + buf->len : NULL;
}

void once__buf_added(once__buf_t *buf, size_t len)
{
    assert(len < buf->room - buf->len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    assert_buf_state(buf);
}

int once__buf_add(once__buf_t *buf, const void *data, size_t len)
{
    int code = make_room(buf, len);

    if (code == ONCE_OK) {
        if (len > 0) {
            memcpy(buf->data + buf->len, data, len);
        }
        once__buf_added(buf, len);
    }
    return code;
}

void once__buf_reset(once__buf_t *buf, size_t keep)
{
    if (buf->room > keep) {
        once__buf_free(buf);
        return;
    }
    buf->len = 0;
    buf->error = ONCE_OK;
    if (buf->data != NULL) {
        buf->data[0] = '\0';
    }
}

void once__buf_free(once__buf_t *buf)
{
    free(buf->data);
    *buf = (once__buf_t)ONCE__BUF(buf->max);
}

char *once__buf_take(once__buf_t *buf)
{
    int error = once__buf_add(buf, "", 0); /* there is a terminator even if nothing was added */
    char *data = buf->data;

    if (error != ONCE_OK) {
        once__buf_free(buf);
        buf->error = error;
        return NULL;
    }
    buf->data = NULL;
    once__buf_free(buf);
    return data;
}

void *once__grow(void *items, size_t *room, size_t count, size_t size, size_t max)
{
    size_t more = *room < 16 ? 16 : *room;

    if (count <= *room && items != NULL) {
        return items;
    }
    if (count > max || max > SIZE_MAX / size) {
        return NULL;
    }
    while (more < count) {
        more = more > max / 2 ? max : more * 2;
    }
    more = more > max ? max : more;
    items = realloc(items, more * size);
    if (items != NULL) {
        *room = more;
    }
    return items;
}
