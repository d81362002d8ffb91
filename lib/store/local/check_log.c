#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/error.h"
#include "store/local/check.h"
#include "store/local/log.h"

#define LOOKS 3 /* at a place that a writer may have been writing to */

void once__check_found(const once__check_t *check, const once_local_finding_t *finding,
                       const char *format, ...)
{
    once_local_finding_t told = *finding;
    char text[240];
    va_list args;

    check->report->problems += !finding->harmless;
    if (check->how->found == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    told.text = text;
    check->how->found(&told, check->how->data);
}

void once__check_free(once__check_t *check)
{
    free(check->segments);
    once__newest_free(&check->newest);
}

/* --------------------------------------------------------------------------------------------------------- one frame */

static int is_over(const once__head_t *head, uint64_t now)
{
    return (head->state == ONCE_STATE_COMPLETED || head->state == ONCE_STATE_FAILED) &&
           head->expires != 0 && now >= head->expires;
}

/* Notes the time of a state; those of a record never go back. */
static void check_order(const once__check_t *check, once__place_t place, const once__head_t *head,
                        once__newest_entry_t *entry)
{
    entry->misplaced = entry->segment != 0 && head->changed < entry->changed;
    if (entry->misplaced) {
        once_local_finding_t finding = {
            .kind = "order", .segment = place.segment, .offset = place.offset};
        once__check_found(check, &finding,
                          "segment %08x, offset %llu: an older state of a record stands behind a "
                          "newer one (segment %08x), and counts; repair takes it out",
                          place.segment, (unsigned long long)place.offset, entry->segment);
    } else {
        entry->changed = head->changed;
    }
}

static int enter_frame(once__check_t *check, once__place_t place, const once__piece_t *piece)
{
    int removed = piece->frame.kind == ONCE__FRAME_REMOVED;
    const uint8_t *id = piece->frame.id;
    once__newest_entry_t *entry =
        once__newest_enter(&check->newest, once__newest_shard(id), once__newest_key(id));
    once__place_t before;

    if (entry == NULL) {
        return once__fail(check->err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    before.segment = entry->segment;
    before.offset = (uint64_t)entry->offset * 8;
    if (entry->segment != 0 && once__place_before(place, before)) {
        return ONCE_OK; /* read later than what replaced it */
    }
    if (!removed) {
        check_order(check, place, &piece->record.head, entry);
    } else {
        entry->misplaced = 0;
    }
    entry->segment = place.segment;
    entry->offset = (uint32_t)(place.offset / 8);
    entry->state = removed ? ONCE_STATE_NONE : piece->record.head.state;
    entry->expired = !removed && is_over(&piece->record.head, check->now);
    entry->newer = !removed && piece->newer;
    entry->seen = 0;
    return ONCE_OK;
}

static void check_watermark(const once__check_t *check, once__checked_t *segment,
                            const once__piece_t *piece)
{
    uint64_t mark = piece->frame.watermark;

    if (mark > piece->offset || mark < segment->watermark) {
        once_local_finding_t finding = {.kind = "watermark",
                                        .segment = segment->number,
                                        .offset = piece->offset,
                                        .length = piece->length};
        once__check_found(check, &finding,
                          "segment %08x, offset %llu: the frame says that %llu bytes were durable, "
                          "which cannot be",
                          segment->number, (unsigned long long)piece->offset,
                          (unsigned long long)mark);
        segment->broken = 1;
    }
    segment->watermark = mark;
}

static int take_frame(once__check_t *check, once__checked_t *segment, const once__piece_t *piece)
{
    once__place_t place = {segment->number, piece->offset};

    check->report->frames++;
    check_watermark(check, segment, piece);
    segment->last = piece->offset;
    return enter_frame(check, place, piece);
}

/* ------------------------------------------------------------------------------------------------------- one segment */

static void tell_damage(const once__check_t *check, once__checked_t *segment,
                        const once__piece_t *piece)
{
    once_local_finding_t finding = {.kind = "damage",
                                    .segment = segment->number,
                                    .offset = piece->offset,
                                    .length = piece->length};

    check->report->damaged++;
    check->report->damaged_bytes += piece->length;
    segment->broken = 1;
    once__check_found(
        check, &finding, "segment %08x, offset %llu: %llu bytes are damaged that were durable",
        segment->number, (unsigned long long)piece->offset, (unsigned long long)piece->length);
}

static void tell_torn(const once__check_t *check, const once__checked_t *segment,
                      const once__piece_t *piece)
{
    once_local_finding_t finding = {
        .kind = "torn", .harmless = 1, .segment = segment->number, .offset = piece->offset};

    check->report->torn++;
    once__check_found(check, &finding,
                      "segment %08x, offset %llu: the end was written but never durable; it is "
                      "ignored",
                      segment->number, (unsigned long long)piece->offset);
}

static void end_segment(const once__check_t *check, once__checked_t *segment,
                        const once__image_t *image, const once__piece_t *piece)
{
    int known = segment->ended;

    segment->sealed = piece->kind == ONCE__PIECE_SEALED;
    segment->ended = segment->sealed || !image->writing;
    if (piece->kind == ONCE__PIECE_TORN && segment->ended && !known) {
        tell_torn(check, segment, piece);
    }
}

/*
 * While a segment is written, its bytes were read at different moments: what looks torn or damaged may only have been half there.
 * Looking again tells.
 */
static int read_pieces(once__check_t *check, once__checked_t *segment, once__image_t *image)
{
    once__piece_t piece;
    int looks = 0, code = ONCE_OK;

    for (;;) {
        once__image_piece(image, segment->next, &piece);
        if (image->writing && looks < LOOKS &&
            (piece.kind == ONCE__PIECE_DAMAGE || piece.kind == ONCE__PIECE_TORN)) {
            looks++;
            once__image_free(image);
            code = once__image_read(image, check->directory->segments_fd, segment->number);
            if (code != ONCE_OK) {
                return code;
            }
            continue;
        }
        if (piece.kind == ONCE__PIECE_FRAME) {
            code = take_frame(check, segment, &piece);
        } else if (piece.kind == ONCE__PIECE_DAMAGE) {
            tell_damage(check, segment, &piece);
        } else {
            end_segment(check, segment, image, &piece);
            return ONCE_OK;
        }
        if (code != ONCE_OK) {
            return code;
        }
        looks = 0;
        segment->next += piece.length;
    }
}

static int read_header(once__check_t *check, once__checked_t *segment, const once__image_t *image)
{
    once_local_finding_t finding = {
        .kind = "header", .segment = segment->number, .length = ONCE__SEGMENT_HEADER};
    once__segment_header_t header;
    int code = once__image_header(image, &header);

    if (code == ONCE_E_NEWER) {
        return once__fail(check->err, code,
                          "local store: segment %08x was written by a newer version of once; check "
                          "it with that",
                          segment->number);
    }
    if (code != ONCE_OK) {
        segment->broken = 1;
        once__check_found(check, &finding, "segment %08x: its header is damaged", segment->number);
    }
    segment->created = header.created;
    if (image->unreadable > 0) {
        segment->broken = 1;
        finding.kind = "unreadable";
        finding.length = image->unreadable;
        once__check_found(check, &finding, "segment %08x: the disk cannot read %llu bytes of it",
                          segment->number, (unsigned long long)image->unreadable);
    }
    check->report->segments++;
    check->report->segment_bytes += image->size;
    return ONCE_OK;
}

static int read_segment(once__check_t *check, once__checked_t *segment)
{
    int code, anew = segment->next == 0, known = segment->ended;
    once__image_t image;

    code = once__image_read(&image, check->directory->segments_fd, segment->number);
    if (code == ONCE_OK && anew) {
        segment->next = ONCE__SEGMENT_HEADER;
        code = read_header(check, segment, &image);
    }
    if (code == ONCE_OK) {
        code = read_pieces(check, segment, &image);
        check->done += anew ? image.size : 0;
        if (code == ONCE_OK && (segment->sealed || (segment->ended && !known))) {
            once__check_summary(check, segment, &image);
        }
    }
    if (code == ONCE_E_NOT_FOUND) {
        /* Dropped: and so is everything before it. */
        check->first = segment->number + 1;
        segment->ended = segment->sealed = 1;
        return ONCE_OK;
    }
    if (code == ONCE_E_IO) {
        return once__fail(check->err, code, "local store: cannot read segment %08x: %s",
                          segment->number, strerror(errno));
    }
    once__image_free(&image);
    if (check->how->progress != NULL) {
        check->how->progress(check->done, check->total, check->how->data);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------ all segments */

once__checked_t *once__check_segment(const once__check_t *check, uint32_t number)
{
    for (size_t low = 0, high = check->count; low < high;) {
        size_t middle = (low + high) / 2;
        once__checked_t *segment = &check->segments[middle];
        if (segment->number == number) {
            return segment;
        }
        if (segment->number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static int exists(const once__check_t *check, uint32_t number, uint64_t *size)
{
    char name[ONCE__SEGMENT_NAME];
    struct stat st;

    once__segment_name(name, number, "log");
    if (fstatat(check->directory->segments_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    *size = (uint64_t)st.st_size;
    return 1;
}

/* New ones go to the end: numbers only grow. */
static int add_segments(once__check_t *check, const uint32_t *numbers, size_t count)
{
    once__checked_t *more = realloc(check->segments, (check->count + count + 1) * sizeof(*more));
    uint64_t size = 0;

    if (more == NULL) {
        return once__fail(check->err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    check->segments = more;
    for (size_t i = 0; i < count; i++) {
        once__checked_t segment = {.number = numbers[i]};
        uint32_t before = check->count > 0 ? check->segments[check->count - 1].number : 0;
        if (numbers[i] <= before) {
            continue;
        }
        /* They are dropped in order: as long as the one before the gap is there, the gap was not left by a drop. */
        segment.gap = before != 0 && numbers[i] != before + 1 && exists(check, before, &size);
        check->total += exists(check, numbers[i], &size) ? size : 0;
        check->segments[check->count++] = segment;
    }
    return ONCE_OK;
}

static void describe_time(char out[40], uint64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;

    (void)snprintf(out, 40, "?");
    if (ms != 0 && gmtime_r(&seconds, &parts) != NULL) {
        (void)strftime(out, 40, "%Y-%m-%d %H:%M:%S UTC", &parts);
    }
}

static void tell_missing(once__check_t *check, const once__checked_t *before,
                         const once__checked_t *after)
{
    char from[40], to[40];

    describe_time(from, before->created);
    describe_time(to, after->created);
    for (uint32_t n = before->number + 1; n < after->number; n++) {
        once_local_finding_t finding = {.kind = "missing", .segment = n};
        check->report->missing++;
        once__check_found(check, &finding,
                          "segment %08x is missing; it was begun between %s and %s", n, from, to);
    }
}

/* What was dropped meanwhile need not exist. Without an index nobody knows but the extent, which is written before a file goes. */
static int was_dropped(const once__check_t *check, uint32_t number)
{
    once__extent_t extent;

    return once__extent_read(check->directory->segments_fd, &extent) && number < extent.first;
}

void once__check_ends(once__check_t *check, const once__extent_t *extent)
{
    uint64_t size;

    for (uint32_t n = extent->first; n <= extent->last; n++) {
        int inside = check->count > 0 && n > check->segments[0].number &&
                     n < check->segments[check->count - 1].number;
        if (!inside && !exists(check, n, &size) && !was_dropped(check, n)) {
            once_local_finding_t finding = {.kind = "missing", .segment = n};
            check->report->missing++;
            once__check_found(check, &finding, "segment %08x is missing", n);
        }
    }
}

int once__check_log(once__check_t *check)
{
    size_t count, old = check->count;
    uint64_t unfinished;
    uint32_t *numbers;
    int code = once__image_list(check->directory->segments_fd, &numbers, &count, &unfinished);

    if (code != ONCE_OK) {
        return once__fail(check->err, code, "local store: cannot list the segments: %s",
                          once_error_text(code));
    }
    code = add_segments(check, numbers, count);
    free(numbers);
    check->report->writing = 0;
    for (size_t i = 0; code == ONCE_OK && i < check->count; i++) {
        once__checked_t *segment = &check->segments[i];
        /* What a program that was killed had not written to its file, another one may write there meanwhile, and seal it. */
        if (!segment->ended || !segment->sealed) {
            code = read_segment(check, segment);
        }
        check->report->writing += !segment->ended;
        if (code == ONCE_OK && i > 0 && i >= old && segment->gap) {
            tell_missing(check, segment - 1, segment);
        }
    }
    return code;
}
