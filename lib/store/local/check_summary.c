/*
 * Summaries against the segments that they are of.
 */
#include <string.h>

#include "store/local/check.h"
#include "store/local/summary.h"

static void tell(const once__check_t *check, uint32_t number, int harmless, const char *what)
{
    once_local_finding_t finding = {.kind = "summary", .harmless = harmless, .segment = number};

    once__check_found(check, &finding, "segment %08x: its summary %s", number, what);
}

/* A damaged segment is told of elsewhere; the summary that it had before is removed along with the damage. */
static int is_right(const once__summary_t *summary, const once__image_t *image)
{
    once__summary_t right;
    int is = 1;

    if (once__summary_build(&right, image->number, image->data, image->size) == ONCE_OK) {
        is = right.size == summary->size && memcmp(right.bytes, summary->bytes, right.size) == 0;
        once__summary_free(&right);
    }
    return is;
}

/* The segment may have been finished since it was read, and its summary made after that. */
static int is_right_by_now(const once__check_t *check, const once__summary_t *summary,
                           const once__image_t *image)
{
    once__image_t again;
    int is = is_right(summary, image);

    if (!is && once__image_read(&again, check->directory->segments_fd, image->number) == ONCE_OK) {
        is = is_right(summary, &again);
        once__image_free(&again);
    }
    return is;
}

void once__check_summary(const once__check_t *check, once__checked_t *segment,
                         const once__image_t *image)
{
    once__summary_t summary;
    int code = once__summary_read(&summary, check->directory->segments_fd, segment->number);

    if (code == ONCE_E_CORRUPT) {
        tell(check, segment->number, 1, "is not sound; it is ignored");
    } else if (code == ONCE_E_CONFLICT) {
        tell(check, segment->number, 1, "is of another segment, or an older one; it is ignored");
    } else if (code == ONCE_OK) {
        if (!is_right_by_now(check, &summary, image)) {
            segment->misled = 1;
            tell(check, segment->number, 0, "says something else than the segment itself");
        }
        once__summary_free(&summary);
    }
}
