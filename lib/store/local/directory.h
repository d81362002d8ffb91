/*
 * The directory of a local store: made, checked, locked, and its index found or made.
 */
#ifndef ONCE_STORE_LOCAL_DIRECTORY_H
#define ONCE_STORE_LOCAL_DIRECTORY_H

#include "store/limits.h"
#include "store/local/log.h"

typedef struct once__directory {
    int fd;
    once__log_config_t log; /* segments_fd has the flock() of the store; the sizes are its user's */
    int exclusive; /* there is no tmpfs: the index is this process's alone, and so is the store */
    char *secrets_path;
} once__directory_t;

typedef struct once__directory_config {
    const char *path;
    const once__disk_t *disk;    /* under the segments; NULL: the real one */
    const char *index_directory; /* of the option `index`; NULL: once__index_default_directory */
    int any_filesystem;          /* of the option `filesystem=any` */
    uint64_t timeout_ms;         /* for how long to wait while another process is alone with it */
    void (*progress)(void *data, const char *message); /* of a rebuild, once a second; NULL: not */
    void *data;
} once__directory_config_t;

/*
 * Opens the store, making it when there is nothing (the parent must exist). A directory that is something else is left as it is.
 * Every error names the path and says what to do: ONCE_E_CONFIG (not a once directory, foreign owner, open to others, filesystem
 * that was not tried, format 1: once convert), ONCE_E_NEWER, ONCE_E_CORRUPT, ONCE_E_SECRET, ONCE_E_CONFLICT (others use it, and its
 * index cannot be seen from here), ONCE_E_FULL, ONCE_E_IO, ONCE_E_NOMEM.
 */
int once__directory_open(once__directory_t *directory, const once__directory_config_t *config,
                         once_error_t *err);

/* A clean end: the last process removes a small index. Everything was sealed before. */
void once__directory_close(once__directory_t *directory);
/* The index stays as it is. */
void once__directory_leave(once__directory_t *directory);
/* Removes the index, so that the next process makes a new one. The caller is alone with the store (LOCK_EX). */
void once__directory_forget_index(once__directory_t *directory);
/* Memory and descriptors only: in a child of fork(), whose parent goes on with the lock. */
void once__directory_abandon(once__directory_t *directory);

/*
 * For fsck, backup and repair: opens what there is without making or changing anything. `how`: 0 no lock, LOCK_SH, LOCK_EX
 * (ONCE_E_CONFLICT: others use it); no waiting. The index is attached if there is one and it is the one in use; else NULL.
 * ONCE_E_NOT_FOUND: there is no store. The rest as once__directory_open.
 */
int once__directory_look(once__directory_t *directory, const once__directory_config_t *config,
                         int how, once_error_t *err);

/* Files that repairs took out, and their bytes. */
void once__directory_quarantine(const once__directory_t *directory, uint64_t *files,
                                uint64_t *bytes);

/* ---- format.c ---- */

/* What the URL of a store says beside its path. */
typedef struct once__local_settings {
    uint64_t segment_size; /* of a full-grown segment */
    int relaxed_claims;
    once__directory_config_t directory; /* path and options, in the memory of the URL */
    once__limits_t limits;
} once__local_settings_t;
/* Takes what is ours. ONCE_OK, or ONCE_E_CONFIG says what is wrong. */
int once__local_settings_take(once__local_settings_t *settings, once__url_t *url,
                              once_error_t *err);

/* "local store: BEFORE PATH AFTER", the path cut if need be; and the same for errno, with advice. Both return the code. */
int once__local_fail(once_error_t *err, int code, const char *before, const char *path,
                     const char *after);
int once__local_errno(once_error_t *err, const char *what, const char *path);
#define ONCE__RESTORE "restore it from a backup, or accept the loss with once fsck --repair"

/* What is written in `format`. */
typedef enum once__format {
    ONCE__FORMAT_NONE, /* nothing is there, or only what comes before the format */
    ONCE__FORMAT_OURS,
    ONCE__FORMAT_BEFORE, /* format 1 */
    ONCE__FORMAT_NEWER,
    ONCE__FORMAT_OTHER, /* not a store */
    ONCE__FORMAT_DAMAGED,
    ONCE__FORMAT_UNREADABLE, /* errno says why */
} once__format_t;
once__format_t once__format_read(int fd, uint8_t store_id[ONCE__STORE_ID_SIZE]);
/* Durably. 0, or -1 and errno. */
int once__format_write(int fd, const uint8_t store_id[ONCE__STORE_ID_SIZE]);
/* Makes the names in the directory durable, and its own. 0, or -1 and errno. */
int once__format_keep(int fd);
/* ONCE_OK for OURS and NONE; else the error. */
int once__format_check(once__format_t format, const char *path, once_error_t *err);
/* Is it on a filesystem that was tried, or allowed all the same? */
int once__format_filesystem(int fd, const once__directory_config_t *config, once_error_t *err);
typedef enum once__start {
    ONCE__START_LOOK,
    ONCE__START_MAKE,    /* makes PATH if there is nothing */
    ONCE__START_CONVERT, /* format 1 is allowed */
} once__start_t;
/*
 * Opens PATH and checks format, owner, mode and filesystem. Sets fd, boot id, disk and, if there is a format, the store id.
 * ONCE_E_NOT_FOUND: there is no store, and none is to be made.
 */
int once__directory_start(once__directory_t *directory, const once__directory_config_t *config,
                          once__start_t how, once_error_t *err);

/* ---- rebuild.c ---- */

typedef struct once__rebuilt {
    uint64_t segments, frames, bytes;
} once__rebuilt_t;

typedef struct once__rebuild_config {
    const once__log_config_t *log; /* its index is empty and not published */
    const once__manifest_t *manifest;
    unsigned threads; /* 0: one for each processor, at most 8 */
    int looks_only;   /* changes no file: torn ends stay, nothing is sealed or removed (fsck) */
    int accept_lost;  /* goes on behind ranges of which nobody knows whose frames they had (fsck) */
    /* Called now and then by the calling thread. NULL: not. */
    void (*progress)(uint64_t done_bytes, uint64_t all_bytes, void *data);
    void *progress_data;
    const once__index_t
        *in_use; /* segments are read up to what is durable by it; NULL: all of each */
    /*
     * Called at DAMAGED, LOST and TORN; with `walk` NULL if the file cannot be read, which `code` explains. By one thread at a
     * time. NULL: not. With this and `accept_lost`, a file that gives EIO is passed over as well (fsck).
     */
    void (*found)(void *data, uint64_t number, const once__walk_t *walk, int code);
    void *data;
} once__rebuild_config_t;

/*
 * Fills the index. Several threads read segments; each newest frame by version is entered. Sets the clock. Seals what writers left.
 * ONCE_OK; ONCE_E_CORRUPT, ONCE_E_IO, ONCE_E_FULL, ONCE_E_NOMEM, ONCE_E_NEWER: err names the segment and what to do.
 */
int once__rebuild(const once__rebuild_config_t *config, once__rebuilt_t *rebuilt,
                  once_error_t *err);

/* The offset from CLOCK_BOOTTIME that gives the time of day, or `latest` + 1 if that is later. */
int64_t once__clock_after(uint64_t latest);

/*
 * Is the log exactly what the index says? The caller is alone with the store. Also takes over what killed writers left. ONCE_OK;
 * ONCE_E_NOT_FOUND: it differs, or that cannot be told; ONCE_E_CORRUPT: segment *behind lacks what was durable in this boot.
 */
int once__verify(const once__log_config_t *log, const once__manifest_t *manifest, uint64_t *behind);

#endif
