/*
 * Checks a store: the log is read by a rebuild into an index of this process alone, which is then compared with the one in use.
 *
 * While programs use the store, no segment is dropped (once__segments_lock), and each segment is read up to what was
 * durable before. So what differs afterwards was changed meanwhile, or is wrong: it is looked at again at the end.
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
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "core/sized.h"
#include "store/local/decide.h"
#include "store/local/rebuild.h"

#define LOCK_TRIES 500 /* 10 ms each */
#define SETTLE_MS  200 /* a large frame is in the file shortly before it is in the index */

/* A record whose entries differ. */
typedef struct suspect {
    uint32_t shard, tag;
    uint64_t key;
    uint64_t version; /* of the newest frame in the log; 0: none was found */
} suspect_t;

typedef struct check {
    once__directory_t *directory;
    const once_local_fsck_options_t *how;
    once_local_fsck_report_t *report;
    once_error_t *err;
    uint64_t *numbers; /* of the files */
    size_t number_count;
    once__manifest_t manifest;
    int manifest_is_bad;  /* the files are taken as they are */
    once__index_t *log;   /* what the log says */
    uint64_t *ends;       /* of the manifest's live segments: how far they were read */
    once__reader_t *live; /* over the index in use */
    suspect_t *suspects;
    size_t suspect_count, suspect_room;
    int failed; /* no memory */
} check_t;

/* ------------------------------------------------------------------------------------------------------------ helpers */

int once__local_url(once__url_t *url, const char *text, once_error_t *err)
{
    int code = once__url_parse(url, "store URL", text, 0, err);

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
    }
    return code;
}

once__directory_config_t once__local_config(const once__url_t *url, const once__disk_t *disk)
{
    once__url_t copy = *url;
    const char *filesystem = once__url_take(&copy, "filesystem");

    return (once__directory_config_t){.path = url->path,
                                      .disk = disk,
                                      .index_directory = once__url_take(&copy, "index"),
                                      .any_filesystem =
                                          filesystem != NULL && strcmp(filesystem, "any") == 0,
                                      .timeout_ms = 5000};
}

int once__local_keep_segments(const once__directory_t *directory, int *lock)
{
    int code = once__segments_lock(directory->segments_fd, LOCK_EX, lock);

    for (int i = 0; i < LOCK_TRIES && code == ONCE_E_CONFLICT; i++) {
        (void)poll(NULL, 0, 10);
        code = once__segments_lock(directory->segments_fd, LOCK_EX, lock);
    }
    return code == ONCE_OK;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/*
 * Numbers of the segments in the directory, ascending (malloc'd). `unfinished` is raised by the number of files *.new. ONCE_OK,
 * ONCE_E_IO, ONCE_E_NOMEM.
 */
static int list_segments(int segments_fd, uint64_t **numbers, size_t *count, uint64_t *unfinished)
{
    int fd = openat(segments_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    size_t room = 0;
    int code = ONCE_OK;

    *numbers = NULL;
    *count = 0;
    if (stream == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return ONCE_E_IO;
    }
    while (code == ONCE_OK && (entry = readdir(stream)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        uint64_t number;
        if (dot != NULL && strcmp(dot, ".new") == 0) {
            (*unfinished)++;
        }
        if (!once__segment_number(entry->d_name, &number)) {
            continue;
        }
        if (*count == room) {
            uint64_t *more = realloc(*numbers, (room = room * 2 + 64) * sizeof(**numbers));
            code = more == NULL ? ONCE_E_NOMEM : ONCE_OK;
            *numbers = more != NULL ? more : *numbers;
        }
        if (code == ONCE_OK) {
            (*numbers)[(*count)++] = number;
        }
    }
    (void)closedir(stream);
    if (*count > 0) {
        qsort(*numbers, *count, sizeof(**numbers), compare_numbers);
    }
    return code;
}

int once_local_exists(const char *url, once_error_t *err)
{
    once__directory_t directory;
    once__url_t parsed;
    int code = once__local_url(&parsed, url, err);

    if (code == ONCE_OK) {
        once__directory_config_t config = once__local_config(&parsed, NULL);
        code = once__directory_look(&directory, &config, 0, err);
        if (code == ONCE_OK) {
            once__directory_leave(&directory);
        }
        once__url_free(&parsed);
    }
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- findings */

static void tell(const check_t *check, const char *kind, int harmless, uint64_t segment,
                 uint64_t offset, uint64_t length, const char *format, ...) ONCE_PRINTF(7, 8);

static void tell(const check_t *check, const char *kind, int harmless, uint64_t segment,
                 uint64_t offset, uint64_t length, const char *format, ...)
{
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

static int number_at(const check_t *check, uint64_t number)
{
    const uint64_t *found = bsearch(&number, check->manifest.live, check->manifest.live_count,
                                    sizeof(number), compare_numbers);

    return found != NULL ? (int)(found - check->manifest.live) : -1;
}

/* Is it still to be there, and still unreadable in that way? It may have been dropped meanwhile. */
static int is_still_live(const check_t *check, uint64_t number)
{
    once__manifest_t manifest = {0};
    int live = check->manifest_is_bad ||
               once__manifest_read(&manifest, check->directory->segments_fd, check->directory->disk,
                                   check->directory->store_id) != ONCE_OK ||
               once__manifest_is_live(&manifest, number);

    once__manifest_free(&manifest);
    return live;
}

/*
 * Is there still something wrong at this place? A segment of which no durable end is known may have been written to while it was
 * read: then its beginning was seen older than its end.
 */
static int is_still_wrong(const check_t *check, uint64_t number, const once__walk_t *walk)
{
    once__image_t image = {0};
    once__walk_t again;
    int wrong = 0;
    int code = once__image_read(&image, check->directory->segments_fd, check->directory->disk,
                                number, check->directory->store_id);

    if (code != ONCE_OK) {
        return code != ONCE_E_NOT_FOUND || is_still_live(check, number);
    }
    image.end = walk->image->end < image.end ? walk->image->end : image.end;
    once__walk_begin(&again, &image, 0);
    while (!wrong && once__walk_next(&again)) {
        wrong = again.offset == walk->offset &&
                (again.kind == ONCE__WALK_LOST || again.kind == ONCE__WALK_DAMAGED ||
                 again.kind == ONCE__WALK_FRAME);
    }
    if (wrong &&
        again.kind == ONCE__WALK_FRAME) { /* damaged inside a valid frame, or sound by now */
        once__head_t head;
        code = once__unpack_head(&head, &again.frame);
        wrong = code != ONCE_OK && code != ONCE_E_NEWER;
    }
    once__image_free(&image);
    return wrong;
}

static void tell_unreadable(const check_t *check, uint64_t number, int code)
{
    unsigned long long n = number;

    switch (code) {
    case ONCE_E_NOT_FOUND:
        if (is_still_live(check, number)) {
            check->report->missing++;
            tell(check, "missing", 0, number, 0, 0, "segment %016llx is missing", n);
        }
        break;
    case ONCE_E_CORRUPT:
        check->report->damaged++;
        tell(check, "header", 0, number, 0, ONCE__SEGMENT_HEADER,
             "segment %016llx: the header is damaged: nothing in it can be read", n);
        break;
    case ONCE_E_IO:
        check->report->damaged++;
        tell(check, "unreadable", 0, number, 0, 0, "segment %016llx cannot be read: %s", n,
             strerror(errno));
        break;
    default: /* the check ends, and says why */
        break;
    }
}

/* By the rebuild. */
static void on_found(void *data, uint64_t number, const once__walk_t *walk, int code)
{
    check_t *check = data;
    unsigned long long n = number, at, length;

    if (walk == NULL) {
        tell_unreadable(check, number, code);
        return;
    }
    at = walk->offset;
    length = walk->end - walk->offset;
    if (walk->kind == ONCE__WALK_TORN) {
        check->report->torn++;
        tell(check, "torn", 1, number, at, length,
             "segment %016llx ends at %llu in bytes that were never durable (%llu)", n, at, length);
    } else if (is_still_wrong(check, number, walk)) {
        check->report->damaged++;
        check->report->damaged_bytes += length;
        if (walk->kind == ONCE__WALK_LOST) {
            tell(check, "damage", 0, number, at, length,
                 length > 0 ? "segment %016llx is damaged at %llu: %llu bytes, nobody knows of "
                              "which records"
                            : "segment %016llx is cut at %llu: it had more (%llu bytes are left "
                              "behind that)",
                 n, at, length);
        } else {
            tell(check, "record", 0, number, at, length,
                 "segment %016llx: the record at %llu is damaged (%llu bytes); its key answers "
                 "with an error",
                 n, at, length);
        }
    }
}

static uint64_t on_limit(void *data, uint64_t number)
{
    const check_t *check = data;
    const once__index_t *index = check->directory->index;

    for (uint32_t slot = 0; index != NULL && slot < once__index_slot_end(index); slot++) {
        const once__segment_t *segment = once__index_segment(index, slot);
        if (atomic_load(&segment->number) == number) {
            return atomic_load(&segment->synced);
        }
    }
    return UINT64_MAX;
}

static void on_progress(void *data, uint64_t done, uint64_t all)
{
    const check_t *check = data;

    if (check->how->progress != NULL) {
        check->how->progress(done, all, check->how->data);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the files */

/* A file that the manifest does not know: one that is about to become a segment has no frame. */
static void check_unknown(const check_t *check, uint64_t number)
{
    once__image_t image = {0};
    once__manifest_t manifest = {0};
    once__walk_t walk;
    int code = once__image_read(&image, check->directory->segments_fd, check->directory->disk,
                                number, check->directory->store_id);
    int empty = code == ONCE_E_NOT_FOUND;

    if (code == ONCE_OK) {
        once__walk_begin(&walk, &image, 0);
        empty = once__walk_next(&walk) &&
                (walk.kind == ONCE__WALK_END || walk.kind == ONCE__WALK_SEALED);
    }
    once__image_free(&image);
    if (!empty &&
        once__manifest_read(&manifest, check->directory->segments_fd, check->directory->disk,
                            check->directory->store_id) == ONCE_OK) {
        empty = once__manifest_is_live(&manifest, number) ||
                once__manifest_is_dropped(&manifest, number); /* by now */
    }
    once__manifest_free(&manifest);
    if (!empty) {
        tell(check, "manifest", 0, number, 0, 0,
             "segment %016llx is not in the manifest, which must be older than the log",
             (unsigned long long)number);
    }
}

static int use_files_as_manifest(check_t *check)
{
    check->manifest_is_bad = 1;
    once__manifest_free(&check->manifest);
    check->manifest = (once__manifest_t){.next = 1};
    check->manifest.live = malloc((check->number_count + 1) * sizeof(uint64_t));
    if (check->manifest.live == NULL) {
        return ONCE_E_NOMEM;
    }
    if (check->number_count > 0) {
        memcpy(check->manifest.live, check->numbers, check->number_count * sizeof(uint64_t));
        check->manifest.next = check->numbers[check->number_count - 1] + 1;
    }
    check->manifest.live_count = check->number_count;
    return ONCE_OK;
}

/* The files first: what is made meanwhile is in the manifest then. */
static int check_files(check_t *check)
{
    const once__directory_t *directory = check->directory;
    uint64_t unfinished = 0;
    int code =
        list_segments(directory->segments_fd, &check->numbers, &check->number_count, &unfinished);

    code = code == ONCE_OK ? once__manifest_read(&check->manifest, directory->segments_fd,
                                                 directory->disk, directory->store_id)
                           : code;
    if (code == ONCE_E_CORRUPT || (code == ONCE_OK && !check->manifest.found)) {
        tell(check, "manifest", 0, 0, 0, 0,
             "the manifest is %s: which segments there must be is not known",
             code == ONCE_OK ? "missing" : "damaged");
        return use_files_as_manifest(check);
    }
    if (code != ONCE_OK) {
        return code;
    }
    if (unfinished > 0 && directory->index == NULL) {
        tell(check, "leftover", 1, 0, 0, 0, "%llu unfinished files in segments/",
             (unsigned long long)unfinished);
    }
    for (size_t i = 0; i < check->number_count; i++) {
        if (!once__manifest_is_live(&check->manifest, check->numbers[i]) &&
            !once__manifest_is_dropped(&check->manifest, check->numbers[i])) {
            check_unknown(check, check->numbers[i]);
        }
    }
    return ONCE_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- log */

static once__log_config_t log_config(const check_t *check, once__index_t *index)
{
    once__log_config_t config = {.segments_fd = check->directory->segments_fd,
                                 .index = index,
                                 .disk = check->directory->disk};

    memcpy(config.boot_id, check->directory->boot_id, ONCE__BOOT_ID_SIZE);
    memcpy(config.store_id, check->directory->store_id, ONCE__STORE_ID_SIZE);
    return config;
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

    memcpy(where.store_id, directory->store_id, ONCE__STORE_ID_SIZE);
    memcpy(where.boot_id, directory->boot_id, ONCE__BOOT_ID_SIZE);
    memcpy(config.store_id, directory->store_id, ONCE__STORE_ID_SIZE);
    memcpy(config.boot_id, directory->boot_id, ONCE__BOOT_ID_SIZE);
    code = once__index_create(&check->log, &where, check->err);
    code = code == ONCE_OK ? once__rebuild(check->log, &config, &rebuilt, check->err) : code;
    if (code != ONCE_OK) {
        return code;
    }
    check->report->segments = rebuilt.segments;
    check->report->segment_bytes = rebuilt.bytes;
    check->report->frames = rebuilt.frames;
    check->ends = calloc(check->manifest.live_count + 1, sizeof(uint64_t));
    for (uint32_t slot = 0; check->ends != NULL && slot < once__index_slot_end(check->log);
         slot++) {
        const once__segment_t *segment = once__index_segment(check->log, slot);
        int at = number_at(check, atomic_load(&segment->number));
        if (at >= 0) {
            check->ends[at] = atomic_load(&segment->tail);
        }
    }
    return check->ends != NULL ? ONCE_OK : ONCE_E_NOMEM;
}

/* ---------------------------------------------------------------------------------------------------------- the index */

static int compare_entries(const void *a, const void *b)
{
    const once__shard_entry_t *x = a, *y = b;

    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->tag < y->tag ? -1 : x->tag > y->tag;
}

static uint64_t number_of(const once__index_t *index, const once__entry_t *entry)
{
    return atomic_load(&once__index_segment(index, entry->place.slot)->number);
}

static void add_suspect(check_t *check, uint32_t shard, const once__shard_entry_t *item,
                        uint64_t version)
{
    if (check->suspect_count == check->suspect_room) {
        size_t room = check->suspect_room * 2 + 64;
        suspect_t *more = realloc(check->suspects, room * sizeof(*more));
        if (more == NULL) {
            check->failed = 1;
            return;
        }
        check->suspects = more;
        check->suspect_room = room;
    }
    check->suspects[check->suspect_count++] = (suspect_t){shard, item->tag, item->key, version};
}

/* May the record be removed? A compaction that was interrupted has taken it out of the index, and its segment is still there. */
static int is_dead(const check_t *check, const once__head_t *head)
{
    once__records_t records = {.index = check->log, .rules = &once__rules};

    return once__records_may_go(&records, head);
}

/* Counts the record, as the log has it. Returns the version of its newest frame; 0: it is damaged. */
static uint64_t count_record(const check_t *check, once__reader_t *reader,
                             const once__shard_entry_t *item, int *dead)
{
    once_local_fsck_report_t *report = check->report;
    once__frame_t frame = {0};
    once__record_t record;
    uint64_t version;
    int code = once__reader_read(reader, item->entry.place, 0, &frame);

    version = code == ONCE_OK || (code == ONCE_E_CORRUPT && frame.kind != 0) ? frame.version : 0;
    *dead = code == ONCE_OK && frame.kind != ONCE__FRAME_RECORD;
    if (code != ONCE_OK || item->entry.state == ONCE_STATE_NONE ||
        frame.kind != ONCE__FRAME_RECORD) {
        return version;
    }
    code = once__reader_record(reader, item->entry.place, &frame, &record);
    if (code != ONCE_OK && code != ONCE_E_NEWER) {
        return version;
    }
    report->newer += code == ONCE_E_NEWER;
    *dead = code == ONCE_OK && is_dead(check, &record.head);
    if (code == ONCE_OK && record.head.expires != 0 &&
        once__index_now(check->log) >= record.head.expires) {
        report->expired++;
        return version;
    }
    report->pending += record.head.state == ONCE_STATE_PENDING;
    report->completed += record.head.state == ONCE_STATE_COMPLETED;
    report->failed += record.head.state == ONCE_STATE_FAILED;
    report->unknown += record.head.state == ONCE_STATE_UNKNOWN;
    return version;
}

/* `live` NULL: there is no index to compare with. */
static void check_shard_lists(check_t *check, once__reader_t *reader, uint32_t shard,
                              const once__shard_entry_t *log, size_t log_count,
                              const once__shard_entry_t *live, size_t live_count)
{
    const once__index_t *index = check->directory->index;
    size_t i = 0, j = 0;

    while (i < log_count || j < live_count) {
        int order = i == log_count ? 1 : j == live_count ? -1 : compare_entries(&log[i], &live[j]);
        if (order > 0) {
            add_suspect(check, shard, &live[j++], 0);
            continue;
        }
        int dead;
        uint64_t version = count_record(check, reader, &log[i], &dead);
        if (live != NULL && (order == 0 || !dead) &&
            (order < 0 || log[i].entry.place.offset != live[j].entry.place.offset ||
             number_of(check->log, &log[i].entry) != number_of(index, &live[j].entry))) {
            add_suspect(check, shard, &log[i], version);
        }
        i++;
        j += order == 0;
    }
}

static int check_shard(check_t *check, once__reader_t *reader, uint32_t shard, int compares)
{
    static once__shard_entry_t nothing;
    once__shard_entry_t *log = NULL, *live = NULL;
    size_t log_count = 0, live_count = 0;
    int code = once__index_shard(check->log, shard, &log, &log_count);

    if (code == ONCE_OK && compares) {
        code = once__index_shard(check->directory->index, shard, &live, &live_count);
    }
    if (code == ONCE_OK) {
        if (log_count > 0) {
            qsort(log, log_count, sizeof(*log), compare_entries);
        }
        if (live_count > 0) {
            qsort(live, live_count, sizeof(*live), compare_entries);
        }
        check_shard_lists(check, reader, shard, log, log_count,
                          compares && live == NULL ? &nothing : live, live_count);
    }
    free(log);
    free(live);
    return code == ONCE_OK && check->failed ? ONCE_E_NOMEM : code;
}

/* Was the place read, when the log was? */
static int was_read(const check_t *check, uint64_t number, uint64_t offset)
{
    int at = number_at(check, number);

    return at >= 0 && offset < check->ends[at];
}

static void count_lost(const check_t *check, uint8_t state)
{
    once_local_fsck_report_t *report = check->report;

    report->lost_pending += state == ONCE_STATE_PENDING;
    report->lost_completed += state == ONCE_STATE_COMPLETED;
    report->lost_failed += state == ONCE_STATE_FAILED;
    report->lost_unknown += state == ONCE_STATE_UNKNOWN;
}

/* Looks at the index again. The shard's lock is not held: an entry that changes meanwhile is right. */
static void check_suspect(check_t *check, const suspect_t *suspect,
                          const once__shard_entry_t *items, size_t count)
{
    once__shard_entry_t wanted = {.key = suspect->key, .tag = suspect->tag};
    const once__shard_entry_t *item =
        count > 0 ? bsearch(&wanted, items, count, sizeof(wanted), compare_entries) : NULL;
    once__frame_t frame = {0};
    uint64_t number, offset;
    int code;

    if (item == NULL) {
        if (suspect->version != 0) {
            tell(check, "index", 0, 0, 0, 0,
                 "the record %016llx is in the log and not in the index",
                 (unsigned long long)suspect->key);
        }
        return;
    }
    number = number_of(check->directory->index, &item->entry);
    offset = item->entry.place.offset;
    code = once__reader_read(check->live, item->entry.place, 0, &frame);
    if (code == ONCE_OK && !once__index_is_key(frame.id, item->key, item->tag)) {
        code = ONCE_E_CORRUPT;
        frame.kind = 0;
    }
    if (code == ONCE_E_CORRUPT && frame.kind != 0) {
        return; /* a damaged record: told of as such */
    }
    if (code != ONCE_OK) {
        count_lost(check, item->entry.state);
        tell(check, "index", 0, number, offset, 0,
             "the index leads to %llu in segment %016llx, where the record %016llx is not",
             (unsigned long long)offset, (unsigned long long)number,
             (unsigned long long)suspect->key);
    } else if (frame.version < suspect->version ||
               (suspect->version == 0 && was_read(check, number, offset))) {
        tell(check, "index", 0, number, offset, 0,
             "the index leads to an older state of the record %016llx than the log has",
             (unsigned long long)suspect->key);
    }
}

static int check_suspects(check_t *check)
{
    once__shard_entry_t *items = NULL;
    size_t count = 0, i = 0;
    uint32_t shard = UINT32_MAX;
    int code = ONCE_OK;

    if (check->suspect_count > 0 && !check->how->repair) {
        (void)poll(NULL, 0, SETTLE_MS);
    }
    for (; i < check->suspect_count && code == ONCE_OK; i++) {
        if (check->suspects[i].shard != shard) {
            shard = check->suspects[i].shard;
            free(items);
            items = NULL;
            count = 0;
            code = once__index_shard(check->directory->index, shard, &items, &count);
            if (code == ONCE_OK && count > 0) {
                qsort(items, count, sizeof(*items), compare_entries);
            }
        }
        if (code == ONCE_OK) {
            check_suspect(check, &check->suspects[i], items, count);
        }
    }
    free(items);
    return code;
}

/* Counts the records of the log, and compares the index in use with it. */
static int check_index(check_t *check, int compares)
{
    once__log_config_t log = log_config(check, check->log);
    once__log_config_t live = log_config(check, check->directory->index);
    once__reader_t *reader = once__reader_open(&log);
    uint64_t problems;
    int code = reader != NULL ? ONCE_OK : ONCE_E_NOMEM;

    if (code == ONCE_OK && compares) {
        check->live = once__reader_open(&live);
        code = check->live != NULL ? ONCE_OK : ONCE_E_NOMEM;
    }
    for (uint32_t shard = 0; shard < ONCE__SHARDS && code == ONCE_OK; shard++) {
        code = check_shard(check, reader, shard, compares);
    }
    problems = check->report->problems;
    code = code == ONCE_OK && compares ? check_suspects(check) : code;
    if (compares) {
        check->report->lost_known = 1;
        check->report->index =
            check->report->problems > problems ? ONCE_LOCAL_INDEX_DIFFERS : ONCE_LOCAL_INDEX_OK;
    }
    once__reader_close(reader);
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

static int check_all(check_t *check, int repair)
{
    once__directory_t *directory = check->directory;
    int used = !repair && is_in_use(directory);
    /* What nobody uses is compared with the log by the next program that opens the store. */
    int compares = directory->index != NULL && (used || repair);
    int lock = -1, code;

    if (compares && used) {
        (void)once__local_keep_segments(directory, &lock);
    }
    code = check_files(check);

    check->report->index = directory->index == NULL ? ONCE_LOCAL_INDEX_NONE : ONCE_LOCAL_INDEX_LEFT;
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
        if (check->manifest_is_bad) {
            check->manifest.found = 0;
        }
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
    code = check_all(&check, how->repair);
    once__directory_sizes(&directory, &sizes);
    report->quarantined = sizes.quarantined;
    report->quarantine_bytes = sizes.quarantine_bytes;
    once__manifest_free(&check.manifest);
    if (check.log != NULL) {
        once__index_close(check.log);
    }
    free(check.numbers);
    free(check.ends);
    free(check.suspects);
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
    code = once__local_url(&parsed, url, err);
    if (code != ONCE_OK) {
        return code;
    }
    config = once__local_config(&parsed, disk);
    code = check_path(&config, &options, &all, &why);
    if (code == ONCE_OK && options.repair && all.problems > 0) {
        code = look_again(&config, &all, &why);
    }
    (void)once__sized_write(report, ONCE__LOCAL_FSCK_REPORT_V1, &all, sizeof(all));
    if (code != ONCE_OK) {
        (void)once__fail(err, code, "%s",
                         why.code == code && why.text[0] != '\0' ? why.text
                                                                 : once_error_text(code));
    }
    once__url_free(&parsed);
    return code;
}
