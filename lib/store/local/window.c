#include "store/local/window.h"

#include <assert.h>
#include <string.h>

#include "store/local/index_pages.h"

#define PAGES ((uint32_t)(ONCE__WINDOW_SIZE / ONCE__INDEX_PAGE))

static_assert(sizeof(once__window_t) == ONCE__WINDOW_SIZE, "a window fills its pages");

static uint32_t page_of(const once__index_t *index, const once__window_t *window)
{
    return (uint32_t)((uint64_t)((const char *)window - (const char *)index->map) /
                      ONCE__INDEX_PAGE);
}

once__window_t *once__window_take(once__index_t *index)
{
    uint32_t page = once__pages_take(index, PAGES);

    return page == 0
               ? NULL
               : (once__window_t *)(void *)((char *)index->map + (uint64_t)page * ONCE__INDEX_PAGE);
}

void once__window_give(once__index_t *index, once__window_t *window)
{
    once__pages_give(index, page_of(index, window), PAGES);
}

/* Never the window of two: whoever finds both dead would give it back twice. */
void once__window_assign(once__index_t *index, once__window_t *window, uint32_t before,
                         uint32_t segment, uint64_t offset)
{
    if (before != 0) {
        once__window_detach(index, before);
    }
    atomic_store(&window->segment, segment);
    atomic_store(&window->from, offset);
    atomic_store(&window->written, offset);
    atomic_store(&window->staged, offset);
    atomic_store(&once__index_segment(index, segment)->window, page_of(index, window));
}

void once__window_detach(once__index_t *index, uint32_t segment)
{
    atomic_store(&once__index_segment(index, segment)->window, 0);
}

once__window_t *once__window_of(const once__index_t *index, uint32_t segment)
{
    uint64_t at =
        (uint64_t)atomic_load(&once__index_segment(index, segment)->window) * ONCE__INDEX_PAGE;

    if (at < sizeof(once__index_header_t) ||
        at + ONCE__WINDOW_SIZE > atomic_load(&index->map->end)) {
        return NULL;
    }
    return (once__window_t *)(void *)((char *)index->map + at);
}

/* ---------------------------------------------------------------------------------------------------------- looking */

static int same_part(const uint8_t *a, const uint8_t *b)
{
    return (a[0] | (a[1] & 3) << 8) == (b[0] | (b[1] & 3) << 8) && memcmp(a + 2, b + 2, 8) == 0;
}

/* The bytes may change while they are read: whatever is said of them is only what was true for a moment. */
static int has_frame(const once__window_t *window, uint32_t segment, const uint8_t *id)
{
    once__place_t place = {segment, atomic_load(&window->written)};
    uint64_t from = atomic_load(&window->from), staged = atomic_load(&window->staged);
    once__frame_t frame;

    if (atomic_load(&window->segment) != segment || place.offset < from ||
        staged > from + ONCE__WINDOW_ROOM) {
        return 0;
    }
    while (place.offset < staged &&
           once__frame_read(&frame, place, window->bytes + (place.offset - from),
                            (size_t)(staged - place.offset))) {
        if (same_part(frame.id, id)) {
            return 1;
        }
        place.offset += frame.size;
    }
    return 0;
}

int once__window_has(const once__index_t *index, const uint8_t *id)
{
    uint32_t end = once__index_end_segment(index);

    for (uint32_t n = once__index_first_segment(index); n < end; n++) {
        const once__window_t *window = once__window_of(index, n);
        if (window != NULL && has_frame(window, n, id)) {
            return 1;
        }
    }
    return 0;
}
