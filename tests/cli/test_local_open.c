/*
 * Opening a local store: every way in which it can fail says what is wrong and what to do, and leaves things as they were.
 */
#include "harness.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "local.h"
#include "records.h"
#include "store/local/crc32c.h"
#include "store/local/frame.h"

/* A store with one completed record, closed. */
static void make_store(place_t *place, const char *options)
{
    once_t *once;

    place_make(place, options);
    once = open_store(place->url);
    make_completed(once, "s", "k", "body");
    once_close(once, -1);
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

static void newer_format(void **state)
{
    place_t place;

    make_store(&place, "");
    write_text(inside(&place, "format"), "once-local 2\n");
    assert_open_fails(place.url, ONCE_E_NEWER, "newer version of once; upgrade");
    write_text(inside(&place, "format"), "once-local 1\n");
    assert_opens(&place);
    place_remove(&place);
}

static void damaged_format(void **state)
{
    static const char *const texts[] = {"",
                                        "once-local 1",
                                        "once-local 0\n",
                                        "once-local x\n",
                                        "once-local 2\nmore",
                                        "twice-local 1\n"};
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
    /* An empty directory that was made for it is not taken over as it is, either. */
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
    static const char *const names[] = {"format", "secrets", "lock", "index",
                                        "segments/00000001.log"};
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
    for (int with_index = 0; with_index < 2; with_index++) {
        place_t place;
        once_t *once;
        char body[1000];

        place_make(&place, "?segment=64k&compress=off");
        once = open_store(place.url);
        for (int i = 0; i < 150; i++) {
            char key[16];
            snprintf(key, sizeof(key), "k%d", i);
            make_unlike(body, sizeof(body), (unsigned)i);
            make_completed(once, "s", key, body);
        }
        once_close(once, -1);
        assert_true(count_names(inside(&place, "segments")) >= 3);
        assert_int_equal(unlink(inside(&place, "segments/00000002.log")), 0);
        if (!with_index) {
            assert_int_equal(unlink(inside(&place, "index")), 0);
        }
        assert_open_fails(place.url, ONCE_E_CORRUPT,
                          "segment 00000002 is missing; restore it from a backup, or accept the "
                          "loss with once fsck --repair");
        place_remove(&place);
    }
}

static void all_segments_missing(void **state)
{
    place_t place;
    run_t r;

    make_store(&place, "");
    assert_int_equal(unlink(inside(&place, "index")), 0);
    assert_int_equal(unlink(inside(&place, "segments/00000001.log")), 0);
    assert_int_equal(unlink(inside(&place, "segments/extent")), 0);
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
    uint8_t header[ONCE__SEGMENT_HEADER];
    once_error_t err = {0};
    once_t *once = NULL;
    place_t place;
    int fd;

    make_store(&place, "");
    fd = open(inside(&place, "segments/00000001.log"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, header, sizeof(header), 0), sizeof(header));
    header[7] = '9';
    memset(header + 12, 0, 4);
    once__put32(header + 12, once__crc32c(0, header, sizeof(header)));
    assert_int_equal(pwrite(fd, header, sizeof(header), 0), sizeof(header));
    close(fd);
    assert_int_equal(unlink(inside(&place, "index")), 0);
    assert_int_equal(once_open(place.url, NULL, &once, &err), ONCE_E_NEWER);
    assert_has(err.text, "segment 00000001 was written by a newer version of once; upgrade");
    assert_lacks(err.text, "repair");
    place_remove(&place);
}

static void foreign_segment(void **state)
{
    place_t place;

    if (geteuid() != 0) {
        skip_without("root");
    }
    make_store(&place, "");
    assert_int_equal(chown(inside(&place, "segments/00000001.log"), 12345, 12345), 0);
    assert_open_fails(place.url, ONCE_E_CONFIG, "segments/00000001.log belongs to another user");
    assert_int_equal(unlink(inside(&place, "index")), 0);
    assert_open_fails(place.url, ONCE_E_CONFIG, "segments/00000001.log belongs to another user");
    place_remove(&place);
}

static void damaged_header(void **state)
{
    place_t place;

    make_store(&place, "");
    spoil(inside(&place, "segments/00000001.log"), 20, 1);
    assert_int_equal(unlink(inside(&place, "index")), 0);
    assert_open_fails(place.url, ONCE_E_CORRUPT, "the header of segment 00000001 cannot be read");
    assert_open_fails(place.url, ONCE_E_CORRUPT, "once fsck --repair");
    spoil(inside(&place, "segments/00000001.log"), 20, 1);
    assert_opens(&place);
    place_remove(&place);
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

static void read_only(void **state)
{
    place_t place;
    int code;

    place_make(&place, "");
    code = in_child(on_a_read_only_disk, &place);
    place_remove(&place);
    if (code == NOT_ALLOWED) {
        skip_without("the permission to mount");
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
    assert_int_equal(posix_fallocate(fd, 0, 7 << 20), 0);
    assert_open_fails(place->url, ONCE_E_FULL, "no space for the index of");
    assert_open_fails(place->url, ONCE_E_FULL, "make some room");
    /* It heals when space returns. */
    assert_int_equal(ftruncate(fd, 0), 0);
    once_close(open_store(place->url), -1);
    close(fd);
    return 0;
}

static void no_space(void **state)
{
    place_t place;
    int code;

    place_make(&place, "");
    code = in_child(on_a_full_disk, &place);
    place_remove(&place);
    if (code == NOT_ALLOWED) {
        skip_without("the permission to mount");
    }
    assert_int_equal(code, 0);
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
        unlink(inside(place, "index")); /* reading the log needs descriptors, too */
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

static void index_gone_while_others_use_it(void **state)
{
    place_t place;
    once_t *once;

    make_store(&place, "");
    once = open_store(place.url);
    assert_int_equal(unlink(inside(&place, "index")), 0);
    assert_open_fails(place.url, ONCE_E_CONFLICT,
                      "and its index cannot be used; stop them all, then start them again");
    once_close(once, -1);
    assert_opens(&place);
    place_remove(&place);
}

/* An index that was copied looks like one of this boot, but does not belong to the segments beside it. */
static void a_copied_index_is_not_believed(void **state)
{
    place_t place, copy;
    once_t *once;
    char from[256];

    make_store(&place, "");
    place_make(&copy, "");
    once = open_store(place.url);
    copy_tree(place.store, copy.store);
    make_completed(once, "s", "later", "x");
    snprintf(from, sizeof(from), "%s/segments", place.store);
    copy_tree(from, copy.store); /* segments that know more than the index */
    once_close(once, -1);

    once = open_store(copy.url);
    assert_int_equal(state_of(once, "s", "later"), ONCE_STATE_COMPLETED);
    assert_int_equal(state_of(once, "s", "k"), ONCE_STATE_COMPLETED);
    once_close(once, -1);
    place_remove(&place);
    place_remove(&copy);
}

static void a_moved_store_keeps_its_index(void **state)
{
    place_t place;
    struct stat before, after;

    make_store(&place, "");
    assert_int_equal(stat(inside(&place, "index"), &before), 0);
    snprintf(place.url, sizeof(place.url), "local:%s/moved", place.top);
    assert_int_equal(rename(place.store, place.url + strlen("local:")), 0);
    assert_opens(&place);
    assert_int_equal(stat(place.url + strlen("local:"), &after), 0);
    snprintf(place.store, sizeof(place.store), "%s/moved", place.top);
    assert_int_equal(stat(inside(&place, "index"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(something_else_is_left_alone),
        cmocka_unit_test(newer_format),
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
        cmocka_unit_test(too_many_open_files),
        cmocka_unit_test(index_gone_while_others_use_it),
        cmocka_unit_test(a_copied_index_is_not_believed),
        cmocka_unit_test(a_moved_store_keeps_its_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
