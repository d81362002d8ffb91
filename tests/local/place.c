#include "place.h"

#include "support/testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/job.h"
#include "base/bytes.h"
#include "base/url.h"
#include "store/crc32c.h"
#include "store/local/frame.h"
#include "store/local/local.h"
#include "store/local/log.h"

/* ------------------------------------------------------------------------------------------------------------- files */

void place_make(char path[PLACE_SIZE])
{
    const char *in = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    (void)snprintf(path, PLACE_SIZE, "%s/once-test-XXXXXX", in);
    assert_non_null(mkdtemp(path));
}

static void copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    char bytes[65536];
    ssize_t n;

    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, bytes, sizeof(bytes))) > 0) {
        assert_int_equal(write(out, bytes, (size_t)n), n);
    }
    assert_int_equal(n, 0);
    (void)close(in);
    (void)close(out);
}

void place_copy(const char *from, const char *to)
{
    DIR *directory = opendir(from);
    const struct dirent *entry;

    assert_non_null(directory);
    assert_int_equal(mkdir(to, 0700), 0);
    while ((entry = readdir(directory)) != NULL) {
        char source[PLACE_SIZE], target[PLACE_SIZE];
        struct stat st;
        if (entry->d_name[0] == '.') {
            continue;
        }
        place_join(source, from, entry->d_name);
        place_join(target, to, entry->d_name);
        assert_int_equal(lstat(source, &st), 0);
        if (S_ISDIR(st.st_mode)) {
            place_copy(source, target);
        } else {
            copy_file(source, target);
        }
    }
    (void)closedir(directory);
}

unsigned place_count(const char *store, const char *folder, const char *suffix)
{
    char path[PLACE_SIZE];
    DIR *directory;
    const struct dirent *entry;
    unsigned count = 0;

    place_join(path, store, folder);
    directory = opendir(path);
    if (directory == NULL) {
        return 0;
    }
    while ((entry = readdir(directory)) != NULL) {
        size_t len = strlen(entry->d_name), tail = strlen(suffix);
        count += entry->d_name[0] != '.' && len >= tail &&
                 strcmp(entry->d_name + len - tail, suffix) == 0;
    }
    (void)closedir(directory);
    return count;
}

/* ----------------------------------------------------------------------------------------------------------- handles */

static int open_over(once__url_t *url, const once__disk_t *disk, once_t **handle, once_error_t *err)
{
    once_options_t options;
    once__store_config_t config = {.path = url->path, .url = url};
    once__store_t *store;
    int code;

    once__options_init(&options);
    code = once__options_from_url(&options, url, err);
    if (code != ONCE_OK) {
        return code;
    }
    config.timeout_ms = options.store_timeout_ms;
    config.loop = once__loop_new(&once__real_env, &code);
    assert_non_null(config.loop);
    code = once__local_open(&config, disk != NULL ? disk : &once__real_disk, &store, err);
    if (code != ONCE_OK) {
        once__loop_free(config.loop);
        return code;
    }
    assert_null(once__url_untaken(url));
    return once__open_over(config.loop, store, &options, handle, err);
}

int place_try(const char *path, const char *query, const once__disk_t *disk, once_t **handle,
              once_error_t *err)
{
    char text[2 * PLACE_SIZE];
    once__url_t url;
    int code;

    *handle = NULL;
    (void)snprintf(text, sizeof(text), "local:%s?%s", path, query != NULL ? query : "");
    assert_int_equal(once__url_parse(&url, "store URL", text, 0, err), ONCE_OK);
    code = open_over(&url, disk, handle, err);
    once__url_free(&url);
    return code;
}

once_t *place_open(const char *path, const char *query, const once__disk_t *disk)
{
    once_error_t err = {0};
    once_t *once;

    if (place_try(path, query, disk, &once, &err) != ONCE_OK) {
        fail_msg("%s: %s", path, err.text);
    }
    return once;
}

void peek_open(peek_t *peek, const char *path)
{
    once__directory_config_t config = {.path = path};
    once_error_t err = {0};

    if (once__directory_look(&peek->directory, &config, 0, &err) != ONCE_OK) {
        fail_msg("%s: %s", path, err.text);
    }
    peek->index = peek->directory.log.index;
    assert_non_null(peek->index);
}

void peek_close(peek_t *peek)
{
    once__directory_abandon(&peek->directory);
}

void peek_set_now(const peek_t *peek, uint64_t now)
{
    once__index_set_clock(peek->index, once__index_clock(peek->index) +
                                           (int64_t)(now - once__index_now(peek->index)));
}

unsigned peek_count(const peek_t *peek, once__segment_state_t state)
{
    unsigned count = 0;

    for (uint32_t slot = 0; slot < once__index_slot_end(peek->index); slot++) {
        count += atomic_load(&once__index_segment(peek->index, slot)->state) == (uint32_t)state;
    }
    return count;
}

unsigned peek_damaged(const peek_t *peek)
{
    unsigned count = 0;

    for (uint32_t slot = 0; slot < once__index_slot_end(peek->index); slot++) {
        count += atomic_load(&once__index_segment(peek->index, slot)->damaged) != 0;
    }
    return count;
}

unsigned peek_dropped(const peek_t *peek)
{
    once__manifest_t manifest;
    unsigned count;

    assert_int_equal(once__manifest_read(&manifest, &peek->directory.log), ONCE_OK);
    count = (unsigned)manifest.dropped_count;
    once__manifest_free(&manifest);
    return count;
}

void place_forget_index(const char *path)
{
    once__directory_config_t config = {.path = path};
    once__directory_t directory;
    once_error_t err = {0};

    assert_int_equal(once__directory_look(&directory, &config, LOCK_EX, &err), ONCE_OK);
    once__directory_forget_index(&directory);
    once__directory_abandon(&directory);
}

/* ---------------------------------------------------------------------------------------------------------- segments */

void place_segment(char out[PLACE_SIZE], const char *path, uint64_t number)
{
    char folder[PLACE_SIZE], name[ONCE__SEGMENT_NAME];

    place_join(folder, path, "segments");
    once__segment_name(name, number);
    place_join(out, folder, name);
}

size_t place_frames(const char *path, uint64_t number, place_frame_cb each, void *data)
{
    once__directory_config_t config = {.path = path};
    once__directory_t directory;
    once__image_t image = {0};
    once_error_t err = {0};
    once__walk_t walk;
    size_t count = 0;

    assert_int_equal(once__directory_look(&directory, &config, 0, &err), ONCE_OK);
    assert_int_equal(once__image_read(&image, &directory.log, number), ONCE_OK);
    once__walk_begin(&walk, &image, 0);
    while (once__walk_next(&walk) &&
           (walk.kind == ONCE__WALK_FRAME || walk.kind == ONCE__WALK_SEALED)) {
        each(data, walk.offset, &walk.frame);
        count++;
    }
    once__image_free(&image);
    once__directory_abandon(&directory);
    return count;
}

void place_flip(const char *path, uint64_t number, uint64_t bit)
{
    char file[PLACE_SIZE];
    uint8_t byte;
    int fd;

    place_segment(file, path, number);
    fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1 << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    (void)close(fd);
}

/* ------------------------------------------------------------------------------------------------------------ asking */

static int is_reapable(const once_record_t *record)
{
    static const once__event_t event = {.kind = ONCE__REAP};
    once__step_t step;

    once__step(&once__rules, &record->data.head, &event, record->now, &step);
    return step.outcome == ONCE_OUTCOME_DONE;
}

void told_from(told_t *told, once_answer_t *answer)
{
    const once_record_t *record = once_answer_record(answer);
    once_response_t response = ONCE_RESPONSE_INIT;

    told->error = once_answer_error(answer);
    told->outcome = once_answer_outcome(answer);
    told->claim = once_answer_take_claim(answer);
    if (record == NULL) {
        return;
    }
    told->state = once_record_state(record);
    told->epoch = once_record_epoch(record);
    memcpy(told->claim_id, once_record_claim_id(record), ONCE_CLAIM_ID_SIZE);
    told->status = once_record_status(record);
    told->lease_ms = once_record_lease_ms(record);
    told->reapable = is_reapable(record);
    once_record_token(record, told->token);
    if (told->state == ONCE_STATE_COMPLETED) {
        int code = once_record_response(record, &response);
        if (code == ONCE_OK) {
            told->body_len = response.body.len;
            told->body_sum = once__crc32c(0, response.body.data, response.body.len);
        } else {
            /* A caller that has just completed it is not sent its own response. */
            assert_int_equal(code, ONCE_E_NOT_FOUND);
            assert_int_equal(told->outcome, ONCE_OUTCOME_DONE);
        }
    }
}

static told_t tell(int code, once_answer_t *answer)
{
    told_t told = {.error = code};

    if (answer != NULL) {
        told_from(&told, answer);
        once_answer_free(answer);
    }
    return told;
}

static once_ask_t make_ask(const char *key, const once_policy_t *policy)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.key = once__slice(key, strlen(key));
    ask.method = once__slice("POST", 4);
    ask.target = once__slice("/", 1);
    ask.policy = policy;
    return ask;
}

static once_policy_t *make_policy(const char *text)
{
    once_policy_t *policy = once_policy_new();

    assert_non_null(policy);
    assert_int_equal(once_policy_parse(policy, text != NULL ? text : "", NULL), ONCE_OK);
    return policy;
}

told_t ask(once_t *once, const char *key, const char *policy_text)
{
    once_policy_t *policy = make_policy(policy_text);
    once_ask_t question = make_ask(key, policy);
    once_answer_t *answer = NULL;
    int code = once_begin_sync(once, &question, &answer);

    once_policy_free(policy);
    return tell(code, answer);
}

int ask_later(once_t *once, const char *key, const char *policy_text, once_cb cb, void *data)
{
    once_policy_t *policy = make_policy(policy_text);
    once_ask_t question = make_ask(key, policy);
    int code = once_begin(once, &question, cb, data);

    once_policy_free(policy);
    return code;
}

told_t complete(once_claim_t *claim, int status, const void *body, size_t len)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_answer_t *answer = NULL;
    int code;

    response.status = status;
    response.body = once__slice(body, len);
    code = once_claim_complete_sync(claim, &response, &answer);
    return tell(code, answer);
}

void do_with_body(once_t *once, const char *key, int status, size_t len)
{
    static uint8_t body[100000];
    told_t told = ask(once, key, "ttl=1h");
    dice_t dice = {len};

    dice_fill(&dice, body, len); /* so that it cannot be compressed */
    assert_int_equal(told.outcome, ONCE_OUTCOME_RUN);
    assert_int_equal(complete(told.claim, status, body, len).outcome, ONCE_OUTCOME_DONE);
}

told_t get(once_t *once, const char *key)
{
    uint8_t id[ONCE_ID_SIZE];
    once_answer_t *answer = NULL;
    int code = once_record_id_of(once, once__slice("", 0), once__slice(key, strlen(key)), id);

    while (code == ONCE_E_UNAVAILABLE && once_wait(once, 5000) >= 0) { /* for the secrets */
        code = once_record_id_of(once, once__slice("", 0), once__slice(key, strlen(key)), id);
    }
    assert_int_equal(code, ONCE_OK);
    code = once_record_get_sync(once, id, &answer);
    return tell(code, answer);
}

int reap(once_t *once, uint64_t *count)
{
    once_answer_t *answer = NULL;
    int code = once_store_reap_sync(once, 0, &answer);

    if (code == ONCE_OK && count != NULL) {
        *count = once_answer_count(answer);
    }
    once_answer_free(answer);
    return code;
}
