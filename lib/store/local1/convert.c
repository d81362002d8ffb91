/*
 * A directory of format 1 becomes one of format 2. The old log is read twice: for the newest frame of each record, which is the
 * last one in the segment with the highest number, and for the records. Only this file knows the old format.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "core/sized.h"
#include "loop/env.h"
#include "store/crc32c.h"
#include "store/local/fsck.h"
#include "store/varint.h"

#define OLD_HEADER       64u
#define OLD_FRAME        48u
#define OLD_COMPLETION   74u /* behind the header of the frame: envelope, claim, template, status */
#define OLD_PACKED_MAX   16384u
#define OLD_NUMBER_MAX   0xffffffu
#define OLD_FRAME_MAX    (OLD_FRAME + ONCE__ENVELOPE_SIZE + 512 + ONCE__PAYLOAD_MAX)
#define NEW_SEGMENT_SIZE ((uint64_t)64 << 20)
#define EFFORT           64u /* bytes summed up in search of frames, for each byte of a segment */

enum { OLD_RECORD = 1, OLD_REMOVED = 2, OLD_SEALED = 3, OLD_COMPLETED = 4 };

typedef struct frame {
    uint8_t kind;
    uint64_t watermark, offset;
    uint32_t size; /* with padding */
    const uint8_t *id, *bytes;
    size_t len;
} frame_t;

typedef struct convert {
    once__directory_t directory;
    const char *path;
    once_local_convert_options_t options;
    once_local_convert_report_t report;
    once_error_t *err;
    int lock_fd, old_fd;
    uint32_t first, last;  /* segments; 0: there are none */
    once__index_t *newest; /* where the newest frame of each record is */
    uint64_t done_bytes, all_bytes, latest;
    once__log_t *log;
    /* the segment that is read */
    uint8_t *data;
    uint64_t size, effort;
    uint32_t number, slot;
    int other_boot, damaged;
    uint8_t unpacked[OLD_PACKED_MAX];
} convert_t;

typedef int (*visit_t)(convert_t *convert, const frame_t *frame);

static int fail_errno(convert_t *convert, const char *what)
{
    return once__local_errno(convert->err, what, convert->path);
}

static int no_memory(convert_t *convert)
{
    return once__fail(convert->err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
}

/* ---------------------------------------------------------------------------------------------------- frames of format 1 */

/* Is there a valid frame at `offset`? 1 or 0. */
static int read_frame(convert_t *convert, uint64_t offset, frame_t *frame)
{
    const uint8_t *data = convert->data + offset;
    uint8_t place[12];
    size_t len;

    if (offset % 8 != 0 || offset < OLD_HEADER || offset + OLD_FRAME > convert->size) {
        return 0;
    }
    len = once__get32(data);
    if (len < OLD_FRAME + (data[8] == OLD_COMPLETED ? OLD_COMPLETION : 0) ||
        len > convert->size - offset || len > OLD_FRAME_MAX || data[8] < OLD_RECORD ||
        data[8] > OLD_COMPLETED) {
        return 0;
    }
    convert->effort += len;
    once__put32(place, convert->number);
    once__put64(place + 4, offset);
    if (once__crc32c(once__crc32c(0, place, sizeof(place)), data + 8, len - 8) !=
        once__get32(data + 4)) {
        return 0;
    }
    *frame = (frame_t){.kind = data[8],
                       .watermark = (uint64_t)once__get32(data + 12) * 8,
                       .offset = offset,
                       .size = (uint32_t)((len + 7) & ~(size_t)7),
                       .id = data + 16,
                       .bytes = data + OLD_FRAME,
                       .len = len - OLD_FRAME};
    return 1;
}

/* Of given or copied bytes: four bits say how many, 15: and more. */
static size_t get_count(once__input_t *input, unsigned bits)
{
    return bits < 15 ? bits : bits + once__get_varint(input, OLD_PACKED_MAX);
}

/* A response that was packed against another one. Returns its length; 0: it is damaged. */
static size_t unpack(uint8_t out[OLD_PACKED_MAX], once_slice_t from, once_slice_t packed)
{
    once__input_t input = {packed.data, (const uint8_t *)packed.data + packed.len, 0};
    size_t whole = once__get_varint(&input, OLD_PACKED_MAX), done = 0;
    uint64_t next = 0; /* where the copy goes on */

    while (!input.is_broken && input.at < input.end) {
        uint8_t head = *once__get_bytes(&input, 1);
        size_t given = get_count(&input, head >> 4), copied = get_count(&input, head & 15);
        if (given > (size_t)(input.end - input.at) || given + copied > whole - done) {
            return 0;
        }
        memcpy(out + done, input.at, given);
        input.at += given;
        if (copied > 0) {
            next += given + once__get_signed(&input);
            if (next > from.len || copied > from.len - next) {
                return 0;
            }
            memcpy(out + done + given, (const uint8_t *)from.data + next, copied);
            next += copied;
        }
        done += given + copied;
    }
    return !input.is_broken && done == whole ? done : 0;
}

/* The response of a frame that others are packed against: it is stored uncompressed. 1 or 0. */
static int plain_response(const frame_t *frame, once_slice_t *out)
{
    once__record_t record;

    if (frame->kind == OLD_COMPLETED) {
        *out = once__slice(frame->bytes + OLD_COMPLETION, frame->len - OLD_COMPLETION);
        return once__get32(frame->bytes + 68) == 0;
    }
    if (frame->kind != OLD_RECORD ||
        once__record_decode(&record, frame->bytes, frame->len) != ONCE_OK) {
        return 0;
    }
    *out = once__slice(record.payload.data, record.payload.len);
    return record.payload.kind == ONCE__PAYLOAD_RESPONSE;
}

/* A completion has the envelope and the response; the rest is in the frame that the record had before, its claim. */
static int read_completion(convert_t *convert, const frame_t *frame, once__record_t *record)
{
    uint64_t claim_at = (uint64_t)once__get32(frame->bytes + 64) * 8;
    uint64_t template_at = (uint64_t)once__get32(frame->bytes + 68) * 8;
    frame_t claim, template;
    once__head_t head;
    once_slice_t response = {frame->bytes + OLD_COMPLETION, frame->len - OLD_COMPLETION}, like;

    if (claim_at >= frame->offset || !read_frame(convert, claim_at, &claim) ||
        claim.kind != OLD_RECORD || memcmp(claim.id, frame->id, ONCE_ID_SIZE) != 0 ||
        once__record_decode(record, claim.bytes, claim.len) != ONCE_OK ||
        once__envelope_decode(&head, frame->bytes) != ONCE_OK) {
        return ONCE_E_CORRUPT;
    }
    if (template_at != 0) {
        response.len = template_at < frame->offset && read_frame(convert, template_at, &template) &&
                               plain_response(&template, &like)
                           ? unpack(convert->unpacked, like, response)
                           : 0;
        response.data = convert->unpacked;
        if (response.len == 0) {
            return ONCE_E_CORRUPT;
        }
    }
    head.ttl_ms = record->head.ttl_ms;
    head.fingerprint = record->head.fingerprint;
    record->head = head;
    record->payload = (once__payload_t){ONCE__PAYLOAD_RESPONSE, once__get16(frame->bytes + 72),
                                        response.data, response.len};
    return once__record_is_valid(record) ? ONCE_OK : ONCE_E_CORRUPT;
}

/* ----------------------------------------------------------------------------------------------------- segments of format 1 */

/* ONCE_OK: the loss is accepted. */
static int is_damaged(convert_t *convert, uint64_t offset)
{
    convert->damaged = 1;
    convert->report.left_out++;
    if (convert->options.accept_loss) {
        return ONCE_OK;
    }
    return once__fail(
        convert->err, ONCE_E_CORRUPT,
        "local store: segments/%08x.log is missing, or damaged at %llu; repair it with once fsck "
        "--repair of the version that wrote it, or leave out what is damaged with "
        "--accept-loss",
        convert->number, (unsigned long long)offset);
}

/*
 * What is at `offset`, where no valid frame begins? Sets *next: where to go on; the end of the segment: nowhere. Damage is what
 * some frame behind it calls synced, and what would take too long to find out.
 */
static int read_gap(convert_t *convert, uint64_t offset, uint64_t *next)
{
    uint64_t behind = (offset + once__get32(convert->data + offset) + 7) / 8 * 8, first = 0;
    frame_t frame;
    /* What is inside the damaged frame may only look like one. */
    uint64_t at = read_frame(convert, behind, &frame) ? behind : offset + 8;

    *next = convert->size;
    for (; at + OLD_FRAME <= convert->size; at += 8) {
        int found = read_frame(convert, at, &frame);
        first = found && first == 0 ? at : first;
        if ((found && frame.watermark > offset) || convert->effort > EFFORT * convert->size) {
            *next = first != 0 ? first : convert->size;
            return is_damaged(convert, offset);
        }
        at += found ? frame.size - 8 : 0;
    }
    return ONCE_OK;
}

static int walk(convert_t *convert, visit_t visit)
{
    uint64_t offset = OLD_HEADER;
    int code = ONCE_OK;

    convert->effort = 0;
    convert->damaged = 0;
    while (code == ONCE_OK && offset + OLD_FRAME <= convert->size) {
        frame_t frame;
        if (!read_frame(convert, offset, &frame)) {
            code = read_gap(convert, offset, &offset);
        } else if (frame.kind == OLD_SEALED && !convert->damaged) {
            return ONCE_OK;
        } else {
            code = visit(convert, &frame);
            offset += frame.size;
        }
    }
    return code;
}

static int read_header(convert_t *convert)
{
    uint8_t header[OLD_HEADER];
    uint64_t created;

    convert->other_boot = 1;
    if (convert->size < OLD_HEADER) {
        return is_damaged(convert, 0);
    }
    memcpy(header, convert->data, sizeof(header));
    once__put32(header + 12, 0);
    if (memcmp(header, "ONCELOG", 7) != 0 || (header[7] != '1' && header[7] != '2') ||
        once__get32(header + 8) != convert->number ||
        once__crc32c(0, header, sizeof(header)) != once__get32(convert->data + 12)) {
        return is_damaged(convert, 0);
    }
    created = once__get64(header + 24);
    convert->latest = created > convert->latest ? created : convert->latest;
    convert->other_boot =
        memcmp(header + 32, convert->directory.log.boot_id, ONCE__BOOT_ID_SIZE) != 0;
    return ONCE_OK;
}

static int read_file(convert_t *convert)
{
    char name[32];
    struct stat st;
    int fd, code = ONCE_OK;

    (void)snprintf(name, sizeof(name), "%08x.log", convert->number);
    fd = openat(convert->old_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    free(convert->data);
    convert->data = NULL;
    convert->size = 0;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        convert->size = (uint64_t)st.st_size;
        convert->data = malloc(convert->size + 8);
        code = convert->data != NULL ? ONCE_OK : no_memory(convert);
    }
    if (code == ONCE_OK &&
        (convert->data == NULL || once__disk_read(&once__real_disk, fd, convert->data,
                                                  convert->size, 0) != (ssize_t)convert->size)) {
        code = fd < 0 && errno == ENOENT ? is_damaged(convert, 0)
                                         : fail_errno(convert, "cannot read the segments of");
    }
    once__close(fd);
    return code;
}

static int read_segment(convert_t *convert, uint32_t number, visit_t visit)
{
    int code;

    convert->number = number;
    convert->slot = number - convert->first;
    code = read_file(convert);
    if (code == ONCE_OK && convert->data != NULL) {
        code = read_header(convert);
        code = code == ONCE_OK ? walk(convert, visit) : code;
    }
    convert->done_bytes += convert->size;
    if (convert->options.progress != NULL) {
        convert->options.progress(convert->done_bytes, convert->all_bytes, convert->options.data);
    }
    return code;
}

static int read_all(convert_t *convert, visit_t visit)
{
    int code = ONCE_OK;

    convert->report.left_out = 0;
    for (uint32_t n = convert->first; n != 0 && n <= convert->last && code == ONCE_OK; n++) {
        code = read_segment(convert, n, visit);
    }
    return code;
}

/* Which segments must exist: two slots, of which the valid one with the higher sequence counts. */
static void read_extent(convert_t *convert)
{
    uint8_t slots[1024] = {0};
    int file = openat(convert->old_fd, "extent", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint64_t sequence = 0;

    if (file >= 0) {
        (void)!read(file, slots, sizeof(slots));
        (void)close(file);
    }
    for (const uint8_t *slot = slots; slot < slots + sizeof(slots); slot += 512) {
        if (memcmp(slot, "ONCEEXT1", 8) == 0 && once__get64(slot + 8) > sequence &&
            once__crc32c(0, slot, 24) == once__get32(slot + 24) &&
            once__get32(slot + 16) <= once__get32(slot + 20)) {
            sequence = once__get64(slot + 8);
            convert->first = once__get32(slot + 16);
            convert->last = once__get32(slot + 20);
        }
    }
}

/* Numbers have no gaps: the first and the last one tell which segments there must be. */
static int list_segments(convert_t *convert)
{
    DIR *stream = once__disk_list(convert->old_fd, ".");
    const struct dirent *entry;

    if (stream == NULL) {
        return fail_errno(convert, "cannot read the segments of");
    }
    read_extent(convert);
    while ((entry = readdir(stream)) != NULL) {
        uint32_t number = (uint32_t)strtoul(entry->d_name, NULL, 16);
        struct stat st;
        if (strlen(entry->d_name) == 12 && strcmp(entry->d_name + 8, ".log") == 0 && number != 0 &&
            number <= OLD_NUMBER_MAX &&
            fstatat(convert->old_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            convert->all_bytes += 2 * (uint64_t)st.st_size;
            convert->last = number > convert->last ? number : convert->last;
            if (convert->first == 0 || number < convert->first) {
                convert->first = number;
            }
        }
    }
    (void)closedir(stream);
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------ the newest frames */

/* The index knows segments of the new format only, whose headers are longer. */
static once__entry_t entry_of(const convert_t *convert, const frame_t *frame)
{
    once__entry_t entry = {{convert->slot, frame->offset + ONCE__SEGMENT_HEADER},
                           frame->kind == OLD_REMOVED ? ONCE_STATE_NONE : ONCE_STATE_COMPLETED};

    return entry;
}

static int note_frame(convert_t *convert, const frame_t *frame)
{
    static const once__weight_t none = {0, 0};
    once__entry_t entry = entry_of(convert, frame), old;
    once__head_t head;
    int found;

    if (frame->kind == OLD_SEALED) {
        return ONCE_OK;
    }
    found = once__index_find(convert->newest, frame->id, &old);
    if (!found && once__index_make_room(convert->newest, frame->id) != ONCE_OK) {
        return no_memory(convert);
    }
    once__index_set(convert->newest, frame->id, &entry, none, found ? &old : NULL, none);
    if (frame->kind != OLD_REMOVED && frame->len >= ONCE__ENVELOPE_SIZE &&
        once__envelope_decode(&head, frame->bytes) == ONCE_OK) {
        convert->latest = head.changed > convert->latest ? head.changed : convert->latest;
    }
    return ONCE_OK;
}

static int is_newest(const convert_t *convert, const frame_t *frame)
{
    once__entry_t newest;

    return once__index_find(convert->newest, frame->id, &newest) &&
           once__is_same_place(newest.place, entry_of(convert, frame).place);
}

/* ---------------------------------------------------------------------------------------------------------- the new log */

static int check_log(const convert_t *convert, int code)
{
    return code == ONCE_OK ? ONCE_OK
                           : once__fail(convert->err, code,
                                        "local store: cannot write the new log of %.120s: %s (it "
                                        "needs as much room as the old one has)",
                                        convert->path, once_error_text(code));
}

static int append(convert_t *convert, const once__record_t *record)
{
    uint64_t version = (record->head.changed + 1) << 20;
    once__place_t place;
    uint32_t size;
    int code = once__log_reserve(convert->log, once__frame_size(once__pack_bound(record), 0));

    if (code == ONCE_OK) {
        code = once__log_append(convert->log, record->id, record, version, 0, &place, &size);
    }
    convert->report.records++;
    return check_log(convert, code);
}

static int copy_frame(convert_t *convert, const frame_t *frame)
{
    once__record_t record;
    int code;

    if ((frame->kind != OLD_RECORD && frame->kind != OLD_COMPLETED) || !is_newest(convert, frame)) {
        return ONCE_OK;
    }
    code = frame->kind == OLD_COMPLETED ? read_completion(convert, frame, &record)
                                        : once__record_decode(&record, frame->bytes, frame->len);
    if (code == ONCE_E_NEWER) {
        return once__fail(
            convert->err, code,
            "local store: %.120s has records of a newer version of once; upgrade this "
            "program",
            convert->path);
    }
    if (code != ONCE_OK) {
        return is_damaged(convert, frame->offset);
    }
    memcpy(record.id, frame->id, ONCE_ID_SIZE);
    if (convert->other_boot && record.head.lease_until > record.head.changed) {
        record.head.lease_until = record.head.changed;
    }
    return append(convert, &record);
}

static int open_log(convert_t *convert)
{
    once__log_config_t *log = &convert->directory.log;
    once__index_config_t where = {.store_fd = -1};
    int fd = convert->directory.fd, code;

    once__local_remove_tree(fd, "segments.new");
    if (once__real_env.random(NULL, log->store_id, ONCE__STORE_ID_SIZE) != 0 ||
        mkdirat(fd, "segments.new", 0700) != 0 ||
        (log->segments_fd = openat(fd, "segments.new", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        once__manifest_write(log, NULL, 0, 1) != ONCE_OK) {
        return fail_errno(convert, "cannot write to");
    }
    code = once__index_create(&log->index, &where, convert->err);
    if (code != ONCE_OK) {
        return code;
    }
    once__index_set_clock(log->index, once__clock_after(convert->latest));
    log->segment_size = NEW_SEGMENT_SIZE;
    convert->log = once__log_open(log);
    return convert->log != NULL ? ONCE_OK : no_memory(convert);
}

static int close_log(convert_t *convert)
{
    int code = check_log(convert, once__log_close(convert->log));

    convert->log = NULL;
    return code == ONCE_OK && fsync(convert->directory.log.segments_fd) != 0
               ? fail_errno(convert, "cannot write to")
               : code;
}

/* --------------------------------------------------------------------------------------------------------- the exchange */

static int exists(const convert_t *convert, const char *name)
{
    struct stat st;

    return fstatat(convert->directory.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int rename_durably(convert_t *convert, const char *from, const char *to)
{
    int fd = convert->directory.fd;

    return renameat(fd, from, fd, to) == 0 && fsync(fd) == 0
               ? ONCE_OK
               : fail_errno(convert, "cannot write to");
}

/*
 * The format is of this version: what is left is the name of the new log, and the remains of the old one. When the log has its
 * name, programs may use the store: `index` is theirs then.
 */
static int finish(convert_t *convert)
{
    int fd = convert->directory.fd, code = ONCE_OK;

    if (!exists(convert, "segments") && exists(convert, "segments.new")) {
        (void)unlinkat(fd, "index", 0);
        code = rename_durably(convert, "segments.new", "segments");
    }
    if (code == ONCE_OK && exists(convert, "segments")) {
        once__local_remove_tree(fd, "segments.old");
        (void)unlinkat(fd, "lock", 0);
    }
    return code;
}

/*
 * While the format is the old one, segments.old is the log; from then on segments.new is. In between there is no `segments`, so
 * that no program of either version opens the store.
 */
static int exchange(convert_t *convert)
{
    int code = rename_durably(convert, "segments", "segments.old");

    if (code == ONCE_OK &&
        once__format_write(convert->directory.fd, convert->directory.log.store_id) != 0) {
        code = fail_errno(convert, "cannot write to");
    }
    return code == ONCE_OK ? finish(convert) : code;
}

/* Every user of format 1 has a shared lock on the file `lock`. */
static int lock_old(convert_t *convert)
{
    convert->lock_fd =
        openat(convert->directory.fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (convert->lock_fd < 0) {
        return fail_errno(convert, "cannot write to");
    }
    if (flock(convert->lock_fd, LOCK_EX | LOCK_NB) == 0) {
        return ONCE_OK;
    }
    return errno == EWOULDBLOCK
               ? once__fail(convert->err, ONCE_E_CONFLICT,
                            "local store: other programs use %.120s; stop them, then try again",
                            convert->path)
               : fail_errno(convert, "cannot lock");
}

static int run(convert_t *convert)
{
    once__index_config_t scratch = {.store_fd = -1};
    uint8_t id[ONCE__STORE_ID_SIZE];
    int fd = convert->directory.fd, code = lock_old(convert);

    if (code != ONCE_OK) {
        return code;
    }
    if (once__format_read(fd, id) == ONCE__FORMAT_OURS) {
        return finish(convert); /* another process converted it just now */
    }
    if (!exists(convert, "segments") && exists(convert, "segments.old")) {
        code = rename_durably(convert, "segments.old", "segments");
    }
    convert->old_fd = openat(fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (code == ONCE_OK && convert->old_fd < 0) {
        code = fail_errno(convert, "cannot read the segments of");
    }
    code = code == ONCE_OK ? list_segments(convert) : code;
    code = code == ONCE_OK ? once__index_create(&convert->newest, &scratch, convert->err) : code;
    for (uint32_t n = convert->first; code == ONCE_OK && n != 0 && n <= convert->last; n++) {
        once__index_raise_number(convert->newest, n - 1);
        code = once__index_take_slot(convert->newest, &(uint32_t){0}, &(uint64_t){0});
    }
    code = code == ONCE_OK ? read_all(convert, note_frame) : code;
    code = code == ONCE_OK ? open_log(convert) : code;
    code = code == ONCE_OK ? read_all(convert, copy_frame) : code;
    code = code == ONCE_OK ? close_log(convert) : code;
    if (code != ONCE_OK) {
        once__local_remove_tree(fd, "segments.new");
        return code;
    }
    convert->report.converted = 1;
    return exchange(convert);
}

static int convert_path(convert_t *convert)
{
    once__directory_config_t config = {.path = convert->path, .any_filesystem = 1};
    int code =
        once__directory_start(&convert->directory, &config, ONCE__START_CONVERT, convert->err);

    code = code == ONCE_OK ? run(convert) : code;
    once__log_abandon(convert->log);
    once__index_close(convert->newest);
    once__close(convert->lock_fd);
    once__close(convert->old_fd);
    once__directory_abandon(&convert->directory);
    free(convert->data);
    return code;
}

int once_local_convert(const char *url, const once_local_convert_options_t *options,
                       once_local_convert_report_t *report, once_error_t *err)
{
    convert_t convert = {.options = ONCE_LOCAL_CONVERT_OPTIONS_INIT,
                         .report = ONCE_LOCAL_CONVERT_REPORT_INIT,
                         .err = err,
                         .lock_fd = -1,
                         .old_fd = -1};
    once__directory_config_t config;
    once__url_t parsed;
    int code;

    if ((options != NULL && once__sized_read(&convert.options, sizeof(convert.options),
                                             ONCE__LOCAL_CONVERT_OPTIONS_V1, options) != ONCE_OK) ||
        (report != NULL && once__sized(report) < ONCE__LOCAL_CONVERT_REPORT_V1)) {
        return once__fail(
            err, ONCE_E_INVALID,
            "the options or the report were not set up with ONCE_LOCAL_CONVERT_..._INIT");
    }
    code = once__local_url(&parsed, &config, url, err);
    if (code == ONCE_OK) {
        convert.path = parsed.path;
        code = convert_path(&convert);
        once__url_free(&parsed);
    }
    if (report != NULL) {
        (void)once__sized_write(report, ONCE__LOCAL_CONVERT_REPORT_V1, &convert.report,
                                sizeof(convert.report));
    }
    return code;
}
