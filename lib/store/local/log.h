/*
 * The log: segments of all processes to read from, and one of our own to append to.
 *
 * Used by one thread. Errors of the disk are told as they come; a failed sync is final (once__log_failed): what the
 * kernel did with the pages is not known, so nothing is ever tried again as if nothing had happened.
 */
#ifndef ONCE_STORE_LOCAL_LOG_H
#define ONCE_STORE_LOCAL_LOG_H

#include <sys/types.h>

#include "store/local/index.h"

typedef struct once__log once__log_t;

/* What the log asks of the system, so that tests can stand in between. All return 0 (write: a count), or -1 and errno. */
typedef struct once__disk {
    int (*sync)(void *data, int fd);                    /* fdatasync of a segment */
    int (*sync_directory)(void *data, int fd);          /* fsync of segments/ */
    int (*allocate)(void *data, int fd, uint64_t size); /* real room for the whole file */
    void *data;
    /* As pwrite, to a segment: may write less than all. NULL: the real one. */
    ssize_t (*write)(void *data, int fd, const void *bytes, size_t len, uint64_t offset);
    /* As pread, from a segment. NULL: the real one; and what is in memory already is then read from mappings. */
    ssize_t (*read)(void *data, int fd, void *bytes, size_t len, uint64_t offset);
} once__disk_t;

extern const once__disk_t once__real_disk;

/* As much of `len` bytes as there is before the end of the file; -1 and errno: the disk does not give them. */
ssize_t once__disk_read(const once__disk_t *disk, int fd, void *bytes, uint64_t len,
                        uint64_t offset);

/*
 * Can all of the file be read? A mapping of a file on a disk that cannot is a SIGBUS where a read is an error: so whoever wants to
 * look at one reads it first, which brings it into memory. 0, or -1 and errno (EIO also when it is shorter than `size`).
 */
int once__disk_try(const once__disk_t *disk, int fd, uint64_t size);

typedef struct once__log_config {
    int directory_fd; /* of segments/; stays the caller's */
    once__index_t *index;
    const once__disk_t *disk;
    uint64_t segment_size; /* of a full-grown segment */
    uint64_t max_bytes; /* segments are small where larger ones would go beyond it; 0: any size */
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
} once__log_config_t;

/* The size of a process's first segment, where a full-grown one has `segment_size`. */
uint64_t once__log_first_size(uint64_t segment_size);

once__log_t *once__log_open(const once__log_config_t *config); /* NULL: out of memory */
/* Seals our segment and frees. ONCE_OK, or why it could not be sealed. */
int once__log_close(once__log_t *log);
/* Frees memory and descriptors only. */
void once__log_abandon(once__log_t *log);

/*
 * Appends a frame for `record` (NULL: removed) to our segment, whose number will be at least `not_before`. ONCE_OK;
 * ONCE_E_FULL; ONCE_E_IO; ONCE_E_TOO_BIG.
 */
int once__log_append(once__log_t *log, const uint8_t *id, const once__record_t *record,
                     uint32_t not_before, once__place_t *place);

/*
 * The same for a record that is completed now and had its frame at `claim` until now: a short frame that refers to that
 * one, if both are in our segment. Nothing but the envelope and the response may be another than there.
 */
int once__log_complete(once__log_t *log, const once__record_t *record, once__place_t claim,
                       uint32_t not_before, once__place_t *place);

/* Would a frame for `record` still go into the segment that we have? And how small the next one may be. */
int once__log_fits(const once__log_t *log, const once__record_t *record);
uint64_t once__log_least(const once__log_t *log);

/* Appends a frame that was read (its record has this head) once more, byte by byte. Errors as append. */
int once__log_copy(once__log_t *log, const once__frame_t *frame, const once__head_t *head,
                   uint32_t not_before, once__place_t *place);

/* Appends a frame that says of a held record no more than that it is lost (once__frame_is_lost). Errors as append. */
int once__log_lose(once__log_t *log, const uint8_t *id, uint8_t state, uint32_t not_before,
                   once__place_t *place);

/*
 * Makes everything that was appended durable: one write and one sync, two when a segment was finished meanwhile.
 * ONCE_OK; ONCE_E_FULL: the disk takes no more, nothing was synced, and the next sync tries again (nothing is appended
 * before it succeeds); ONCE_E_IO.
 */
int once__log_sync(once__log_t *log);
int once__log_failed(const once__log_t *log);

/*
 * Reads the frame at `place` into memory of the log's, valid until the next read. A completion is made whole: its kind
 * is then that of a record. ONCE_OK; ONCE_E_NOT_FOUND: the segment was dropped meanwhile; ONCE_E_CORRUPT; ONCE_E_IO;
 * ONCE_E_NOMEM.
 */
int once__log_read(once__log_t *log, once__place_t place, once__frame_t *frame);

/* Hints that the frame will be read soon; and then, if it is a completion, the one that it refers to. */
void once__log_expect(once__log_t *log, once__place_t place);
void once__log_expect_claim(once__log_t *log, once__place_t place);

/*
 * Only the head of the record `id` that is at `place`, which is durable; the rest of `record` does not count. It is read where
 * it stands: if the segment was dropped meanwhile, which the caller has to look for, it may be anything. ONCE_OK;
 * ONCE_E_NOT_FOUND: another one is there; ONCE_E_UNAVAILABLE: it is not in memory; the rest as once__log_read.
 */
int once__log_read_head(once__log_t *log, once__place_t place, const uint8_t *id,
                        once__record_t *record);

/*
 * The bytes at `place`, whatever they are: as many as a frame there would have if its length is right. Memory and errors as above;
 * ONCE_E_CORRUPT: the file ends before.
 */
int once__log_read_raw(once__log_t *log, once__place_t place, const uint8_t **bytes, uint64_t *len);

/*
 * From now on, which is `now` by the store's clock, reads never wait for the disk: ONCE_E_UNAVAILABLE instead, when what they want
 * is not in memory. Told before each look, it spares each of its reads the clock.
 */
void once__log_never_wait(once__log_t *log, uint64_t now);

/*
 * Gives back the mappings of segments that were dropped: their files take room until then. And asks again what of the others is in
 * memory, which is believed for a second otherwise.
 */
void once__log_forget_readers(once__log_t *log);

/* Is the frame durable? What a writer left behind that is gone is made so. */
int once__log_is_durable(once__log_t *log, once__place_t place);

/*
 * Did a segment that we wanted to begin exist already, with frames? Then the index is older than the log, and no further segment
 * is begun. Any thread may ask.
 */
int once__log_is_outdated(const once__log_t *log);

/* Is it in our own segment, waiting for the next sync? */
int once__log_is_ours(const once__log_t *log, once__place_t place);

/*
 * Drops the oldest segment if its time has come at `now`. `carry` must move what is still pending or unknown in it, or
 * `everything` that still counts; it returns ONCE_OK when nothing of that is left. `count` grows by the records that went.
 * ONCE_OK: dropped; ONCE_E_NOT_FOUND: nothing to drop; ONCE_E_IO; else what `carry` said.
 */
typedef int (*once__carry_t)(void *data, uint32_t segment, int everything);
int once__log_drop(once__log_t *log, uint64_t now, once__carry_t carry, void *data,
                   uint64_t *count);

uint64_t once__log_syncs(const once__log_t *log); /* so far */

/* Names of the files in segments/. */
#define ONCE__SEGMENT_NAME 24
void once__segment_name(char out[ONCE__SEGMENT_NAME], uint32_t number, const char *suffix);

#endif
