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
#include "store/local/directory.h"

#define LOCK_WAIT_MS 1000

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
} check_t;

/* ------------------------------------------------------------------------------------------------------ what tools share */

int once__local_url(once__url_t *url, once__directory_config_t *config, const char *text,
                    once_error_t *err)
{
    once__local_settings_t settings = {0};
    int code = once__url_parse(url, "store URL", text, 0, err);

    if (code != ONCE_OK) {
        return code;
    }
    code = strcmp(url->scheme, "local") == 0
               ? once__local_settings_take(&settings, url, err)
               : once__fail(err, ONCE_E_UNSUPPORTED, "this is for local stores only: local:PATH");
    if (code != ONCE_OK) {
        once__url_free(url);
        return code;
    }
    *config = settings.directory;
    config->timeout_ms = 5000;
    return ONCE_OK;
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

int once_local_path(const char *url, char *path, size_t size)
{
    once__url_t parsed;
    int code = url == NULL || path == NULL ? ONCE_E_INVALID
                                           : once__url_parse(&parsed, "store URL", url, 0, NULL);

    if (code != ONCE_OK) {
        return code;
    }
    if (strcmp(parsed.scheme, "local") != 0) {
        code = ONCE_E_UNSUPPORTED;
    } else if (strlen(parsed.path) >= size) {
        code = ONCE_E_TOO_BIG;
    } else {
        memcpy(path, parsed.path, strlen(parsed.path) + 1);
    }
    once__url_free(&parsed);
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

/* Is the segment in the manifest, as that is now? 1; 0: it was dropped; -1: neither, or it cannot be read. */
static int is_live(const check_t *check, uint64_t number)
{
    once__manifest_t manifest = {0};
    int live = -1;

    if (once__manifest_read(&manifest, &check->directory->log) == ONCE_OK) {
        live = once__manifest_is_live(&manifest, number)      ? 1
               : once__manifest_is_dropped(&manifest, number) ? 0
                                                              : -1;
    }
    once__manifest_free(&manifest);
    return live;
}

/* Is the file to be there? It may have been dropped meanwhile. */
static int is_wanted(const check_t *check, uint64_t number)
{
    return !check->manifest.found || is_live(check, number) != 0;
}

/* A segment of which no durable end is known may have been written to while it was read: its beginning was seen before its end. */
static int is_still_wrong(const check_t *check, uint64_t number, const once__walk_t *walk)
{
    once__image_t image = {0};
    once__walk_t again;
    int wrong = 0;
    int code = once__image_read(&image, &check->directory->log, number);

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

static int list_files(check_t *check, uint64_t *unfinished)
{
    DIR *stream = once__disk_list(check->directory->log.segments_fd, ".");
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
        qsort(check->numbers, check->number_count, sizeof(uint64_t), once__compare_numbers);
    }
    return code;
}

/* A file that the manifest does not know: one that is about to become a segment has no frame. */
static void check_unknown(const check_t *check, uint64_t number)
{
    int code = once__segment_is_empty(&check->directory->log, number);

    if (code != ONCE_OK && code != ONCE_E_NOT_FOUND && is_live(check, number) < 0) {
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

    code = code == ONCE_OK ? once__manifest_read(&check->manifest, &directory->log) : code;
    if (code == ONCE_E_CORRUPT || (code == ONCE_OK && !check->manifest.found)) {
        check->manifest.found = code != ONCE_OK;
        return do_without_manifest(check);
    }
    if (code == ONCE_OK && unfinished > 0 && directory->log.index == NULL) {
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

static once__reader_t *open_reader(const check_t *check, once__index_t *index)
{
    once__log_config_t config = check->directory->log;

    config.index = index;
    return once__reader_open(&config);
}

static int check_log(check_t *check)
{
    const once__directory_t *directory = check->directory;
    once__index_config_t where = {.store_fd = directory->log.segments_fd, .owner = geteuid()};
    once__log_config_t log = directory->log;
    once__rebuild_config_t config = {.log = &log,
                                     .looks_only = 1,
                                     .accept_lost = 1,
                                     .progress = check->how->progress,
                                     .progress_data = check->how->data,
                                     .in_use = directory->log.index,
                                     .found = on_found,
                                     .data = check,
                                     .manifest = &check->manifest};
    once__rebuilt_t rebuilt = {0};
    int code = once__index_create(&check->log, &where, check->err);

    log.index = check->log;
    code = code == ONCE_OK ? once__rebuild(&config, &rebuilt, check->err) : code;
    check->report->segments = rebuilt.segments;
    check->report->segment_bytes = rebuilt.bytes;
    check->report->frames = rebuilt.frames;
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- the index */

static uint64_t number_of(const check_t *check, once__place_t place)
{
    return atomic_load(&once__index_segment(check->directory->log.index, place.slot)->number);
}

static void count_state(uint64_t *pending, uint64_t *completed, uint64_t *failed, uint64_t *unknown,
                        uint8_t state)
{
    *pending += state == ONCE_STATE_PENDING;
    *completed += state == ONCE_STATE_COMPLETED;
    *failed += state == ONCE_STATE_FAILED;
    *unknown += state == ONCE_STATE_UNKNOWN;
}

/* The record of a frame. 1: the index may lack it: it was removed, or an interrupted compaction has taken it out. */
static int count_record(const check_t *check, once__place_t place, const once__frame_t *frame)
{
    const once__records_t records = {.index = check->log, .rules = &once__rules};
    once_local_fsck_report_t *report = check->report;
    once__record_t record;
    int code;

    if (frame->kind != ONCE__FRAME_RECORD) {
        return 1;
    }
    code = once__reader_record(check->log_reader, place, frame, &record);
    if (code != ONCE_OK && code != ONCE_E_NEWER) {
        return 0;
    }
    report->newer += code == ONCE_E_NEWER;
    if (code == ONCE_OK && record.head.expires != 0 &&
        once__index_now(check->log) >= record.head.expires) {
        report->expired++;
    } else {
        count_state(&report->pending, &report->completed, &report->failed, &report->unknown,
                    record.head.state);
    }
    return code == ONCE_OK && once__records_may_go(&records, &record.head);
}

/* An entry of the log's index: counts the record, and looks for it in the index in use. */
static void check_logged(check_t *check, const once__shard_entry_t *item)
{
    once__index_t *index = check->directory->log.index;
    once__place_t place = item->entry.place;
    once__frame_t frame = {0}, live;
    int code = once__reader_read(check->log_reader, place, 0, &frame);
    int may_lack = code == ONCE_OK && count_record(check, place, &frame), found;
    once__entry_t entry;

    /* A shard whose lock cannot be had cannot be listed either: see below. */
    if (check->live == NULL || frame.kind == 0 ||
        once__index_lock(index, frame.id, LOCK_WAIT_MS) != ONCE_OK) {
        return;
    }
    found = once__index_find(index, frame.id, &entry);
    once__index_unlock(index, frame.id);
    if (!found && !may_lack) {
        tell(check, "index", 0, 0, 0, "the record %016llx is in the log and not in the index",
             (number_t)item->key);
    } else if (found && once__reader_read(check->live, entry.place, 0, &live) == ONCE_OK &&
               live.version < frame.version) { /* what cannot be read is reported below */
        tell(check, "index", number_of(check, entry.place), entry.place.offset, 0,
             "the index leads to an older state of the record %016llx than the log has",
             (number_t)item->key);
    }
}

/* An entry of the index in use: its frame is where it leads. If it changes meanwhile, the old frame is still there. */
static void check_indexed(check_t *check, const once__shard_entry_t *item)
{
    once_local_fsck_report_t *report = check->report;
    once__place_t place = item->entry.place;
    once__frame_t frame = {0};
    int code = once__reader_read(check->live, place, 0, &frame);

    if (code == ONCE_E_NOT_FOUND || (code == ONCE_E_CORRUPT && frame.kind != 0) ||
        (code == ONCE_OK && once__index_is_key(frame.id, item->key, item->tag))) {
        return; /* also a damaged record: told of as such */
    }
    count_state(&report->lost_pending, &report->lost_completed, &report->lost_failed,
                &report->lost_unknown, item->entry.state);
    tell(check, "index", number_of(check, place), place.offset, 0,
         "the index leads to %llu in segment %016llx, where the record %016llx is not",
         (number_t)place.offset, (number_t)number_of(check, place), (number_t)item->key);
}

static int for_each(check_t *check, once__index_t *index,
                    void (*visit)(check_t *check, const once__shard_entry_t *item))
{
    int code = ONCE_OK;

    for (uint32_t shard = 0; shard < ONCE__SHARDS && code == ONCE_OK; shard++) {
        once__shard_entry_t *items;
        size_t count;
        code = once__index_shard(index, shard, &items, &count);
        for (size_t i = 0; i < count; i++) {
            visit(check, &items[i]);
        }
        free(items);
    }
    return code;
}

/* Counts the records of the log, and compares the index in use with it. */
static int check_index(check_t *check, int compares)
{
    uint64_t problems = check->report->problems;
    int code;

    check->log_reader = open_reader(check, check->log);
    check->live = compares ? open_reader(check, check->directory->log.index) : NULL;
    code = check->log_reader != NULL && (check->live != NULL || !compares) ? ONCE_OK : ONCE_E_NOMEM;
    code = code == ONCE_OK ? for_each(check, check->log, check_logged) : code;
    if (compares) {
        code = code == ONCE_OK ? for_each(check, check->directory->log.index, check_indexed) : code;
        check->report->lost_known = 1;
        check->report->index =
            check->report->problems > problems ? ONCE_LOCAL_INDEX_DIFFERS : ONCE_LOCAL_INDEX_OK;
    }
    once__reader_close(check->log_reader);
    once__reader_close(check->live);
    return code;
}

/* -------------------------------------------------------------------------------------------------------------- check */

/* Does any program use the store? Only one that could be alone with it for a moment knows. */
static int is_in_use(const once__directory_t *directory)
{
    int fd = openat(directory->log.segments_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int used = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0;

    once__close(fd);
    return used;
}

static int check_all(check_t *check)
{
    once__directory_t *directory = check->directory;
    int repair = check->how->repair, used = !repair && is_in_use(directory);
    /* What nobody uses is compared with the log by the next program that opens the store. */
    int compares = directory->log.index != NULL && (used || repair);
    int lock = -1, code;

    if (compares && used) {
        (void)once__segments_lock(directory->log.segments_fd, LOCK_EX, ONCE__KEEP_MS, &lock);
    }
    check->report->index =
        directory->log.index == NULL ? ONCE_LOCAL_INDEX_NONE : ONCE_LOCAL_INDEX_LEFT;
    code = check_files(check);
    if (used && directory->log.index != NULL) {
        check->report->writing =
            once__index_count(directory->log.index, ONCE__SEGMENT_ACTIVE, ONCE__SEGMENT_ACTIVE);
    }
    code = code == ONCE_OK ? check_log(check) : code;
    code = code == ONCE_OK ? check_index(check, compares) : code;
    once__segments_unlock(lock);
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
    int code = once__directory_look(&directory, config, how->repair ? LOCK_EX : 0, err);

    if (code != ONCE_OK) {
        return code;
    }
    report->index_bytes = directory.log.index != NULL ? once__index_bytes(directory.log.index) : 0;
    code = check_all(&check);
    once__directory_quarantine(&directory, &report->quarantined, &report->quarantine_bytes);
    once__manifest_free(&check.manifest);
    once__index_close(check.log);
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
