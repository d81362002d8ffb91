#include "checking.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "records.h"

/* ---------------------------------------------------------------------------------------------------------- bytes */

bytes_t read_bytes(const char *path)
{
    bytes_t bytes = {0};
    struct stat st;
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    bytes.len = (size_t)st.st_size;
    bytes.data = malloc(bytes.len + 1);
    assert_int_equal(read(fd, bytes.data, bytes.len), st.st_size);
    close(fd);
    return bytes;
}

void write_bytes(const char *path, const bytes_t *bytes)
{
    int fd = open(path, O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes->len), 0);
    assert_int_equal(pwrite(fd, bytes->data, bytes->len, 0), (ssize_t)bytes->len);
    close(fd);
}

const char *segment(const place_t *place, uint64_t number)
{
    char name[48];

    snprintf(name, sizeof(name), "segments/%016llx.log", (unsigned long long)number);
    return inside(place, name);
}

uint64_t find_frame(const place_t *place, uint64_t number, int n, once__frame_t *frame)
{
    static bytes_t bytes;
    once__segment_header_t header;
    uint64_t at;

    free(bytes.data);
    bytes = read_bytes(segment(place, number));
    assert_int_equal(once__segment_header_read(&header, bytes.data, bytes.len), ONCE_OK);
    at = once__segment_start(header.dictionary_len);
    while (once__frame_read(frame, header.word, at, bytes.data + at, bytes.len - at) ==
               ONCE__FRAME_OK &&
           n-- != 0) {
        at += frame->size;
    }
    return at;
}

uint64_t last_segment(const place_t *place)
{
    DIR *stream = opendir(inside(place, "segments"));
    const struct dirent *entry;
    uint64_t last = 0;

    while ((entry = readdir(stream)) != NULL) {
        unsigned long long number;
        if (strstr(entry->d_name, ".log") != NULL &&
            sscanf(entry->d_name, "%16llx", &number) == 1 && number > last) {
            last = number;
        }
    }
    closedir(stream);
    return last;
}

/* ---------------------------------------------------------------------------------------------------------- stores */

void complete_many(once_t *once, const char *prefix, int count)
{
    char body[1000]; /* a few dozen fill a small segment */

    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof(key), "%s%d", prefix, i);
        make_unlike(body, sizeof(body), (unsigned)i);
        make_completed(once, "s", key, body);
    }
}

int count_completed(const place_t *place, const char *prefix, int count)
{
    once_t *once = open_store(place->url);
    int found = 0;

    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof(key), "%s%d", prefix, i);
        found += state_of(once, "s", key) == ONCE_STATE_COMPLETED;
    }
    once_close(once, -1);
    return found;
}

void make_many(place_t *place)
{
    once_t *once;

    place_make(place, "?segment=64k&compress=off");
    once = open_store(place->url);
    complete_many(once, "k", MANY);
    once_close(once, -1);
    assert_true(last_segment(place) >= 3);
}

run_t fsck(const place_t *place)
{
    return run("fsck", place->url, NULL);
}

void assert_in_order(const place_t *place)
{
    run_t r = fsck(place);

    assert_run(r, ONCE__CLI_OK);
    assert_string_equal(r.err, "");
    run_free(&r);
}

json_t *fsck_json(const place_t *place, int expected)
{
    run_t r = run("fsck", place->url, "--json", NULL);
    json_t *report;

    assert_run(r, expected);
    assert_int_equal(count_lines(r.out), 1);
    report = json_line(r.out, 0);
    run_free(&r);
    return report;
}

void repair(const place_t *place, const char *told)
{
    run_t r = run("fsck", place->url, "--repair", NULL);

    assert_run(r, ONCE__CLI_OK);
    assert_has(r.out, told);
    assert_has(r.out, "repaired");
    run_free(&r);
    assert_in_order(place);
}

int hold(int ready, int until, void *data)
{
    const place_t *place = data;
    once_t *once = open_store(place->url);
    char byte;

    make_completed(once, "s", "held", "x");
    if (write(ready, "", 1) != 1) {
        return 1;
    }
    (void)!read(until, &byte, 1);
    once_close(once, -1);
    return 0;
}
