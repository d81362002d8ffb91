/*
 * once gate: the private directory of a run, with the configuration in it.
 *
 * The gate and every process of its nginx hold a lock on it. A gate that is killed cannot remove its directory, and the
 * configuration may hold a password: the next gate of the same user removes directories without a lock.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/text.h"
#include "gate/internal.h"

#define NAME      "once-gate-"
#define CONFIG    "nginx.conf"
#define OPEN_MODE (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
#define DEPTH     8 /* nginx makes temporary files three levels down at most */

/*
 * By descriptors, and through no link: the directories of temporary files belong to the user of the workers, which could put a link
 * in the place of one while root looks through them.
 */
static void remove_inside(int fd, unsigned depth)
{
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    if (folder == NULL && fd >= 0) {
        close(fd);
    }
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || unlinkat(fd, name, 0) == 0 ||
            depth == 0) {
            continue;
        }
        remove_inside(openat(fd, name, OPEN_MODE | O_CLOEXEC), depth - 1);
        unlinkat(fd, name, AT_REMOVEDIR);
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* `fd` is open on it, and stays so; -1: nothing is in it yet. */
static void remove_tree(int fd, const char *folder)
{
    if (fd >= 0) {
        remove_inside(openat(fd, ".", OPEN_MODE | O_CLOEXEC), DEPTH);
    }
    rmdir(folder);
}

void once__gate_remove_folder(once__gate_folder_t *folder)
{
    if (folder->path[0] != '\0') {
        remove_tree(folder->lock, folder->path);
    }
    if (folder->lock >= 0) {
        close(folder->lock);
        folder->lock = -1;
    }
}

/* Ours and unlocked. One without a configuration may just be being made: it is locked before that is written. */
static int is_left_behind(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 0767) == 0700 &&
           flock(fd, LOCK_EX | LOCK_NB) == 0 &&
           fstatat(fd, CONFIG, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static void sweep(const char *top)
{
    DIR *folders = opendir(top);
    struct dirent *entry;

    while (folders != NULL && (entry = readdir(folders)) != NULL) {
        char path[ONCE__GATE_PATH_SIZE];
        int fd;
        if (strncmp(entry->d_name, NAME, strlen(NAME)) != 0 ||
            snprintf(path, sizeof(path), "%s/%s", top, entry->d_name) >= (int)sizeof(path)) {
            continue;
        }
        fd = open(path, OPEN_MODE | O_CLOEXEC);
        if (fd >= 0 && is_left_behind(fd)) {
            remove_tree(fd, path);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (folders != NULL) {
        closedir(folders);
    }
}

/* The lock is handed down to nginx: its workers may outlive a gate and a master that are killed together. */
static int take_folder(once__gate_folder_t *folder, const char *top)
{
    snprintf(folder->path, sizeof(folder->path), "%s/" NAME "XXXXXX", top);
    if (mkdtemp(folder->path) == NULL) {
        once__cli_say("cannot create a directory in %s: %s", top, strerror(errno));
        folder->path[0] = '\0';
        return ONCE__CLI_STORE;
    }
    folder->lock = open(folder->path, OPEN_MODE);
    if (folder->lock < 0 || flock(folder->lock, LOCK_EX) != 0) {
        once__cli_say("cannot lock %s: %s", folder->path, strerror(errno));
        return ONCE__CLI_STORE;
    }
    /* Workers of another user pass through it to their temporary files; the configuration stays out of their sight. */
    if (folder->plan->user[0] != '\0' && (fchown(folder->lock, (uid_t)-1, folder->plan->gid) != 0 ||
                                          fchmod(folder->lock, 0710) != 0)) {
        once__cli_say("cannot give %s to the group of %s: %s", folder->path, folder->plan->user,
                      strerror(errno));
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

/* Can only root replace the directory, or one above it? */
static int is_roots(const char *path)
{
    char above[ONCE__GATE_PATH_SIZE];
    struct stat st;
    size_t len = strlen(path);

    while (len > 0 && len < sizeof(above)) {
        snprintf(above, len + 1, "%s", path);
        if (lstat(above, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != 0 ||
            ((st.st_mode & 022) != 0 && (st.st_mode & S_ISVTX) == 0)) {
            return 0;
        }
        while (len > 0 && path[--len] != '/') {
        }
    }
    return len == 0;
}

/* Beside the store, unless others could replace it: root's nginx reads its configuration again, and gives away directories. */
static int is_beside(const once__gate_plan_t *plan, char top[ONCE__GATE_PATH_SIZE])
{
    char *slash;

    if (plan->folder[0] == '\0' || realpath(plan->folder, top) == NULL) {
        return 0;
    }
    if (plan->user[0] != '\0') {
        slash = strrchr(top, '/');
        slash[slash == top] = '\0';
        if (!is_roots(top)) {
            return 0;
        }
    }
    return access(top, W_OK | X_OK) == 0;
}

/*
 * Bodies of requests are written there before their sender is authenticated, and /tmp may be memory: so on the disk of the store,
 * or where files may be large.
 */
static void choose_top(const once__gate_plan_t *plan, char top[ONCE__GATE_PATH_SIZE])
{
    const char *named = getenv("TMPDIR");

    if (named != NULL && named[0] == '/') {
        snprintf(top, ONCE__GATE_PATH_SIZE, "%s", named);
    } else if (!is_beside(plan, top)) {
        snprintf(top, ONCE__GATE_PATH_SIZE, "%s",
                 access("/var/tmp", W_OK | X_OK) == 0 ? "/var/tmp" : "/tmp");
    }
}

int once__gate_make_folder(once__gate_folder_t *folder)
{
    char top[ONCE__GATE_PATH_SIZE];
    FILE *out = NULL;
    int fd;

    choose_top(folder->plan, top);
    sweep(top);
    if (take_folder(folder, top) != ONCE__CLI_OK) {
        return ONCE__CLI_STORE;
    }
    snprintf(folder->config, sizeof(folder->config), "%s/" CONFIG, folder->path);
    fd = open(folder->config, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out != NULL) {
        once__gate_write_config(folder->plan, out);
    }
    if (out == NULL || fclose(out) != 0) {
        once__cli_say("cannot write %s: %s", folder->config, strerror(errno));
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}
