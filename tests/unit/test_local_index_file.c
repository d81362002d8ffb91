/*
 * The index as a file in a tmpfs: made, found, refused, removed; and what happens where there is no room.
 */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support/local_index.h"

static char said[1024]; /* with the last refusal */

static int attach(const once__index_config_t *config)
{
    once__index_t *index;
    once_error_t err = {0};
    int code = once__index_attach(&index, config, &err);

    assert_true((code == ONCE_OK) == (index != NULL));
    assert_true(code == ONCE_OK || err.text[0] != '\0');
    (void)snprintf(said, sizeof(said), "%s", err.text);
    once__index_close(index);
    return code;
}

static void path_of(const place_t *place, char path[256])
{
    (void)snprintf(path, 256, "%s/%s", place->base, place->index->name);
}

/* The names of indexes in the directory. */
static int count_files(const place_t *place, const char *end)
{
    DIR *directory = opendir(place->base);
    int count = 0;

    assert_non_null(directory);
    for (struct dirent *e = readdir(directory); e != NULL; e = readdir(directory)) {
        size_t len = strlen(e->d_name), n = strlen(end);
        count += strncmp(e->d_name, "once-", 5) == 0 && len >= n &&
                 strcmp(e->d_name + len - n, end) == 0;
    }
    (void)closedir(directory);
    return count;
}

/* ---------------------------------------------------------------------------------------------------------- finding */

static void others_see_the_same(void **state)
{
    place_t *place = *state;
    uint32_t slot = new_segment(place->index, ONCE__SEGMENT_ACTIVE);
    once__index_t *second;
    once__entry_t entry;
    int status;
    pid_t child;

    assert_int_equal(set_record(place->index, 1, slot, ONCE_STATE_PENDING), ONCE_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (once__index_attach(&second, &place->config, NULL) != ONCE_OK ||
            !get_record(second, 1, &entry)) {
            _exit(1);
        }
        for (uint64_t n = 2; n < 60000; n++) { /* grows beyond what was there */
            if (set_record(second, n, slot, ONCE_STATE_COMPLETED) != ONCE_OK) {
                _exit(2);
            }
        }
        _exit(once__index_identity(second) == once__index_identity(place->index) ? 0 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (uint64_t n = 2; n < 60000; n++) {
        assert_true(get_record(place->index, n, &entry) && entry.state == ONCE_STATE_COMPLETED);
    }
}

static void only_under_its_name(void **state)
{
    place_t *place = *state;
    once__index_t *fresh;

    once__index_remove(place->index);
    assert_int_equal(attach(&place->config), ONCE_E_NOT_FOUND);
    assert_int_equal(once__index_is_named(place->index), 1); /* nothing else has its name */
    assert_int_equal(once__index_create(&fresh, &place->config, NULL), ONCE_OK);
    assert_int_equal(attach(&place->config), ONCE_E_NOT_FOUND);
    assert_int_equal(count_files(place, ".new"), 1);
    once__index_close(fresh);
    assert_int_equal(count_files(place, ".new"), 0);
    assert_int_equal(once__index_create(&fresh, &place->config, NULL), ONCE_OK);
    assert_int_equal(once__index_publish(fresh, NULL), ONCE_OK);
    assert_int_equal(attach(&place->config), ONCE_OK);
    assert_int_equal(once__index_is_named(fresh), 1);
    assert_int_equal(once__index_is_named(place->index), 0); /* replaced */
    assert_true(once__index_identity(fresh) != once__index_identity(place->index));
    once__index_remove(place->index); /* not its name any more */
    assert_int_equal(attach(&place->config), ONCE_OK);
    once__index_close(fresh);
}

static void published_over_another(void **state)
{
    place_t *place = *state;
    once__index_t *fresh;

    assert_int_equal(once__index_create(&fresh, &place->config, NULL), ONCE_OK);
    assert_int_equal(once__index_is_named(place->index), 1);
    assert_int_equal(once__index_publish(fresh, NULL), ONCE_OK);
    assert_int_equal(once__index_is_named(place->index), 0);
    assert_int_equal(count_files(place, ""), 1);
    once__index_close(fresh);
}

/* A copy of a store has the same id. Both can be used at once, each with its own index. */
static void a_copy_has_its_own(void **state)
{
    place_t *place = *state;
    once__index_config_t config = place->config;
    once__index_t *copy;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/copy", place->base);
    make_store(path, &config.store_fd);
    config.store = path;
    assert_int_equal(attach(&config), ONCE_E_NOT_FOUND);
    assert_int_equal(once__index_create(&copy, &config, NULL), ONCE_OK);
    assert_int_equal(once__index_publish(copy, NULL), ONCE_OK);
    assert_int_equal(once__index_is_named(place->index), 1);
    assert_int_equal(attach(&place->config), ONCE_OK);
    assert_int_equal(attach(&config), ONCE_OK);
    once__index_close(copy);
    (void)close(config.store_fd);
}

static void of_this_process_alone(void **state)
{
    once__index_config_t config = {.directory = NULL, .store = "/", .store_fd = -1};
    once__index_t *index, *other;
    once__entry_t entry;
    uint32_t slot;

    (void)state;
    assert_int_equal(once__index_create(&index, &config, NULL), ONCE_OK);
    assert_int_equal(once__index_publish(index, NULL), ONCE_OK);
    assert_int_equal(once__index_attach(&other, &config, NULL), ONCE_E_NOT_FOUND);
    slot = new_segment(index, ONCE__SEGMENT_ACTIVE);
    for (uint64_t n = 0; n < 100000; n++) {
        assert_int_equal(set_record(index, n, slot, ONCE_STATE_PENDING), ONCE_OK);
    }
    for (uint64_t n = 0; n < 100000; n++) {
        assert_int_equal(get_record(index, n, &entry), 1);
    }
    assert_int_equal(once__index_is_named(index), 1);
    once__index_remove(index);
    once__index_close(index);
}

/* --------------------------------------------------------------------------------------------------------- refusing */

/* Changes bytes of the file, attaches, and puts them back. */
static int attach_changed(const place_t *place, size_t at, const void *bytes, size_t len)
{
    uint8_t before[64];
    char path[256];
    int fd, code;

    path_of(place, path);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0 && len <= sizeof(before));
    assert_int_equal(pread(fd, before, len, (off_t)at), (ssize_t)len);
    assert_int_equal(pwrite(fd, bytes, len, (off_t)at), (ssize_t)len);
    code = attach(&place->config);
    assert_int_equal(pwrite(fd, before, len, (off_t)at), (ssize_t)len);
    (void)close(fd);
    return code;
}

static void of_another_kind(void **state)
{
#define FIELD(field, text)                                                                         \
    {                                                                                              \
        offsetof(once__index_header_t, field), text                                                \
    }
    static const struct {
        size_t at;
        const char *why;
    } fields[] = {
        FIELD(label.magic, "not an index"),
        FIELD(label.abi[0], "another version"),
        FIELD(label.abi[1], "another version"),
        FIELD(label.abi[2], "another C library"),
        FIELD(label.abi[5], "another C library"),
        FIELD(label.abi[6], "another container"),
        FIELD(label.abi[7], "another container"),
        FIELD(label.store_id, "another store"),
        FIELD(label.boot_id, "another store"),
        FIELD(label.device, "another store"),
        FIELD(label.inode, "another store"),
        FIELD(end, "damaged"),
        FIELD(view, "damaged"),
        FIELD(slot_end, "damaged"),
        FIELD(slot_limit, "damaged"),
        FIELD(shards[5].table, "damaged"),
        FIELD(segments[0].buffer, "damaged"),
    };
    static const uint8_t other[4] = {0xee, 0xee, 0xee, 0xee};
    place_t *place = *state;

    (void)new_segment(place->index, ONCE__SEGMENT_ACTIVE);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        assert_int_equal(attach_changed(place, fields[i].at, other, sizeof(other)),
                         ONCE_E_NOT_FOUND);
        if (strstr(said, fields[i].why) == NULL) {
            fail_msg("expected '%s': %s", fields[i].why, said);
        }
        assert_int_equal(attach(&place->config), ONCE_OK);
    }
}

static void of_another_boot_or_store(void **state)
{
    place_t *place = *state;
    once__index_config_t config = place->config;

    config.boot_id[0] ^= 1;
    assert_int_equal(attach(&config), ONCE_E_NOT_FOUND);
    config = place->config;
    config.boot_id[15] ^= 1; /* not part of the name */
    assert_int_equal(attach(&config), ONCE_E_NOT_FOUND);
    config = place->config;
    config.store_id[3] ^= 1;
    assert_int_equal(attach(&config), ONCE_E_NOT_FOUND);
}

static void not_ours_alone(void **state)
{
    place_t *place = *state;
    char path[256], other[256];

    path_of(place, path);
    (void)snprintf(other, sizeof(other), "%s/other", place->base);
    assert_int_equal(chmod(path, 0660), 0);
    assert_int_equal(attach(&place->config), ONCE_E_CONFIG);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(link(path, other), 0);
    assert_int_equal(attach(&place->config), ONCE_E_CONFIG);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(attach(&place->config), ONCE_OK);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(attach(&place->config), ONCE_E_CONFIG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(attach(&place->config), ONCE_E_CONFIG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(other, path), 0);
    place->config.owner = 4711;
    assert_int_equal(attach(&place->config), ONCE_OK); /* ours */
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 4712, 0), 0);
        assert_int_equal(attach(&place->config), ONCE_E_CONFIG);
        place->config.owner = 4712; /* root may, at the store of another user */
        assert_int_equal(attach(&place->config), ONCE_OK);
    }
}

/* As root: the index belongs to the owner of the store. */
static void made_for_the_owner(void **state)
{
    place_t *place = *state;
    once__index_t *index;
    struct stat st;

    place->config.owner = geteuid() == 0 ? 4711 : geteuid();
    assert_int_equal(once__index_create(&index, &place->config, NULL), ONCE_OK);
    assert_int_equal(fstat(index->fd, &st), 0);
    assert_int_equal(st.st_uid, place->config.owner);
    assert_int_equal(st.st_mode & 07777, 0600);
    once__index_close(index);
}

static void cut_short(void **state)
{
    place_t *place = *state;
    uint32_t slot = new_segment(place->index, ONCE__SEGMENT_ACTIVE);
    char path[256];
    struct stat st;

    path_of(place, path);
    for (uint64_t n = 0; n < 40000; n++) {
        assert_int_equal(set_record(place->index, n, slot, ONCE_STATE_COMPLETED), ONCE_OK);
    }
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(once__index_is_named(place->index), 1);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    assert_int_equal(once__index_is_named(place->index), 0);
    once__index_close(place->index);
    place->index = NULL;
    for (off_t size = st.st_size - 1; size > 0; size /= 3) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(attach(&place->config), ONCE_E_NOT_FOUND);
        assert_int_equal(truncate(path, st.st_size), 0); /* what was cut off is zero now */
        if ((size_t)size < offsetof(once__index_header_t, first_tables)) {
            assert_int_equal(attach(&place->config), ONCE_E_NOT_FOUND);
        }
    }
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(attach(&place->config), ONCE_E_NOT_FOUND);
}

static void not_in_a_tmpfs(void **state)
{
    place_t *place = *state;
    once__index_t *index;
    once_error_t err;

    place->config.directory = "/proc";
    assert_int_equal(once__index_create(&index, &place->config, &err), ONCE_E_CONFIG);
    assert_non_null(strstr(err.text, "not a tmpfs"));
    assert_int_equal(attach(&place->config), ONCE_E_CONFIG);
    place->config.directory = "/proc/nothing";
    assert_int_equal(once__index_create(&index, &place->config, &err), ONCE_E_CONFIG);
    assert_int_equal(attach(&place->config), ONCE_E_CONFIG);
}

/* ---------------------------------------------------------------------------------------------- without a store */

/* An index of a store at `path`, which is not used by anybody. */
static void leave_index(const place_t *place, const char *path, uint8_t id, int publish)
{
    once__index_config_t config = place->config;
    once__index_t *index;
    pid_t child;
    int status;

    make_store(path, &config.store_fd);
    config.store = path;
    config.store_id[0] = id;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* killed: its lock is gone, the file stays */
        if (once__index_create(&index, &config, NULL) == ONCE_OK &&
            (!publish || once__index_publish(index, NULL) == ONCE_OK)) {
            (void)kill(getpid(), SIGKILL);
        }
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    (void)close(config.store_fd);
}

static void remove_store(const char *path)
{
    char segments[256];

    (void)snprintf(segments, sizeof(segments), "%s/segments", path);
    assert_int_equal(rmdir(segments), 0);
    assert_int_equal(rmdir(path), 0);
}

static void orphans_are_removed(void **state)
{
    place_t *place = *state;
    once__index_config_t config = place->config;
    once__index_t *used, *index;
    char gone[128], stays[128], moved[128], path[256];
    int others = 0;

    (void)snprintf(gone, sizeof(gone), "%s/gone", place->base);
    (void)snprintf(stays, sizeof(stays), "%s/stays", place->base);
    (void)snprintf(moved, sizeof(moved), "%s/moved", place->base);
    leave_index(place, gone, 1, 1);
    leave_index(place, stays, 2, 1);
    leave_index(place, moved, 3, 0);
    assert_int_equal(count_files(place, ""), 4);
    assert_int_equal(count_files(place, ".new"), 1);
    remove_store(gone);
    remove_store(moved);
    /* One that is used, of a store that went: it stays. */
    make_store(moved, &config.store_fd);
    config.store = moved;
    config.store_id[0] = 4;
    assert_int_equal(once__index_create(&used, &config, NULL), ONCE_OK);
    assert_int_equal(once__index_publish(used, NULL), ONCE_OK);
    remove_store(moved);
    if (geteuid() == 0) { /* of another user */
        (void)snprintf(path, sizeof(path), "%s/once-%032x-%016x.new", place->base, 1, 1);
        assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
        assert_int_equal(chown(path, 4711, 0), 0);
        others = 1;
    }
    /* A name that is not quite one. */
    (void)snprintf(path, sizeof(path), "%s/once-%032x-%016xx", place->base, 1, 1);
    assert_int_equal(symlink("/nowhere", path), 0);

    assert_int_equal(once__index_create(&index, &place->config, NULL), ONCE_OK);
    assert_int_equal(count_files(place, ".new"), 1 + others); /* and ours */
    assert_int_equal(count_files(place, ""),
                     5 + others); /* place's, stays, used, ours, the symbolic link */
    once__index_close(index);
    once__index_close(used);
    assert_int_equal(once__index_create(&index, &place->config, NULL), ONCE_OK);
    once__index_close(index);
    assert_int_equal(count_files(place, ""), 3 + others);
    assert_int_equal(attach(&place->config), ONCE_OK);
    (void)close(config.store_fd);
}

/* ---------------------------------------------------------------------------------------------------------- no room */

/* Runs in a child with this limit. The child's status. */
static int with_limit(int resource, rlim_t limit, int (*run)(place_t *), place_t *place)
{
    struct rlimit both = {limit, limit};
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        _exit(setrlimit((__rlimit_resource_t)resource, &both) == 0 ? run(place) : 99);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int create_is_full(place_t *place)
{
    once__index_t *index;
    once_error_t err;

    return once__index_create(&index, &place->config, &err) == ONCE_E_FULL &&
                   strstr(err.text, "index=DIR") != NULL
               ? 0
               : 1;
}

/* New keys are refused one after the other; the old ones stay. */
static int fill(place_t *place)
{
    uint32_t slot = new_segment(place->index, ONCE__SEGMENT_ACTIVE);
    uint64_t n = 0, more;
    once__entry_t entry;

    while (n < 1000000 && set_record(place->index, n, slot, ONCE_STATE_PENDING) == ONCE_OK) {
        n++;
    }
    if (n == 1000000 || once__index_take_pages(place->index, 1000, ONCE__INDEX_WAIT_MS) != 0) {
        return 1;
    }
    for (more = n; more < n + 1000; more++) {
        (void)set_record(place->index, more, slot, ONCE_STATE_PENDING);
    }
    for (uint64_t i = 0; i < n; i++) {
        if (!get_record(place->index, i, &entry) ||
            set_record(place->index, i, slot, ONCE_STATE_COMPLETED) != ONCE_OK) {
            return 2;
        }
    }
    for (uint64_t i = 0; i < n; i += 2) { /* and room comes back */
        forget_record(place->index, i);
    }
    for (uint64_t i = 0; i < n; i += 4) {
        if (set_record(place->index, i, slot, ONCE_STATE_COMPLETED) != ONCE_OK) {
            return 3;
        }
    }
    return 0;
}

static void a_limit_of_file_size_is_an_error(void **state)
{
    place_t *place = *state;

    assert_int_equal(with_limit(RLIMIT_FSIZE, 100000, create_is_full, place), 0);
    assert_int_equal(
        with_limit(RLIMIT_FSIZE, sizeof(once__index_header_t) - 1, create_is_full, place), 0);
    assert_int_equal(count_files(place, ".new"), 0);
    assert_int_equal(
        with_limit(RLIMIT_FSIZE, sizeof(once__index_header_t) + (8 << 20), fill, place), 0);
}

/* Mounts a tmpfs of 3 MiB in a namespace of its own. 1, or 0: that is not allowed here. */
static int mount_small(const char *path)
{
    return (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("small", path, "tmpfs", 0, "size=3m,mode=700") == 0;
}

static int fill_small(place_t *place)
{
    if (!mount_small(place->base)) {
        place->index->map->view = sizeof(once__index_header_t) + (2 << 20); /* the nearest to it */
        return fill(place);
    }
    place->config.owner = geteuid();
    if (once__index_create(&place->index, &place->config, NULL) != ONCE_OK) {
        return 10;
    }
    return fill(place);
}

/* The pages that are in use have memory; others are refused. Never a signal. */
static void a_full_tmpfs_is_an_error(void **state)
{
    assert_int_equal(with_limit(RLIMIT_CORE, 0, fill_small, *state), 0);
}

static rlim_t addresses_used(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    (void)fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static int attach_small(place_t *place)
{
    once__index_t *index;
    once__entry_t entry;

    if (once__index_attach(&index, &place->config, NULL) != ONCE_OK) {
        return 1;
    }
    return get_record(index, 7, &entry) && index->view == (uint64_t)1 << 30 ? 0 : 2;
}

static int attach_is_too_large(place_t *place)
{
    once__index_t *index;
    once_error_t err;

    return once__index_attach(&index, &place->config, &err) == ONCE_E_NOMEM &&
                   strstr(err.text, "ulimit -v") != NULL
               ? 0
               : 1;
}

/* A process that may map less makes do with that, and no other makes the index larger than it can see. */
static void few_addresses(void **state)
{
    place_t *place = *state;
    uint32_t slot = new_segment(place->index, ONCE__SEGMENT_ACTIVE);
    rlim_t used = addresses_used();

    assert_int_equal(set_record(place->index, 7, slot, ONCE_STATE_PENDING), ONCE_OK);
    assert_int_equal(place->index->map->view, ONCE__INDEX_VIEW);
    assert_int_equal(with_limit(RLIMIT_AS, used + ((rlim_t)2 << 30), attach_small, place), 0);
    assert_int_equal(place->index->map->view, (uint64_t)1 << 30);
    assert_int_equal(
        once__index_take_pages(place->index, (1u << 30) / ONCE__INDEX_PAGE, ONCE__INDEX_WAIT_MS),
        0);
    assert_int_equal(with_limit(RLIMIT_AS, used + ((rlim_t)100 << 20), attach_is_too_large, place),
                     0);
}

static _Atomic int makers = 1;

/* Makes indexes of a store of its own, one after the other. */
static void *make_many(void *data)
{
    const place_t *place = data;
    once__index_config_t config = place->config;
    uintptr_t failed = 0;

    memset(config.store_id, atomic_fetch_add(&makers, 1), sizeof(config.store_id));
    for (int i = 0; i < 500 && failed == 0; i++) {
        once__index_t *index = NULL;
        failed = once__index_create(&index, &config, NULL) != ONCE_OK ||
                 once__index_publish(index, NULL) != ONCE_OK;
        once__index_close(index);
    }
    return (void *)failed;
}

/* One that is being made is not taken for an orphan by those that make others. */
static void made_beside_others(void **state)
{
    pthread_t threads[4];

    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, *state), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_index, teardown_index)
    const struct CMUnitTest tests[] = {
        TEST(others_see_the_same),
        TEST(only_under_its_name),
        TEST(published_over_another),
        TEST(a_copy_has_its_own),
        cmocka_unit_test(of_this_process_alone),
        TEST(of_another_kind),
        TEST(of_another_boot_or_store),
        TEST(not_ours_alone),
        TEST(made_for_the_owner),
        TEST(cut_short),
        TEST(not_in_a_tmpfs),
        TEST(orphans_are_removed),
        TEST(made_beside_others),
        TEST(a_limit_of_file_size_is_an_error),
        TEST(a_full_tmpfs_is_an_error),
        TEST(few_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
