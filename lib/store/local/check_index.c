/*
 * The index against the log. Other programs may be writing meanwhile, so a difference counts only when it stays: what was read of
 * the log is brought up to date, and the record is looked at once more.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "core/rules.h"
#include "base/error.h"
#include "store/local/check.h"
#include "store/local/log.h"
#include "store/local/look.h"
#include "store/local/window.h"

#define ROUNDS  5
#define WAIT_MS 20

typedef struct doubt {
    uint64_t key;
    uint16_t shard;
} doubt_t;

typedef struct compare {
    once__check_t *check;
    once__index_t *index;
    doubt_t *doubts;
    size_t count, room;
} compare_t;

typedef enum verdict {
    FINE,
    LOST,     /* the index points to what the log does not have */
    STALE,    /* the log has a newer frame */
    UNKNOWN,  /* the log has a record that the index does not have */
    MISTAKEN, /* the index has another state than the frame */
} verdict_t;

/* ---------------------------------------------------------------------------------------------------------- a frame */

/* Reads a frame straight from its file; malloc'd bytes that it points into. NULL: there is no valid one. */
static uint8_t *frame_at(const once__check_t *check, once__place_t place, once__frame_t *frame)
{
    char name[ONCE__SEGMENT_NAME];
    uint8_t head[4], *bytes = NULL;
    uint32_t len;
    int fd;

    once__segment_name(name, place.segment, "log");
    fd = openat(check->directory->segments_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    if (pread(fd, head, sizeof(head), (off_t)place.offset) == (ssize_t)sizeof(head)) {
        len = once__get32(head);
        bytes = len >= ONCE__FRAME_HEADER && len <= ONCE__FRAME_MAX ? malloc(len) : NULL;
        if (bytes != NULL && (pread(fd, bytes, len, (off_t)place.offset) != (ssize_t)len ||
                              !once__frame_read(frame, place, bytes, len))) {
            free(bytes);
            bytes = NULL;
        }
    }
    (void)close(fd);
    return bytes;
}

/* Whether the record at `place` may be forgotten: then it may be missing. */
static int may_go(const compare_t *compare, once__place_t place)
{
    static const once__event_t reap = {.kind = ONCE__REAP};
    once__frame_t frame;
    once__head_t head;
    once__step_t step;
    uint8_t *bytes = frame_at(compare->check, place, &frame);
    int code = bytes != NULL ? once__frame_head(&frame, &head) : ONCE_E_CORRUPT;

    if (code == ONCE_OK) {
        once__step(&once__rules, &head, &reap, once__index_now(compare->index), &step);
    }
    free(bytes);
    return code == ONCE_OK && step.outcome == ONCE_OUTCOME_DONE;
}

static int has_record(const compare_t *compare, const doubt_t *doubt, const once__entry_t *entry)
{
    once__frame_t frame;
    uint8_t *bytes = frame_at(compare->check, entry->place, &frame);
    int same = bytes != NULL && once__frame_has_record(&frame) &&
               once__newest_shard(frame.id) == doubt->shard &&
               once__newest_key(frame.id) == doubt->key;

    free(bytes);
    return same;
}

/*
 * A program that was killed between writing a frame and telling the index leaves a last frame that only the log has. Nobody was
 * told of it, and a rebuild may count it.
 */
static int is_last_breath(const once__check_t *check, once__place_t place)
{
    const once__checked_t *segment = once__check_segment(check, place.segment);

    return segment != NULL && !segment->sealed && segment->last == place.offset;
}

/* ---------------------------------------------------------------------------------------------------------- a record */

static once__place_t place_of(const once__newest_entry_t *entry)
{
    once__place_t place = {entry->segment, (uint64_t)entry->offset * 8};

    return place;
}

static verdict_t judge_without(const compare_t *compare, const once__newest_entry_t *newest)
{
    once__place_t place;

    if (newest == NULL || newest->state == ONCE_STATE_NONE || newest->expired) {
        return FINE;
    }
    place = place_of(newest);
    return is_last_breath(compare->check, place) || may_go(compare, place) ||
                   place.segment < once__index_first_segment(compare->index)
               ? FINE
               : UNKNOWN;
}

static verdict_t judge_with(const compare_t *compare, const doubt_t *doubt,
                            const once__newest_entry_t *newest, const once__entry_t *entry)
{
    once__place_t place = newest != NULL ? place_of(newest) : entry->place;
    const once__checked_t *segment = once__check_segment(compare->check, entry->place.segment);

    if (newest != NULL && once__place_before(entry->place, place)) {
        return is_last_breath(compare->check, place) ? FINE : STALE;
    }
    if (newest != NULL && !once__place_before(place, entry->place)) {
        return newest->state == entry->state ? FINE : MISTAKEN;
    }
    /* Further back than what was read: written since then, or not there. */
    if (has_record(compare, doubt, entry) && (segment == NULL || !segment->ended)) {
        return FINE;
    }
    return entry->place.segment < once__index_first_segment(compare->index) ? FINE : LOST;
}

static verdict_t judge(const compare_t *compare, const doubt_t *doubt, once__entry_t *entry)
{
    const once__newest_entry_t *newest =
        once__newest_find(&compare->check->newest, doubt->shard, doubt->key);
    uint8_t id[ONCE_ID_SIZE];
    uint64_t cursor = 0;
    verdict_t verdict;
    int found;

    memset(entry, 0, sizeof(*entry));
    once__newest_id(id, doubt->shard, doubt->key);
    once__index_lock(compare->index, id);
    found = once__index_find(compare->index, id, &cursor, entry);
    once__index_unlock(compare->index, id);
    verdict = found ? judge_with(compare, doubt, newest, entry) : judge_without(compare, newest);
    /* What a program that was killed had not yet written to its file is written by the next one that needs it. */
    return verdict != FINE && once__window_has(compare->index, id) ? FINE : verdict;
}

static void tell(const compare_t *compare, const doubt_t *doubt)
{
    const once__newest_entry_t *newest =
        once__newest_find(&compare->check->newest, doubt->shard, doubt->key);
    once_local_fsck_report_t *report = compare->check->report;
    once_local_finding_t finding = {.kind = "index"};
    const char *what = "the index has another state of a record than the log";
    once__entry_t entry;
    verdict_t verdict = judge(compare, doubt, &entry);

    finding.segment = entry.place.segment;
    finding.offset = entry.place.offset;
    if (verdict == LOST) {
        what = "the index points to a record that is not there";
        report->lost_pending += entry.state == ONCE_STATE_PENDING;
        report->lost_completed += entry.state == ONCE_STATE_COMPLETED;
        report->lost_failed += entry.state == ONCE_STATE_FAILED;
        report->lost_unknown += entry.state == ONCE_STATE_UNKNOWN;
    } else if (newest != NULL && verdict != MISTAKEN) {
        what = verdict == STALE ? "the index has an older state of a record than the log"
                                : "the index does not have a record of the log";
        finding.segment = newest->segment;
        finding.offset = (uint64_t)newest->offset * 8;
    }
    if (verdict != FINE) {
        report->index = ONCE_LOCAL_INDEX_DIFFERS;
        once__check_found(compare->check, &finding, "segment %08x, offset %llu: %s",
                          finding.segment, (unsigned long long)finding.offset, what);
    }
}

/* ------------------------------------------------------------------------------------------------------- all records */

static int add_doubt(compare_t *compare, uint16_t shard, uint64_t key)
{
    doubt_t doubt = {key, shard};

    if (compare->count == compare->room) {
        size_t room = 2 * compare->room + 64;
        doubt_t *more = realloc(compare->doubts, room * sizeof(*more));
        if (more == NULL) {
            return once__fail(compare->check->err, ONCE_E_NOMEM, "%s",
                              once_error_text(ONCE_E_NOMEM));
        }
        compare->doubts = more;
        compare->room = room;
    }
    compare->doubts[compare->count++] = doubt;
    return ONCE_OK;
}

static int compare_shard(compare_t *compare, uint16_t shard)
{
    once__shard_entry_t *entries;
    size_t count;
    int code = once__index_shard(compare->index, shard, &entries, &count);

    if (code != ONCE_OK) {
        return once__fail(compare->check->err, code, "%s", once_error_text(code));
    }
    for (size_t i = 0; code == ONCE_OK && i < count; i++) {
        const once__entry_t *entry = &entries[i].entry;
        once__newest_entry_t *newest =
            once__newest_find(&compare->check->newest, shard, entries[i].key);
        if (newest != NULL) {
            newest->seen = 1;
        }
        if (newest == NULL || newest->segment != entry->place.segment ||
            (uint64_t)newest->offset * 8 != entry->place.offset || newest->state != entry->state) {
            code = add_doubt(compare, shard, entries[i].key);
        }
    }
    free(entries);
    return code;
}

static int compare_all(compare_t *compare)
{
    const once__newest_t *newest = &compare->check->newest;
    int code = ONCE_OK;

    for (uint32_t shard = 0; code == ONCE_OK && shard < ONCE__SHARDS; shard++) {
        code = compare_shard(compare, (uint16_t)shard);
    }
    for (size_t i = 0; code == ONCE_OK && i < newest->size; i++) {
        const once__newest_entry_t *entry = &newest->entries[i];
        if (entry->segment != 0 && !entry->seen && entry->state != ONCE_STATE_NONE &&
            !entry->expired) {
            code = add_doubt(compare, entry->shard, entry->key);
        }
    }
    return code;
}

static int settle_doubts(compare_t *compare)
{
    int code = ONCE_OK;

    for (int round = 0; code == ONCE_OK && compare->count > 0 && round < ROUNDS; round++) {
        size_t left = 0;
        if (round > 0) {
            (void)poll(NULL, 0, WAIT_MS);
        }
        code = once__check_log(compare->check);
        for (size_t i = 0; code == ONCE_OK && i < compare->count; i++) {
            once__entry_t entry;
            if (judge(compare, &compare->doubts[i], &entry) != FINE) {
                compare->doubts[left++] = compare->doubts[i];
            }
        }
        compare->count = code == ONCE_OK ? left : compare->count;
    }
    for (size_t i = 0; code == ONCE_OK && i < compare->count; i++) {
        tell(compare, &compare->doubts[i]);
    }
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- segments */

static int has_file(const once__check_t *check, uint32_t number)
{
    char name[ONCE__SEGMENT_NAME];
    struct stat st;

    once__segment_name(name, number, "log");
    return fstatat(check->directory->segments_fd, name, &st, 0) == 0;
}

/* What the index knows of must be there. What is dropped meanwhile it knows of no more. */
static void find_missing(const compare_t *compare)
{
    once__extent_t extent = {once__index_first_segment(compare->index),
                             once__index_end_segment(compare->index) - 1};

    once__check_ends(compare->check, &extent);
}

/* A program that was killed while it dropped a segment leaves its file: nothing in it counts. */
static void find_leftovers(const compare_t *compare)
{
    once__check_t *check = compare->check;
    uint32_t first = once__index_first_segment(compare->index);

    for (size_t i = 0; i < check->count && check->segments[i].number < first; i++) {
        if (has_file(check, check->segments[i].number)) {
            once_local_finding_t finding = {
                .kind = "leftover", .harmless = 1, .segment = check->segments[i].number};
            once__check_found(check, &finding, "segment %08x was dropped, but its file is there",
                              finding.segment);
        }
    }
    check->first = first > check->first ? first : check->first;
}

static int compare_index(once__check_t *check)
{
    compare_t compare = {.check = check};
    int code =
        once__index_open(&compare.index, check->directory->fd, check->directory->boot_id, 0, NULL);

    if (code != ONCE_OK) {
        check->report->index = ONCE_LOCAL_INDEX_NONE;
        return ONCE_OK;
    }
    if (!once__index_locks_are_sound(compare.index)) {
        once_local_finding_t finding = {.kind = "index"};
        once__check_found(check, &finding,
                          "the locks of the index are damaged, or one is held for ever");
        check->report->index = ONCE_LOCAL_INDEX_DIFFERS;
        once__index_close(compare.index);
        return ONCE_OK;
    }
    check->report->lost_known = 1;
    find_missing(&compare);
    find_leftovers(&compare);
    code = compare_all(&compare);
    code = code == ONCE_OK ? settle_doubts(&compare) : code;
    free(compare.doubts);
    once__index_close(compare.index);
    return code;
}

int once__check_index(once__check_t *check, int alone)
{
    char identity[ONCE__IDENTITY_SIZE];
    once__extent_t extent;
    int code = alone ? ONCE_OK : once__directory_lock(check->directory, LOCK_SH);

    if (code == ONCE_OK && once__directory_has_index(check->directory)) {
        return compare_index(check);
    }
    once__directory_identify(check->directory, identity);
    check->report->index =
        identity[0] != '\0' && code == ONCE_OK && once__directory_is_known(check->directory)
            ? ONCE_LOCAL_INDEX_LEFT
            : ONCE_LOCAL_INDEX_NONE;
    if (once__extent_read(check->directory->segments_fd, &extent)) {
        once__check_ends(check, &extent);
    }
    return ONCE_OK;
}
