/*
 * Checks a store: the log is read by a rebuild into an index of this process alone, which is then compared with the one in use.
 *
 * While programs use the store, no segment is dropped (once__segments_lock), and each is read up to what was durable before. So
 * what differs was changed meanwhile, or is wrong: it is looked at again.
 */
#include "store/local/fsck.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "core/sized.h"
#include "store/local/decide.h"
#include "store/local/rebuild.h"

#define TICK_MS    10
#define LOCK_TICKS 500
#define PATIENCE   100 /* ticks: a large frame is in the file shortly before it is in the index */

typedef unsigned long long number_t; /* for printf */

typedef struct check {
    once__directory_t *directory;
    const once_local_fsck_options_t *how;
    once_local_fsck_report_t *report;
    once_error_t *err;
    uint64_t *numbers; /* of the files */
    size_t number_count;
    once__manifest_t manifest;
    once__index_t *log; /* what the log says */
    once__reader_t *log_reader;
    once__reader_t *live; /* over the index in use; NULL: there is none to compare with */
    int patience;         /* ticks that are left */
} check_t;

/* ------------------------------------------------------------------------------------------------------ what tools share */

int once__local_url(once__url_t *url, once__directory_config_t *config, const char *text,
                    once_error_t *err)
{
    int code = once__url_parse(url, "store URL", text, 0, err);
    const char *filesystem;

    if (code != ONCE_OK) {
        return code;
    }
    if (strcmp(url->scheme, "local") != 0) {
        code = once__fail(err, ONCE_E_UNSUPPORTED, "this is for local stores only: local:PATH");
    } else if (url->path[0] == '\0') {
        code = once__fail(err, ONCE_E_CONFIG, "local store: name a directory: local:PATH");
    }
    if (code != ONCE_OK) {
        once__url_free(url);
        return code;
    }
    *config = (once__directory_config_t){
        .path = url->path, .index_directory = once__url_take(url, "index"), .timeout_ms = 5000};
    filesystem = once__url_take(url, "filesystem");
    config->any_filesystem = filesystem != NULL && strcmp(filesystem, "any") == 0;
    return ONCE_OK;
}

int once__local_keep_segments(const once__directory_t *directory, int *lock)
{
    int code = once__segments_lock(directory->segments_fd, LOCK_EX, lock);

    for (int i = 0; i < LOCK_TICKS && code == ONCE_E_CONFLICT; i++) {
        (void)poll(NULL, 0, TICK_MS);
        code = once__segments_lock(directory->segments_fd, LOCK_EX, lock);
    }
    return code == ONCE_OK;
}

int once__local_is_live(const once__directory_t *directory, uint64_t number)
{
    once__manifest_t manifest = {0};
    int live = -1;

    if (once__manifest_read(&manifest, directory->segments_fd, directory->disk,
                            directory->store_id) == ONCE_OK) {
        live = once__manifest_is_live(&manifest, number)      ? 1
               : once__manifest_is_dropped(&manifest, number) ? 0
                                                              : -1;
    }
    once__manifest_free(&manifest);
    return live;
}

int once_local_exists(const char *url, once_error_t *err)
{
    once__directory_config_t config;
    once__directory_t directory;
    once__url_t parsed;
    int code = once__local_url(&parsed, &config, url, err);

    if (code == ONCE_OK) {
        code = once__directory_look(&directory, &config, 0, err);
        if (code == ONCE_OK) {
            once__directory_leave(&directory);
        }
        once__url_free(&parsed);
    }
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- findings */

static void tell(const check_t *check, const char *kind, uint64_t segment, uint64_t offset,
                 uint64_t length, const char *format, ...) ONCE_PRINTF(6, 7);

static void tell(const check_t *check, const char *kind, uint64_t segment, uint64_t offset,
                 uint64_t length, const char *format, ...)
{
    int harmless = strcmp(kind, "torn") == 0 || strcmp(kind, "leftover") == 0;
    char text[320];
    once_local_finding_t finding = {kind, harmless, segment, offset, length, text};
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    check->report->problems += !harmless;
    if (check->how->found != NULL) {
        check->how->found(&finding, check->how->data);
    }
}

static int read_image(const check_t *check, once__image_t *image, uint64_t number)
{
    return once__image_read(image, check->directory->segments_fd, check->directory->disk, number,
                            check->directory->store_id);
}

/* Is the file to be there? It may have been dropped meanwhile. */
static int is_wanted(const check_t *check, uint64_t number)
{
    return !check->manifest.found || once__local_is_live(check->directory, number) != 0;
}

/* A segment of which no durable end is known may have been written to while it was read: its beginning was seen before its end. */
static int is_still_wrong(const check_t *check, uint64_t number, const once__walk_t *walk)
{
    once__image_t image = {0};
    once__walk_t again;
    int wrong = 0;
    int code = read_image(check, &image, number);

    if (code != ONCE_OK) {
        return code != ONCE_E_NOT_FOUND || is_wanted(check, number);
    }
    image.end = walk->image->end < image.end ? walk->image->end : image.end;
    once__walk_begin(&again, &image, 0);
    while (!wrong && once__walk_next(&again)) {
        wrong = again.offset == walk->offset && once__walk_code(&again) == ONCE_E_CORRUPT;
    }
    once__image_free(&image);
    return wrong;
}

static void tell_unreadable(const check_t *check, uint64_t number, int code)
{
    check->report->missing += code == ONCE_E_NOT_FOUND && is_wanted(check, number);
    check->report->damaged += code == ONCE_E_CORRUPT || code == ONCE_E_IO;
    if (code == ONCE_E_NOT_FOUND && is_wanted(check, number)) {
        tell(check, "missing", number, 0, 0, "segment %016llx is missing", (number_t)number);
    } else if (code == ONCE_E_CORRUPT) {
        tell(check, "header", number, 0, ONCE__SEGMENT_HEADER,
             "segment %016llx: the header is damaged: nothing in it can be read", (number_t)number);
    } else if (code == ONCE_E_IO) {
        tell(check, "unreadable", number, 0, 0, "segment %016llx cannot be read: %s",
             (number_t)number, strerror(errno));
    }
}

/* By the rebuild. */
static void on_found(void *data, uint64_t number, const once__walk_t *walk, int code)
{
    const check_t *check = data;
    uint64_t at, length;

    if (walk == NULL) {
        tell_unreadable(check, number, code);
        return;
    }
    at = walk->offset;
    length = walk->end - at;
    if (walk->kind == ONCE__WALK_TORN) {
        check->report->torn++;
        tell(check, "torn", number, at, length,
             "segment %016llx ends at %llu in bytes that were never durable (%llu)",
             (number_t)number, (number_t)at, (number_t)length);
    } else if (is_still_wrong(check, number, walk)) {
        check->report->damaged++;
        check->report->damaged_bytes += length;
        tell(check, walk->kind == ONCE__WALK_LOST ? "damage" : "record", number, at, length,
             walk->kind != ONCE__WALK_LOST
                 ? "segment %016llx: the record at %llu is damaged (%llu bytes); its key answers "
                   "with an error"
             : length > 0 ? "segment %016llx is damaged at %llu: %llu bytes, nobody knows of "
                            "which records"
                          : "segment %016llx is cut at %llu: it had more (%llu bytes are left "
                            "behind that)",
             (number_t)number, (number_t)at, (number_t)length);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the files */

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static int list_files(check_t *check, uint64_t *unfinished)
{
    int fd = openat(check->directory->segments_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    size_t room = 0;
    int code = stream != NULL ? ONCE_OK : ONCE_E_IO;

    while (code == ONCE_OK && (entry = readdir(stream)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        uint64_t number, *numbers;
        *unfinished += dot != NULL && strcmp(dot, ".new") == 0;
        if (once__segment_number(entry->d_name, &number)) {
            numbers = once__grow(check->numbers, &room, check->number_count + 1, sizeof(*numbers),
                                 SIZE_MAX / sizeof(*numbers));
            code = numbers != NULL ? ONCE_OK : ONCE_E_NOMEM;
            if (code == ONCE_OK) {
                check->numbers = numbers;
                numbers[check->number_count++] = number;
            }
        }
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    if (check->number_count > 0) {
        qsort(check->numbers, check->number_count, sizeof(uint64_t), compare_numbers);
    }
    return code;
}

/* A file that the manifest does not know: one that is about to become a segment has no frame. */
static void check_unknown(const check_t *check, uint64_t number)
{
    once__image_t image = {0};
    once__walk_t walk;
    int code = read_image(check, &image, number);
    int empty = code == ONCE_E_NOT_FOUND;

    if (code == ONCE_OK) {
        once__walk_begin(&walk, &image, 0);
        empty = once__walk_next(&walk) &&
                (walk.kind == ONCE__WALK_END || walk.kind == ONCE__WALK_SEALED);
    }
    once__image_free(&image);
    if (!empty && once__local_is_live(check->directory, number) < 0) {
        tell(check, "manifest", number, 0, 0,
             "segment %016llx is not in the manifest, which must be older than the log",
             (number_t)number);
    }
}

/* The files are taken as they are. */
static int do_without_manifest(check_t *check)
{
    size_t count = check->number_count;

    tell(check, "manifest", 0, 0, 0,
         "the manifest is %s: which segments there must be is not known",
         check->manifest.found ? "damaged" : "missing");
    once__manifest_free(&check->manifest);
    check->manifest = (once__manifest_t){.next = count > 0 ? check->numbers[count - 1] + 1 : 1,
                                         .live_count = count,
                                         .live = malloc((count + 1) * sizeof(uint64_t))};
    if (check->manifest.live == NULL) {
        return ONCE_E_NOMEM;
    }
    if (count > 0) {
        memcpy(check->manifest.live, check->numbers, count * sizeof(uint64_t));
    }
    return ONCE_OK;
}

/* The files first: what is made meanwhile is in the manifest then. */
static int check_files(check_t *check)
{
    const once__directory_t *directory = check->directory;
    uint64_t unfinished = 0;
    int code = list_files(check, &unfinished);

    code = code == ONCE_OK ? once__manifest_read(&check->manifest, directory->segments_fd,
                                                 directory->disk, directory->store_id)
                           : code;
    if (code == ONCE_E_CORRUPT || (code == ONCE_OK && !check->manifest.found)) {
        check->manifest.found = code != ONCE_OK;
        return do_without_manifest(check);
    }
    if (code == ONCE_OK && unfinished > 0 && directory->index == NULL) {
        tell(check, "leftover", 0, 0, 0, "%llu unfinished files in segments/",
             (number_t)unfinished);
    }
    for (size_t i = 0; i < check->number_count && code == ONCE_OK; i++) {
        if (!once__manifest_is_live(&check->manifest, check->numbers[i]) &&
            !once__manifest_is_dropped(&check->manifest, check->numbers[i])) {
            check_unknown(check, check->numbers[i]);
        }
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- the log */

static const once__segment_t *segment_of(const once__index_t *index, uint64_t number)
{
    for (uint32_t slot = 0; index != NULL && slot < once__index_slot_end(index); slot++) {
        const once__segment_t *segment = once__index_segment(index, slot);
        if (atomic_load(&segment->number) == number) {
            return segment;
        }
    }
    return NULL;
}

static uint64_t on_limit(void *data, uint64_t number)
{
    const check_t *check = data;
    const once__segment_t *segment = segment_of(check->directory->index, number);

    return segment != NULL ? atomic_load(&segment->synced) : UINT64_MAX;
}

static void on_progress(void *data, uint64_t done, uint64_t all)
{
    const check_t *check = data;

    if (check->how->progress != NULL) {
        check->how->progress(done, all, check->how->data);
    }
}

static once__reader_t *open_reader(const check_t *check, once__index_t *index)
{
    once__log_config_t config = {.segments_fd = check->directory->segments_fd,
                                 .index = index,
                                 .disk = check->directory->disk};

    return once__reader_open(&config);
}

static int check_log(check_t *check)
{
    const once__directory_t *directory = check->directory;
    once__index_config_t where = {.store_fd = directory->segments_fd, .owner = geteuid()};
    once__rebuild_config_t config = {.segments_fd = directory->segments_fd,
                                     .disk = directory->disk,
                                     .looks_only = 1,
                                     .accept_lost = 1,
                                     .progress = on_progress,
                                     .limit = on_limit,
                                     .found = on_found,
                                     .data = check,
                                     .manifest = &check->manifest};
    once__rebuilt_t rebuilt = {0};
    int code;

    memcpy(config.store_id, directory->store_id, ONCE__STORE_ID_SIZE);
    memcpy(config.boot_id, directory->boot_id, ONCE__BOOT_ID_SIZE);
    code = once__index_create(&check->log, &where, check->err);
    code = code == ONCE_OK ? once__rebuild(check->log, &config, &rebuilt, check->err) : code;
    check->report->segments = rebuilt.segments;
    check->report->segment_bytes = rebuilt.bytes;
    check->report->frames = rebuilt.frames;
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- the index */

static int compare_entries(const void *a, const void *b)
{
    const once__shard_entry_t *x = a, *y = b;

    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->tag < y->tag ? -1 : x->tag > y->tag;
}

static uint64_t number_of(const once__index_t *index, const once__shard_entry_t *item)
{
    return atomic_load(&once__index_segment(index, item->entry.place.slot)->number);
}

static void count_state(uint64_t *pending, uint64_t *completed, uint64_t *failed, uint64_t *unknown,
                        uint8_t state)
{
    *pending += state == ONCE_STATE_PENDING;
    *completed += state == ONCE_STATE_COMPLETED;
    *failed += state == ONCE_STATE_FAILED;
    *unknown += state == ONCE_STATE_UNKNOWN;
}

/*
 * Counts the record, as the log has it. *version: of its newest frame; 0: it is damaged. Returns 1 if the index may lack it: it was
 * removed, or a compaction that was interrupted has taken it out.
 */
static int count_record(const check_t *check, const once__shard_entry_t *item, uint64_t *version)
{
    const once__records_t records = {.index = check->log, .rules = &once__rules};
    once_local_fsck_report_t *report = check->report;
    once__frame_t frame = {0};
    once__record_t record;
    int code = once__reader_read(check->log_reader, item->entry.place, 0, &frame), dead;

    *version = code == ONCE_OK || (code == ONCE_E_CORRUPT && frame.kind != 0) ? frame.version : 0;
    if (code != ONCE_OK || frame.kind != ONCE__FRAME_RECORD) {
        return code == ONCE_OK;
    }
    code = once__reader_record(check->log_reader, item->entry.place, &frame, &record);
    if (code != ONCE_OK && code != ONCE_E_NEWER) {
        return 0;
    }
    report->newer += code == ONCE_E_NEWER;
    dead = code == ONCE_OK && once__records_may_go(&records, &record.head);
    if (code == ONCE_OK && record.head.expires != 0 &&
        once__index_now(check->log) >= record.head.expires) {
        report->expired++;
    } else {
        count_state(&report->pending, &report->completed, &report->failed, &report->unknown,
                    record.head.state);
    }
    return dead;
}

typedef enum verdict {
    FINE,
    NOT_IN_INDEX,
    NOT_THERE, /* the index leads to something else */
    OLDER,     /* the log has a newer frame */
} verdict_t;

/*
 * Is an entry right, of which the log has this version (0: none was found)? No lock is held: one that changes meanwhile is. `item`
 * NULL: there is none.
 */
static verdict_t judge(const check_t *check, const once__shard_entry_t *item, uint64_t version)
{
    const once__segment_t *read;
    once__frame_t frame = {0};
    int code;

    if (item == NULL) {
        return version != 0 ? NOT_IN_INDEX : FINE;
    }
    code = once__reader_read(check->live, item->entry.place, 0, &frame);
    if (code == ONCE_OK && !once__index_is_key(frame.id, item->key, item->tag)) {
        return NOT_THERE;
    }
    if (code != ONCE_OK) { /* a damaged record was told of as such */
        return code == ONCE_E_CORRUPT && frame.kind != 0 ? FINE : NOT_THERE;
    }
    read = version == 0 ? segment_of(check->log, number_of(check->directory->index, item)) : NULL;
    return frame.version < version ||
                   (read != NULL && item->entry.place.offset < atomic_load(&read->tail))
               ? OLDER
               : FINE;
}

/* As the index has the record now; `found` is room for it. NULL: not at all. */
static const once__shard_entry_t *look_up(const check_t *check, uint32_t shard,
                                          const once__shard_entry_t *wanted,
                                          once__shard_entry_t *found)
{
    const once__shard_entry_t *item = NULL;
    once__shard_entry_t *items;
    size_t count;

    (void)once__index_shard(check->directory->index, shard, &items, &count);
    for (size_t i = 0; i < count && item == NULL; i++) {
        if (compare_entries(&items[i], wanted) == 0) {
            *found = items[i];
            item = found;
        }
    }
    free(items);
    return item;
}

static void check_entry(check_t *check, uint32_t shard, const once__shard_entry_t *wanted,
                        const once__shard_entry_t *item, uint64_t version)
{
    once_local_fsck_report_t *report = check->report;
    once__shard_entry_t found;
    verdict_t verdict = judge(check, item, version);
    uint64_t number, offset;

    while (verdict != FINE && check->patience-- > 0) {
        (void)poll(NULL, 0, TICK_MS);
        item = look_up(check, shard, wanted, &found);
        verdict = judge(check, item, version);
    }
    number = item != NULL ? number_of(check->directory->index, item) : 0;
    offset = item != NULL ? item->entry.place.offset : 0;
    if (verdict == NOT_IN_INDEX) {
        tell(check, "index", 0, 0, 0, "the record %016llx is in the log and not in the index",
             (number_t)wanted->key);
    } else if (verdict == NOT_THERE) {
        count_state(&report->lost_pending, &report->lost_completed, &report->lost_failed,
                    &report->lost_unknown, item->entry.state);
        tell(check, "index", number, offset, 0,
             "the index leads to %llu in segment %016llx, where the record %016llx is not",
             (number_t)offset, (number_t)number, (number_t)wanted->key);
    } else if (verdict == OLDER) {
        tell(check, "index", number, offset, 0,
             "the index leads to an older state of the record %016llx than the log has",
             (number_t)wanted->key);
    }
}

static int is_same(const check_t *check, const once__shard_entry_t *log,
                   const once__shard_entry_t *live)
{
    return log->entry.place.offset == live->entry.place.offset &&
           number_of(check->log, log) == number_of(check->directory->index, live);
}

/* Both sides of a shard, in the order of their keys. */
static int check_shard(check_t *check, uint32_t shard)
{
    once__shard_entry_t *log = NULL, *live = NULL;
    size_t log_count = 0, live_count = 0, i = 0, j = 0;
    int code = once__index_shard(check->log, shard, &log, &log_count);

    if (code == ONCE_OK && check->live != NULL) {
        code = once__index_shard(check->directory->index, shard, &live, &live_count);
    }
    while (code == ONCE_OK && (i < log_count || j < live_count)) {
        int order = i == log_count ? 1 : j == live_count ? -1 : compare_entries(&log[i], &live[j]);
        uint64_t version = 0;
        int dead = order <= 0 && count_record(check, &log[i], &version);
        const once__shard_entry_t *item = order < 0 ? NULL : &live[j];
        if (check->live != NULL &&
            (order < 0 ? !dead : order > 0 || !is_same(check, &log[i], item))) {
            check_entry(check, shard, order > 0 ? item : &log[i], item, version);
        }
        i += order <= 0;
        j += order >= 0;
    }
    free(log);
    free(live);
    return code;
}

/* Counts the records of the log, and compares the index in use with it. */
static int check_index(check_t *check, int compares)
{
    uint64_t problems = check->report->problems;
    int code;

    check->log_reader = open_reader(check, check->log);
    check->live = compares ? open_reader(check, check->directory->index) : NULL;
    code = check->log_reader != NULL && (check->live != NULL || !compares) ? ONCE_OK : ONCE_E_NOMEM;
    for (uint32_t shard = 0; shard < ONCE__SHARDS && code == ONCE_OK; shard++) {
        code = check_shard(check, shard);
    }
    if (compares) {
        check->report->lost_known = 1;
        check->report->index =
            check->report->problems > problems ? ONCE_LOCAL_INDEX_DIFFERS : ONCE_LOCAL_INDEX_OK;
    }
    once__reader_close(check->log_reader);
    once__reader_close(check->live);
    return code;
}

/* -------------------------------------------------------------------------------------------------------------- check */

static void count_writing(const check_t *check)
{
    const once__index_t *index = check->directory->index;

    for (uint32_t slot = 0; index != NULL && slot < once__index_slot_end(index); slot++) {
        check->report->writing +=
            atomic_load(&once__index_segment(index, slot)->state) == ONCE__SEGMENT_ACTIVE;
    }
}

/* Does any program use the store? Only one that could be alone with it for a moment knows. */
static int is_in_use(const once__directory_t *directory)
{
    int fd = openat(directory->segments_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int used = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    return used;
}

static int check_all(check_t *check)
{
    once__directory_t *directory = check->directory;
    int repair = check->how->repair, used = !repair && is_in_use(directory);
    /* What nobody uses is compared with the log by the next program that opens the store. */
    int compares = directory->index != NULL && (used || repair);
    int lock = -1, code;

    if (compares && used) {
        (void)once__local_keep_segments(directory, &lock);
    }
    check->patience = repair ? 0 : PATIENCE;
    check->report->index = directory->index == NULL ? ONCE_LOCAL_INDEX_NONE : ONCE_LOCAL_INDEX_LEFT;
    code = check_files(check);
    if (used) {
        count_writing(check);
    }
    code = code == ONCE_OK ? check_log(check) : code;
    code = code == ONCE_OK ? check_index(check, compares) : code;
    if (lock >= 0) {
        (void)close(lock);
    }
    check->report->left = check->report->problems;
    if (code == ONCE_OK && repair && check->report->problems == 0) {
        once__directory_forget_index(directory); /* the log may lack what it has */
    } else if (code == ONCE_OK && repair) {
        code = once__local_repair(directory, &check->manifest, check->numbers, check->number_count,
                                  check->err);
    }
    return code;
}

static int check_path(const once__directory_config_t *config, const once_local_fsck_options_t *how,
                      once_local_fsck_report_t *report, once_error_t *err)
{
    once__directory_t directory;
    check_t check = {.directory = &directory, .how = how, .report = report, .err = err};
    once__sizes_t sizes;
    int code = once__directory_look(&directory, config, how->repair ? LOCK_EX : 0, err);

    if (code != ONCE_OK) {
        return code;
    }
    once__directory_sizes(&directory, &sizes);
    report->index_bytes = sizes.index_bytes;
    code = check_all(&check);
    once__directory_sizes(&directory, &sizes);
    report->quarantined = sizes.quarantined;
    report->quarantine_bytes = sizes.quarantine_bytes;
    once__manifest_free(&check.manifest);
    if (check.log != NULL) {
        once__index_close(check.log);
    }
    free(check.numbers);
    once__directory_leave(&directory);
    return code;
}

/* Opens the repaired store once, which makes its index, and looks again. */
static int look_again(const once__directory_config_t *config, once_local_fsck_report_t *report,
                      once_error_t *err)
{
    static const once_local_fsck_options_t quiet = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t after = ONCE_LOCAL_FSCK_REPORT_INIT;
    once__directory_t directory;
    int code = once__directory_open(&directory, config, err);

    if (code == ONCE_OK) {
        code = check_path(config, &quiet, &after, err);
        once__directory_close(&directory);
    }
    if (code == ONCE_OK) {
        report->left = after.left;
        report->quarantined = after.quarantined;
        report->quarantine_bytes = after.quarantine_bytes;
        report->index_bytes = after.index_bytes;
    }
    return code;
}

int once_local_fsck(const char *url, const once_local_fsck_options_t *how,
                    once_local_fsck_report_t *report, once_error_t *err)
{
    return once__local_fsck(url, &once__real_disk, how, report, err);
}

int once__local_fsck(const char *url, const once__disk_t *disk,
                     const once_local_fsck_options_t *how, once_local_fsck_report_t *report,
                     once_error_t *err)
{
    once_local_fsck_options_t options = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t all = ONCE_LOCAL_FSCK_REPORT_INIT;
    once__directory_config_t config;
    once_error_t why = {0};
    once__url_t parsed;
    int code = once__sized_read(&options, sizeof(options), ONCE__LOCAL_FSCK_OPTIONS_V1, how);

    if (code != ONCE_OK || once__sized(report) < ONCE__LOCAL_FSCK_REPORT_V1) {
        return once__fail(
            err, ONCE_E_INVALID,
            "the options or the report were not set up with ONCE_LOCAL_FSCK_..._INIT");
    }
    code = once__local_url(&parsed, &config, url, err);
    if (code != ONCE_OK) {
        return code;
    }
    config.disk = disk;
    code = check_path(&config, &options, &all, &why);
    if (code == ONCE_OK && options.repair && all.problems > 0) {
        code = look_again(&config, &all, &why);
    }
    (void)once__sized_write(report, ONCE__LOCAL_FSCK_REPORT_V1, &all, sizeof(all));
    if (code != ONCE_OK) {
        (void)once__fail(err, code, "%s", why.code == code ? why.text : once_error_text(code));
    }
    once__url_free(&parsed);
    return code;
}
