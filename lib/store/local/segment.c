/*
 * The files of segments: made, sealed, dropped.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "store/local/log.h"

#define ATTEMPTS    8
#define LEAST_ZEROS ((uint64_t)64 << 10)
#define MOST_ZEROS  ((uint64_t)1 << 20)

void once__segment_name(char out[ONCE__SEGMENT_NAME], uint64_t number)
{
    (void)snprintf(out, ONCE__SEGMENT_NAME, "%016llx.log", (unsigned long long)number);
}

static void new_name(char out[ONCE__SEGMENT_NAME], uint64_t number)
{
    (void)snprintf(out, ONCE__SEGMENT_NAME, "%016llx.new", (unsigned long long)number);
}

int once__segment_number(const char *name, uint64_t *number)
{
    char expected[ONCE__SEGMENT_NAME];

    *number = strtoull(name, NULL, 16);
    once__segment_name(expected, *number);
    return *number != 0 && strcmp(name, expected) == 0;
}

int once__segment_open(const once__log_config_t *config, uint64_t number, int flags)
{
    char name[ONCE__SEGMENT_NAME];

    once__segment_name(name, number);
    return openat(config->segments_fd, name, flags | O_CLOEXEC | O_NOFOLLOW);
}

/* ---------------------------------------------------------------------------------------------------- write buffers */

once__buffer_t *once__buffer_of(const once__index_t *index, uint32_t slot, uint64_t *room)
{
    uint64_t buffer = atomic_load(&once__index_segment(index, slot)->buffer);

    *room = (buffer >> 32) * ONCE__INDEX_PAGE - sizeof(once__buffer_t);
    return buffer != 0 ? once__index_page(index, (uint32_t)buffer) : NULL;
}

/* To be killed on the way here loses the pages until the index is made anew. */
static void give_buffer(once__index_t *index, uint64_t buffer)
{
    if (buffer != 0) {
        once__index_give_pages(index, (uint32_t)buffer, (uint32_t)(buffer >> 32), 0,
                               ONCE__INDEX_WAIT_MS);
    }
}

int once__own_buffer(once__index_t *index, once__own_t *own, uint64_t bytes)
{
    uint64_t room = bytes > ONCE__BUFFER_ROOM ? bytes : ONCE__BUFFER_ROOM;
    uint32_t pages = (uint32_t)((sizeof(once__buffer_t) + room - 1) / ONCE__INDEX_PAGE + 1);
    uint32_t page = once__index_take_pages(index, pages, ONCE__INDEX_WAIT_MS);

    if (page == 0) {
        return errno == EAGAIN ? ONCE_E_NOREPLY : ONCE_E_FULL;
    }
    own->buffer = once__index_page(index, page);
    own->room = pages * (uint64_t)ONCE__INDEX_PAGE - sizeof(once__buffer_t);
    atomic_store(&own->buffer->number, own->number);
    atomic_store(&own->buffer->from, own->tail);
    atomic_store(&own->buffer->written, own->tail);
    atomic_store(&own->buffer->staged, own->tail);
    give_buffer(index, atomic_exchange(&once__index_segment(index, own->slot)->buffer,
                                       (uint64_t)pages << 32 | page));
    return ONCE_OK;
}

/*
 * Frees slot and buffer of the segment with this number. Two processes may come here with the same one: its maker, and another that
 * took the maker for dead. Only the one that takes the number away goes on: the other may find the slot with a new owner.
 */
static void free_segment(once__index_t *index, uint32_t slot, uint64_t number)
{
    once__segment_t *segment = once__index_segment(index, slot);

    if (number != 0 && atomic_compare_exchange_strong(&segment->number, &number, 0)) {
        give_buffer(index, atomic_exchange(&segment->buffer, 0));
        once__index_free_slot(index, slot);
    }
}

/* ----------------------------------------------------------------------------------------------------------- making */

/* Was the segment that is being made discarded? (once__segment_discard_unfinished) */
static int is_discarded(const once__log_config_t *config, const once__own_t *own)
{
    const once__segment_t *segment = once__index_segment(config->index, own->slot);

    return atomic_load(&segment->number) != own->number ||
           atomic_load(&segment->state) != ONCE__SEGMENT_PREPARING;
}

/*
 * The file under its first name, locked. As long as it is locked, no process discards it. Before that another may: then the slot is
 * not ours any more, ONCE_E_CONFLICT.
 */
static int make_file(const once__log_config_t *config, const char *name, once__own_t *own)
{
    struct stat st;

    if (!once__disk_allows(own->size)) {
        return ONCE_E_FULL;
    }
    own->fd = openat(config->segments_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (own->fd < 0) {
        return errno == EEXIST ? ONCE_E_CONFLICT : once__disk_code();
    }
    if (flock(own->fd, LOCK_EX | LOCK_NB) != 0) {
        return ONCE_E_CONFLICT;
    }
    if (fstat(own->fd, &st) != 0 || st.st_nlink == 0 || is_discarded(config, own)) {
        (void)unlinkat(config->segments_fd, name, 0);
        return ONCE_E_CONFLICT;
    }
    return config->disk->allocate(config->disk->data, own->fd, own->size) == 0 ? ONCE_OK
                                                                               : once__disk_code();
}

/*
 * Zeros go ahead of the frames, as many bytes as there are before, up to a megabyte. A sync that only overwrites is cheaper than
 * one that has to note that blocks are in use which were only promised until now; and if the filesystem fails just then, it
 * cannot lose that note, and the frames with it, after it has said that they are durable.
 */
int once__own_prepare(const once__log_config_t *config, once__own_t *own, uint64_t to)
{
    static uint8_t zeros[LEAST_ZEROS]; /* not const: it need not be in the program's file */
    uint64_t ahead = to < LEAST_ZEROS ? LEAST_ZEROS : to < MOST_ZEROS ? to : MOST_ZEROS;
    uint64_t end = own->size - to < ahead ? own->size : to + ahead;

    if (own->zeros >= to + (end - to) / 2) {
        return 0;
    }
    while (own->zeros < end) {
        uint64_t len = end - own->zeros < LEAST_ZEROS ? end - own->zeros : LEAST_ZEROS;
        if (once__disk_write(config->disk, own->fd, zeros, len, own->zeros) != 0) {
            return -1;
        }
        own->zeros += len;
    }
    return 0;
}

static int write_header(const once__log_config_t *config, once__own_t *own,
                        const once__segment_header_t *header, const uint8_t *dictionary)
{
    uint8_t bytes[ONCE__SEGMENT_HEADER + ONCE__DICTIONARY_MAX];

    once__segment_header_write(header, dictionary, bytes);
    own->zeros = own->start;
    if (once__disk_write(config->disk, own->fd, bytes, own->start, 0) != 0 ||
        once__own_prepare(config, own, own->start) != 0) {
        return once__disk_code();
    }
    own->ready = own->zeros;
    return config->disk->sync(config->disk->data, own->fd) == 0 ? ONCE_OK : ONCE_E_IO;
}

/*
 * Gives the file its name, without replacing one: a segment with this number would mean that the index is older than the log.
 * EEXIST then.
 */
static int rename_new(int directory_fd, const char *from, const char *to)
{
    int code = renameat2(directory_fd, from, directory_fd, to, RENAME_NOREPLACE);

    if (code != 0 && (errno == EINVAL || errno == ENOSYS)) { /* not every filesystem has it */
        code = linkat(directory_fd, from, directory_fd, to, 0);
        code = code == 0 ? unlinkat(directory_fd, from, 0) : code;
    }
    return code;
}

/*
 * Name and manifest, both durable. When it is not known whether the manifest has the entry, the file stays, without frames: if it
 * were missing, it would count as a loss. It is not cut: a shorter file without the frame that seals would, too.
 */
static int name_file(const once__log_config_t *config, const once__own_t *own, const char *temp)
{
    char name[ONCE__SEGMENT_NAME];
    int code = ONCE_E_IO;

    once__segment_name(name, own->number);
    if (rename_new(config->segments_fd, temp, name) != 0) {
        return errno == EEXIST ? ONCE_E_CORRUPT : once__disk_code();
    }
    if (config->disk->sync_directory(config->disk->data, config->segments_fd) == 0) {
        code = once__manifest_add(config, own->number);
        if (code == ONCE_E_IO) {
            return code;
        }
    }
    if (code != ONCE_OK) {
        (void)unlinkat(config->segments_fd, name, 0);
    }
    return code;
}

/* The state comes last: from then on, others look at the rest. */
void once__segment_publish(once__segment_t *segment, const once__segment_header_t *header,
                           uint64_t tail)
{
    segment->word = header->word;
    segment->size = header->size;
    segment->created = header->created;
    segment->dictionary_len = header->dictionary_len;
    segment->other_boot = 0;
    atomic_store(&segment->tail, tail);
    atomic_store(&segment->synced, tail);
    atomic_store(&segment->last, 0);
    atomic_store(&segment->first_version, 0);
    atomic_store(&segment->last_version, 0);
    atomic_store(&segment->damaged, 0);
    atomic_store(&segment->copies, 0);
    atomic_store(&segment->state, ONCE__SEGMENT_ACTIVE);
}

static int make(const once__log_config_t *config, once__own_t *own, const char *temp,
                const uint8_t *dictionary, uint32_t dictionary_len, uint64_t created)
{
    once__segment_header_t header = {.number = own->number,
                                     .size = own->size,
                                     .created = created,
                                     .clock_offset = once__index_clock(config->index),
                                     .dictionary_len = dictionary_len};
    int code = make_file(config, temp, own);

    if (code == ONCE_OK && dictionary_len != 0) {
        own->dictionary = once__dictionary_open(dictionary, dictionary_len, 1);
        code = own->dictionary != NULL ? ONCE_OK : ONCE_E_NOMEM;
    }
    if (code == ONCE_OK && getrandom(&own->word, sizeof(own->word), 0) != sizeof(own->word)) {
        code = ONCE_E_IO;
    }
    header.word = own->word;
    memcpy(header.boot_id, config->boot_id, ONCE__BOOT_ID_SIZE);
    memcpy(header.store_id, config->store_id, ONCE__STORE_ID_SIZE);
    code = code == ONCE_OK ? once__own_buffer(config->index, own, 0) : code;
    code = code == ONCE_OK ? write_header(config, own, &header, dictionary) : code;
    code = code == ONCE_OK ? name_file(config, own, temp) : code;
    if (code == ONCE_OK) {
        once__segment_publish(once__index_segment(config->index, own->slot), &header, own->start);
    }
    return code;
}

int once__segment_make(const once__log_config_t *config, uint64_t size, const uint8_t *dictionary,
                       size_t dictionary_len, uint64_t sampled, once__own_t *own)
{
    char temp[ONCE__SEGMENT_NAME];
    int code = ONCE_E_CONFLICT;

    for (int i = 0; i < ATTEMPTS && code == ONCE_E_CONFLICT; i++) {
        *own = (once__own_t){.fd = -1, .size = size};
        code = once__index_take_slot(config->index, &own->slot, &own->number);
        if (code != ONCE_OK) {
            return code;
        }
        /* In this order: either the slot is seen where texts are cleared away, or that is seen here. */
        if (dictionary_len == 0 || sampled <= atomic_load(&config->index->map->erased_until)) {
            dictionary_len = 0;
            sampled = once__index_now(config->index);
        }
        own->start = once__segment_start((uint32_t)dictionary_len);
        own->tail = own->synced = own->start;
        new_name(temp, own->number);
        code = make(config, own, temp, dictionary, (uint32_t)dictionary_len, sampled);
        if (code != ONCE_OK && code != ONCE_E_CONFLICT) {
            (void)unlinkat(config->segments_fd, temp, 0);
            free_segment(config->index, own->slot, own->number);
        }
        if (code != ONCE_OK) {
            once__own_release(own);
        }
    }
    return code == ONCE_E_CONFLICT ? ONCE_E_NOREPLY : code;
}

/* Also for a child that was forked meanwhile and still has the descriptor: others may take the segment over. */
void once__own_release(once__own_t *own)
{
    once__segments_unlock(own->fd);
    once__dictionary_close(own->dictionary);
    *own = (once__own_t){.fd = -1};
}

/* ---------------------------------------------------------------------------------------------------------- sealing */

/*
 * The frame that seals says that everything before it is durable: so it is written after the sync, or a crash could leave it
 * behind without what it vouches for. It is durable itself before the file is cut: a file that was cut and has no such frame has
 * lost its end.
 *
 * A process that is killed between any two of these steps leaves a segment in state ACTIVE whose frames are all durable.
 * Its successor writes the same frame to the same place and repeats the rest. The state is the last step, because nobody
 * takes over what is SEALED: a buffer would never be given back.
 */
void once__segment_seal(const once__log_config_t *config, once__own_t *own)
{
    const once__disk_t *disk = config->disk;
    once__segment_t *segment = once__index_segment(config->index, own->slot);
    once__frame_t frame = {.kind = ONCE__FRAME_SEALED, .watermark = own->tail};
    uint8_t bytes[ONCE__SEAL_ROOM];
    uint64_t end = own->tail + once__frame_write(bytes, own->word, own->tail, &frame);

    if (once__disk_write(disk, own->fd, bytes, end - own->tail, own->tail) == 0 &&
        disk->sync(disk->data, own->fd) == 0) {
        atomic_store(&segment->last, own->tail);
        (void)!ftruncate(own->fd, (off_t)end);
        atomic_store(&segment->synced, UINT64_MAX); /* from here on, `last` is that frame */
        give_buffer(config->index, atomic_exchange(&segment->buffer, 0));
        atomic_store(&segment->tail, end);
        atomic_store(&segment->state, ONCE__SEGMENT_SEALED);
    }
    once__own_release(own);
}

/* --------------------------------------------------------------------------------------------------------- dropping */

int once__segments_lock(int segments_fd, int how, unsigned wait_ms, int *lock)
{
    int code;

    *lock = openat(segments_fd, "../format", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (*lock < 0) {
        return errno == ENOENT ? ONCE_OK : once__disk_code(); /* not a store: nothing reads it */
    }
    code = once__disk_lock(*lock, how, wait_ms);
    if (code != ONCE_OK) {
        (void)close(*lock);
        *lock = -1;
    }
    return code;
}

void once__segments_unlock(int lock)
{
    if (lock >= 0) {
        (void)flock(lock, LOCK_UN); /* a child that was forked meanwhile has the descriptor, too */
        (void)close(lock);
    }
}

/*
 * The entry of the manifest comes first. A process that is killed behind it leaves a slot without entries, which is dropped again,
 * or, after a crash, a file that the manifest calls dropped, which the next opening removes.
 */
int once__segment_drop(const once__log_config_t *config, uint32_t slot, uint64_t number)
{
    char name[ONCE__SEGMENT_NAME];
    int lock, code = once__segments_lock(config->segments_fd, LOCK_SH, 0, &lock);

    code = code == ONCE_OK ? once__manifest_drop(config, number) : code;
    once__segment_name(name, number);
    if (code == ONCE_OK && unlinkat(config->segments_fd, name, 0) != 0 && errno != ENOENT) {
        code = once__disk_code();
    }
    if (code == ONCE_OK) {
        free_segment(config->index, slot, number);
    }
    once__segments_unlock(lock);
    return code;
}

void once__segment_finish_drop(const once__log_config_t *config, uint32_t slot, uint64_t number)
{
    once__manifest_t manifest = {0};

    if (once__manifest_read(&manifest, config) == ONCE_OK &&
        once__manifest_is_dropped(&manifest, number)) {
        free_segment(config->index, slot, number);
    }
    once__manifest_free(&manifest);
}

/* A segment under its final name that was never used: its maker was killed. */
static int discard_named(const once__log_config_t *config, const once__own_t *left)
{
    int fd = once__segment_open(config, left->number, O_RDWR);

    if (fd < 0) {
        return 0;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && !is_discarded(config, left)) {
        (void)once__segment_drop(config, left->slot, left->number);
    }
    once__segments_unlock(fd);
    return 1;
}

/*
 * What a process left that was killed while it made a segment: a slot, and perhaps a file without frames. Whether its maker lives
 * is known from the lock of the file. If there is no file, one is made here, and locked, so that a maker that has come no further
 * fails and tries again. The final name is looked for again under that lock: a maker cannot get there any more.
 */
void once__segment_discard_unfinished(const once__log_config_t *config, uint32_t slot)
{
    once__own_t left = {.slot = slot,
                        .number = atomic_load(&once__index_segment(config->index, slot)->number)};
    char name[ONCE__SEGMENT_NAME];
    int fd;

    if (discard_named(config, &left)) {
        return;
    }
    new_name(name, left.number);
    fd = openat(config->segments_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if (!discard_named(config, &left) && !is_discarded(config, &left)) {
            free_segment(config->index, slot, left.number);
        }
        (void)unlinkat(config->segments_fd, name, 0);
    }
    once__segments_unlock(fd);
}
