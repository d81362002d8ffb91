/*
 * Opening a local store: every way in which it can fail says what is wrong and what to do, and leaves things as they were.
 */
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local.h"
#include "records.h"

#define FIRST "segments/0000000000000001.log"

/* A store with one completed record, closed. */
static void make_store(place_t *place, const char *options)
{
    once_t *once;

    place_make(place, options);
    once = open_store(place->url);
    make_completed(once, "s", "k", "body");
    once_close(once, -1);
}

static int make_and_die(void *data)
{
    const place_t *place = data;

    make_completed(open_store(place->url), "s", "k", "body");
    _exit(0);
}

/* The same, left by a process that was killed: its index is there, and its segment is not sealed. */
static void make_killed(place_t *place, const char *options)
{
    place_make(place, options);
    assert_int_equal(in_child(make_and_die, place), 0);
}

/* It opens, and the record is there. */
static void assert_opens(const place_t *place)
{
    once_t *once = open_store(place->url);

    assert_int_equal(state_of(once, "s", "k"), ONCE_STATE_COMPLETED);
    once_close(once, -1);
}

/* ------------------------------------------------------------------------------------------------------ wrong places */

static void something_else_is_left_alone(void **state)
{
    place_t place;

    place_make(&place, "");
    assert_int_equal(mkdir(place.store, 0755), 0); /* the mode is not what is wrong with it */
    write_text(inside(&place, "letter.txt"), "dear");
    assert_open_fails(place.url, ONCE_E_CONFIG, "is not a once directory, and not empty; name");
    assert_int_equal(count_names(place.store), 1);
    place_remove(&place);
}

static void other_formats(void **state)
{
    place_t place;
    char kept[128];

    make_store(&place, "");
    copy_tree(inside(&place, "format"), place.top);
    write_text(inside(&place, "format"), "once-local 3\nmore\n");
    assert_open_fails(place.url, ONCE_E_NEWER, "newer version of once; upgrade");
    snprintf(kept, sizeof(kept), "%s/format", place.top);
    assert_int_equal(rename(kept, inside(&place, "format")), 0);
    assert_opens(&place);
    write_text(inside(&place, "format"), "once-local 1\n");
    assert_open_fails(place.url, ONCE_E_CONFIG, "format of an earlier version");
    assert_open_fails(place.url, ONCE_E_CONFIG, "once convert local:");
    place_remove(&place);
}

static void damaged_format(void **state)
{
    static const char *const texts[] = {"",
                                        "once-local 1",
                                        "once-local 0\n",
                                        "once-local x\n",
                                        "once-local 2\n",
                                        "once-local 2\nmore",
                                        "once-local 2\nid 0123456789abcdef\n",
                                        "once-local 2\nid 0123456789abcdef0123456789abcdeg\n",
                                        "once-local 2\nid 0123456789abcdef0123456789abcdef\nx",
                                        "twice-local 2\n"};
    place_t place;

    make_store(&place, "");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_text(inside(&place, "format"), texts[i]);
        assert_open_fails(place.url, ONCE_E_CORRUPT, "/format is damaged; restore it");
    }
    place_remove(&place);
}

static void a_file(void **state)
{
    place_t place;

    place_make(&place, "");
    write_text(place.store, "file");
    assert_open_fails(place.url, ONCE_E_CONFIG, "Not a directory; name a directory");
    snprintf(place.url, sizeof(place.url), "local:%s/deeper", place.store);
    assert_open_fails(place.url, ONCE_E_CONFIG, "Not a directory; name a directory");
    place_remove(&place);
}

static void no_parent(void **state)
{
    place_t place;

    place_make(&place, "");
    snprintf(place.url, sizeof(place.url), "local:%s/a/b", place.top);
    assert_open_fails(place.url, ONCE_E_CONFIG, "the directory above it does not exist; make");
    assert_int_equal(count_names(place.top), 0);
    assert_open_fails("local:", ONCE_E_CONFIG, "name a directory");
    place_remove(&place);
}

/* -------------------------------------------------------------------------------------------------------- permissions */

static void modes(void **state)
{
    place_t place;

    make_store(&place, "");
    assert_int_equal(chmod(place.store, 0750), 0);
    assert_open_fails(place.url, ONCE_E_CONFIG, "is open to others; chmod 700 it");
    assert_int_equal(chmod(place.store, 0500), 0);
    assert_open_fails(place.url, ONCE_E_CONFIG, "is closed to its owner; chmod 700 it");
    assert_int_equal(chmod(place.store, 0700), 0);
    assert_opens(&place);
    /* An empty directory that somebody made for it is not taken over as it is, either. */
    snprintf(place.url, sizeof(place.url), "local:%s/other", place.top);
    assert_int_equal(mkdir(place.url + strlen("local:"), 0755), 0);
    assert_open_fails(place.url, ONCE_E_CONFIG, "is open to others; chmod 700 it");
    assert_int_equal(count_names(place.url + strlen("local:")), 0);
    place_remove(&place);
}

static void foreign_owner(void **state)
{
    place_t place;

    if (geteuid() != 0) {
        skip_without("root");
    }
    make_store(&place, "");
    assert_int_equal(chown(place.store, 1, 1), 0);
    assert_open_fails(place.url, ONCE_E_CONFIG, "belongs to another user; run as that user");
    place_remove(&place);
}

static void made_private(void **state)
{
    static const char *const names[] = {"format", "secrets", "segments/manifest", FIRST};
    place_t place;
    struct stat st;
    mode_t old = umask(0);

    make_store(&place, "");
    umask(old);
    assert_int_equal(stat(place.store, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(inside(&place, "segments"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(stat(inside(&place, names[i]), &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
    place_remove(&place);
}

static void secrets(void **state)
{
    place_t place;

    make_store(&place, "");
    assert_int_equal(chmod(inside(&place, "secrets"), 0640), 0);
    assert_open_fails(place.url, ONCE_E_SECRET, "secrets is open to others; chmod 600 it");
    assert_int_equal(chmod(inside(&place, "secrets"), 0600), 0);
    assert_opens(&place);
    write_text(inside(&place, "secrets"), "once-secrets 1\nrecord 00\n");
    assert_open_fails(place.url, ONCE_E_SECRET, "not those of the store; restore it from a backup");
    place_remove(&place);
}

/* With new secrets every key would count as never used. */
static void lost_secrets_are_not_made_anew(void **state)
{
    place_t place;
    once_ask_t ask = ONCE_ASK_INIT;
    once_t *once = NULL;

    make_store(&place, "");
    assert_int_equal(unlink(inside(&place, "secrets")), 0);
    assert_int_equal(once_open(place.url, NULL, &once, NULL), ONCE_OK);
    ask.key = slice("k");
    assert_int_equal(once_begin_sync(once, &ask, NULL), ONCE_E_SECRET);
    once_close(once, -1);
    assert_int_equal(access(inside(&place, "secrets"), F_OK), -1);
    place_remove(&place);
}

/* ------------------------------------------------------------------------------------------------------------ segments */

static void missing_segment(void **state)
{
    for (int killed = 0; killed < 2; killed++) {
        place_t place;
        char kept[128];

        killed ? make_killed(&place, "") : make_store(&place, "");
        snprintf(kept, sizeof(kept), "%s/kept", place.top);
        assert_int_equal(rename(inside(&place, FIRST), kept), 0);
        assert_open_fails(place.url, ONCE_E_CORRUPT,
                          "segment 0000000000000001 is missing; restore it from a backup, or "
                          "accept the loss with once fsck --repair");
        assert_int_equal(rename(kept, inside(&place, FIRST)), 0);
        assert_opens(&place);
        place_remove(&place);
    }
}

static void all_segments_missing(void **state)
{
    place_t place;
    run_t r;

    make_store(&place, "");
    assert_int_equal(unlink(inside(&place, "segments/manifest")), 0);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "/segments/manifest is missing; restore it");
    assert_int_equal(unlink(inside(&place, FIRST)), 0);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "/segments/manifest is missing; restore it");
    assert_int_equal(rmdir(inside(&place, "segments")), 0);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "/segments is missing; restore it from a backup");
    r = run("fsck", place.url, NULL);
    assert_run(r, ONCE__CLI_STORE);
    assert_has(r.err, "/segments is missing; restore it from a backup");
    run_free(&r);
    place_remove(&place);
}

/* Nothing is wrong with it: to repair it would be to lose it. */
static void newer_segment(void **state)
{
    once_error_t err = {0};
    once_t *once = NULL;
    place_t place;
    int fd;

    make_store(&place, "");
    fd = open(inside(&place, FIRST), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "9", 1, 7), 1);
    close(fd);
    assert_int_equal(once_open(place.url, NULL, &once, &err), ONCE_E_NEWER);
    assert_has(err.text,
               "segment 0000000000000001 was written by a newer version of once; upgrade");
    assert_lacks(err.text, "repair");
    place_remove(&place);
}

static void foreign_segment(void **state)
{
    if (geteuid() != 0) {
        skip_without("root");
    }
    for (int killed = 0; killed < 2; killed++) {
        place_t place;

        killed ? make_killed(&place, "") : make_store(&place, "");
        assert_int_equal(chown(inside(&place, FIRST), 12345, 12345), 0);
        assert_open_fails(place.url, ONCE_E_CONFIG,
                          "segment 0000000000000001 belongs to another user");
        place_remove(&place);
    }
}

static void damaged_header(void **state)
{
    for (int killed = 0; killed < 2; killed++) {
        place_t place;

        killed ? make_killed(&place, "") : make_store(&place, "");
        spoil(inside(&place, FIRST), 20, 1);
        assert_open_fails(place.url, ONCE_E_CORRUPT,
                          "segment 0000000000000001 has a damaged header");
        assert_open_fails(place.url, ONCE_E_CORRUPT, "once fsck --repair");
        spoil(inside(&place, FIRST), 20, 1);
        assert_opens(&place);
        place_remove(&place);
    }
}

/* --------------------------------------------------------------------------------------------------------- the machine */

/* A filesystem of our own at `path`, seen by this process only. 0, or -1: not allowed here. */
static int own_filesystem(const char *path, const char *options)
{
    char map[64];
    uid_t user = geteuid();
    int fd;

    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) {
        return -1;
    }
    if (user != 0) {
        fd = open("/proc/self/uid_map", O_WRONLY);
        snprintf(map, sizeof(map), "0 %u 1", (unsigned)user);
        if (fd < 0 || write(fd, map, strlen(map)) < 0) {
            return -1;
        }
        close(fd);
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return -1;
    }
    return mount("tmpfs", path, "tmpfs", 0, options);
}

#define NOT_ALLOWED 77

static int on_a_read_only_disk(void *data)
{
    const place_t *place = data;
    char url[256];

    if (own_filesystem(place->top, "size=64m") != 0) {
        return NOT_ALLOWED;
    }
    once_close(open_store(place->url), -1);
    assert_int_equal(mount("none", place->top, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_open_fails(place->url, ONCE_E_IO, "Read-only file system; mount it writable, or name");
    snprintf(url, sizeof(url), "local:%s/new", place->top);
    assert_open_fails(url, ONCE_E_IO, "Read-only file system; mount it writable, or name");
    return 0;
}

/* Runs `work` in a process that may mount filesystems of its own. */
static void in_namespace(int (*work)(void *), const char *options)
{
    place_t place;
    int code;

    place_make(&place, options);
    code = in_child(work, &place);
    place_remove(&place);
    if (code == NOT_ALLOWED) {
        skip_without("a mount namespace");
    }
    assert_int_equal(code, 0);
}

static int on_a_full_disk(void *data)
{
    const place_t *place = data;
    char path[128];
    int fd;

    if (own_filesystem(place->top, "size=8m") != 0) {
        return NOT_ALLOWED;
    }
    snprintf(path, sizeof(path), "%s/ballast", place->top);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    for (off_t at = 0; fallocate(fd, 0, at, 4096) == 0; at += 4096) {
    }
    assert_open_fails(place->url, ONCE_E_FULL, "make some room");
    /* It heals when space returns. */
    assert_int_equal(ftruncate(fd, 0), 0);
    once_close(open_store(place->url), -1);
    close(fd);
    return 0;
}

static void read_only(void **state)
{
    in_namespace(on_a_read_only_disk, "");
}

static void no_space(void **state)
{
    in_namespace(on_a_full_disk, "");
}

/* The index is in a tmpfs of its own, which has no room. */
static int with_a_small_tmpfs(void *data)
{
    place_t *place = data;

    if (own_filesystem("/mnt", "size=64k") != 0) {
        return NOT_ALLOWED;
    }
    assert_open_fails(place->url, ONCE_E_FULL, "no room for the index in /mnt");
    assert_open_fails(place->url, ONCE_E_FULL, "index=DIR");
    return 0;
}

static void no_room_for_the_index(void **state)
{
    in_namespace(with_a_small_tmpfs, "?index=/mnt");
}

/* Every directory where an index could be is covered by one that is not a tmpfs. */
static int without_a_tmpfs(void *data)
{
    static const char *const names[] = {"/dev/shm", "/run/shm", "/run", "/tmp"};
    place_t place = {.store = "/mnt/store", .url = "local:/mnt/store?store_timeout=300ms"};
    char trouble[200];
    once_t *once;

    if (own_filesystem("/mnt", "size=8m,mode=0700") != 0) {
        return NOT_ALLOWED;
    }
    (void)unsetenv("XDG_RUNTIME_DIR");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)mount("/etc", names[i], NULL, MS_BIND, NULL);
    }
    once = open_store(place.url);
    assert_true(once_store_trouble(once, trouble, sizeof(trouble)) > 0);
    assert_has(trouble, "no tmpfs for the index: one program at a time");
    make_completed(once, "s", "k", "body");
    assert_open_fails(place.url, ONCE_E_CONFLICT, "another program has");
    once_close(once, -1);
    assert_opens(&place);
    return 0;
}

static void no_tmpfs(void **state)
{
    in_namespace(without_a_tmpfs, "");
}

/* A list of those that were tried, and a way to insist. */
static int on_another_filesystem(void *data)
{
    const place_t *place = data;
    char url[300];

    if (own_filesystem(place->top, "size=64m") != 0 ||
        mount("ramfs", place->top, "ramfs", 0, "mode=0700") != 0) {
        return NOT_ALLOWED;
    }
    assert_open_fails(place->url, ONCE_E_CONFIG, "filesystem of type 0x858458f6");
    assert_open_fails(place->url, ONCE_E_CONFIG, "filesystem=any");
    snprintf(url, sizeof(url), "%s?filesystem=any", place->url);
    once_close(open_store(url), -1);
    return 0;
}

static void untried_filesystem(void **state)
{
    in_namespace(on_another_filesystem, "");
}

/* A limit of file sizes is an error, not a signal. */
static int with_small_files(void *data)
{
    const place_t *place = data;
    struct rlimit limit = {4096, RLIM_INFINITY};

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_open_fails(place->url, ONCE_E_FULL, "ulimit -f");
    limit.rlim_cur = RLIM_INFINITY;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    once_close(open_store(place->url), -1);
    return 0;
}

static void limit_of_file_sizes(void **state)
{
    place_t place;

    place_make(&place, "");
    assert_int_equal(in_child(with_small_files, &place), 0);
    place_remove(&place);
}

/* However many descriptors are left: it says so, or it works. */
static int with_few_descriptors(void *data)
{
    const place_t *place = data;
    int failed = 0;

    for (rlim_t limit = 3; limit < 40; limit++) {
        struct rlimit few = {limit, 1024};
        once_error_t err = {0};
        once_t *once = NULL;
        int code;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        code = once_open(place->url, NULL, &once, &err);
        if (code == ONCE_OK) {
            once_close(once, 0);
            break;
        }
        failed++;
        if (strstr(err.text, "Too many open files") == NULL &&
            strstr(err.text, "input or output") == NULL) {
            print_error("%lu: %s\n", (unsigned long)limit, err.text);
            return 1;
        }
        if (strstr(err.text, "Too many open files") != NULL &&
            strstr(err.text, "ulimit -n") == NULL) {
            print_error("%lu: %s\n", (unsigned long)limit, err.text);
            return 2;
        }
    }
    return failed > 3 ? 0 : 3;
}

static void too_many_open_files(void **state)
{
    place_t place;

    make_store(&place, "");
    assert_int_equal(in_child(with_few_descriptors, &place), 0);
    assert_opens(&place);
    place_remove(&place);
}

/* ------------------------------------------------------------------------------------------------------------ the index */

/* The index of the store: in a directory of its own, which is a tmpfs. 0: none is there. */
static int index_name(const char *directory, char *name, size_t size)
{
    DIR *stream = opendir(directory);
    const struct dirent *entry;
    int found = 0;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        if (strncmp(entry->d_name, "once-", 5) == 0) {
            snprintf(name, size, "%s/%s", directory, entry->d_name);
            found++;
        }
    }
    closedir(stream);
    assert_true(found <= 1);
    return found;
}

typedef struct shelf {
    place_t place;
    char tmpfs[64];
} shelf_t;

/* A store with its index in a directory of its own in /dev/shm. */
static void shelf_make(shelf_t *shelf)
{
    char options[128];

    strcpy(shelf->tmpfs, "/dev/shm/once-test-XXXXXX");
    assert_non_null(mkdtemp(shelf->tmpfs));
    snprintf(options, sizeof(options), "?index=%s", shelf->tmpfs);
    place_make(&shelf->place, options);
}

static void shelf_remove(shelf_t *shelf)
{
    char name[400];

    if (index_name(shelf->tmpfs, name, sizeof(name))) {
        assert_int_equal(unlink(name), 0);
    }
    assert_int_equal(rmdir(shelf->tmpfs), 0);
    place_remove(&shelf->place);
}

static void index_gone_while_others_use_it(void **state)
{
    shelf_t shelf;
    once_t *once;
    char name[400];

    shelf_make(&shelf);
    once = open_store(shelf.place.url);
    make_completed(once, "s", "k", "body");
    assert_int_equal(index_name(shelf.tmpfs, name, sizeof(name)), 1);
    assert_int_equal(unlink(name), 0);
    assert_open_fails(shelf.place.url, ONCE_E_CONFLICT,
                      "but its index is not in /dev/shm/once-test");
    once_close(once, -1);
    assert_opens(&shelf.place);
    shelf_remove(&shelf);
}

/* Another tmpfs has an index of this store, which was left there: it is not the one that others use. */
static void an_index_that_was_left_elsewhere_is_not_used(void **state)
{
    shelf_t shelf;
    place_t other;
    once_t *once;

    shelf_make(&shelf);
    assert_int_equal(in_child(make_and_die, &shelf.place), 0);
    other = shelf.place;
    snprintf(other.url, sizeof(other.url), "local:%s", other.store);
    once = open_store(other.url); /* in /dev/shm */
    make_completed(once, "s", "later", "body");
    assert_open_fails(shelf.place.url, ONCE_E_CONFLICT, "must share /dev/shm");
    once_close(once, -1);
    once = open_store(shelf.place.url); /* alone: the one that was left is older than the log */
    assert_int_equal(state_of(once, "s", "later"), ONCE_STATE_COMPLETED);
    once_close(once, -1);
    shelf_remove(&shelf);
}

/* A copy has the id of its original, and nothing else in common with it. */
static void a_copy_has_an_index_of_its_own(void **state)
{
    place_t place, copy;
    once_t *once, *second;

    make_store(&place, "");
    place_make(&copy, "");
    once = open_store(place.url);
    copy_tree(place.store, copy.store);
    second = open_store(copy.url);
    make_completed(once, "s", "later", "x");
    assert_int_equal(state_of(second, "s", "later"), ONCE_STATE_NONE);
    assert_int_equal(state_of(second, "s", "k"), ONCE_STATE_COMPLETED);
    once_close(second, -1);
    once_close(once, -1);
    place_remove(&place);
    place_remove(&copy);
}

static int open_and_die(void *data)
{
    const place_t *place = data;

    (void)open_store(place->url);
    _exit(0);
}

static void a_moved_store_keeps_its_index(void **state)
{
    shelf_t shelf;
    place_t *place = &shelf.place;
    struct stat before, after;
    char name[400], from[80];

    shelf_make(&shelf);
    assert_int_equal(in_child(make_and_die, place), 0);
    assert_int_equal(index_name(shelf.tmpfs, name, sizeof(name)), 1);
    assert_int_equal(stat(name, &before), 0);
    snprintf(from, sizeof(from), "%s", place->store);
    snprintf(place->store, sizeof(place->store), "%s/moved", place->top);
    snprintf(place->url, sizeof(place->url), "local:%s?index=%s", place->store, shelf.tmpfs);
    assert_int_equal(rename(from, place->store), 0);
    assert_int_equal(in_child(open_and_die, place), 0);
    assert_int_equal(index_name(shelf.tmpfs, name, sizeof(name)), 1);
    assert_int_equal(stat(name, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_opens(place);
    shelf_remove(&shelf);
}

static void options_are_checked(void **state)
{
    assert_open_fails("local:/tmp/x?index=relative", ONCE_E_CONFIG, "not the absolute path");
    assert_open_fails("local:/tmp/x?filesystem=mine", ONCE_E_CONFIG, "is not any");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(something_else_is_left_alone),
        cmocka_unit_test(other_formats),
        cmocka_unit_test(damaged_format),
        cmocka_unit_test(a_file),
        cmocka_unit_test(no_parent),
        cmocka_unit_test(modes),
        cmocka_unit_test(foreign_owner),
        cmocka_unit_test(made_private),
        cmocka_unit_test(secrets),
        cmocka_unit_test(lost_secrets_are_not_made_anew),
        cmocka_unit_test(missing_segment),
        cmocka_unit_test(all_segments_missing),
        cmocka_unit_test(newer_segment),
        cmocka_unit_test(foreign_segment),
        cmocka_unit_test(damaged_header),
        cmocka_unit_test(read_only),
        cmocka_unit_test(no_space),
        cmocka_unit_test(no_room_for_the_index),
        cmocka_unit_test(no_tmpfs),
        cmocka_unit_test(untried_filesystem),
        cmocka_unit_test(limit_of_file_sizes),
        cmocka_unit_test(too_many_open_files),
        cmocka_unit_test(index_gone_while_others_use_it),
        cmocka_unit_test(an_index_that_was_left_elsewhere_is_not_used),
        cmocka_unit_test(a_copy_has_an_index_of_its_own),
        cmocka_unit_test(a_moved_store_keeps_its_index),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
