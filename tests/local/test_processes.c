/*
 * Processes that write to one store, start and stop, and are killed at any moment. What any of them was answered is there
 * afterwards, in the index as it is and in one made anew from the segments; and run was never answered twice for one epoch.
 *
 * ONCE_SOAK_SECONDS: for how long; 8 otherwise.
 */
#include "disk.h"

#include "support/testing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <once/local.h>

#include "base/bytes.h"
#include "store/crc32c.h"

#define WRITERS   5
#define IN_FLIGHT 8
#define UNIVERSE  40000u
#define FLEETING  500u /* keys that expire at once */
#define EPOCHS    24u
#define QUERY     "segment=256k&renew=off&reap=100ms&store_timeout=60s"
#define LASTING   "ttl=10d lease=400ms"
#define SHORT     "ttl=1s lease=50ms"

/* What was answered, written down by the process that got the answer. */
typedef struct witness {
    _Atomic uint8_t runs[EPOCHS]; /* for each epoch */
    _Atomic uint64_t done;        /* epoch and sum of the completed response; 0: never answered */
    _Atomic uint64_t replayed;    /* likewise */
} witness_t;

typedef struct shared {
    _Atomic int stop[WRITERS];
    _Atomic uint32_t fresh;   /* the next key that nobody used */
    _Atomic uint32_t allowed; /* how many may be used by now: they are to last until the end */
    _Atomic uint64_t pairs, replays, busy, lost, takeovers;
    witness_t keys[UNIVERSE];
} shared_t;

static shared_t *shared;
static char base[PLACE_SIZE], store[PLACE_SIZE];

/* ------------------------------------------------------------------------------------------------------------ writers */

typedef struct writer {
    once_t *once;
    dice_t dice;
    int number;
    unsigned under_way;
} writer_t;

typedef struct job {
    writer_t *writer;
    int active;
    uint32_t key; /* from UNIVERSE on: a fleeting one */
    uint32_t epoch, sum;
    once_claim_t *claim; /* at work with it */
    uint64_t due;        /* until then */
} job_t;

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static const char *name_of(uint32_t key, char out[32])
{
    (void)snprintf(out, 32, "%s-%06u", key < UNIVERSE ? "lasting" : "fleeting", key);
    return out;
}

/* The key's name again and again, with something in between that nobody can guess. */
static size_t make_body(writer_t *writer, uint32_t key, uint8_t out[4096])
{
    size_t len = 64 + dice_roll(&writer->dice, 900);
    char name[32];

    dice_fill(&writer->dice, out, len);
    (void)name_of(key, name);
    memcpy(out, name, strlen(name));
    return len;
}

static uint64_t fact(uint32_t epoch, uint32_t sum)
{
    return (uint64_t)epoch << 32 | sum;
}

static void end_job(job_t *job)
{
    job->active = 0;
    job->writer->under_way--;
}

static void on_done(once_t *once, once_answer_t *answer, void *data)
{
    job_t *job = data;
    told_t told = {0};

    told_from(&told, answer);
    if (told.error == ONCE_OK && told.outcome == ONCE_OUTCOME_DONE) {
        if (job->key < UNIVERSE) {
            must(shared->keys[job->key].done == 0, "a key was completed twice");
            shared->keys[job->key].done = fact(job->epoch, job->sum);
        }
        shared->pairs++;
    } else {
        must(told.error == ONCE_OK && told.outcome != ONCE_OUTCOME_ALREADY, "complete failed");
        shared->lost++;
    }
    end_job(job);
}

static void complete_job(job_t *job)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_claim_t *claim = job->claim;
    uint8_t body[4096];
    size_t len = make_body(job->writer, job->key, body);

    job->claim = NULL;
    job->sum = once__crc32c(0, body, len);
    response.body = once__slice(body, len);
    must(once_claim_complete(claim, &response, on_done, job) == ONCE_OK, "once_claim_complete");
}

/* Granted. Some take their time. */
static void run_job(job_t *job, once_claim_t *claim)
{
    job->epoch = once_claim_epoch(claim);
    job->claim = claim;
    if (job->key < UNIVERSE) {
        must(job->epoch < EPOCHS, "more epochs than there is room for");
        must(shared->keys[job->key].runs[job->epoch]++ == 0, "two were told run for one epoch");
        must(shared->keys[job->key].done == 0, "run after it was completed");
        shared->takeovers += job->epoch > 1;
    }
    if (dice_roll(&job->writer->dice, 8) == 0) {
        job->due = now_ms() + 30;
    } else {
        complete_job(job);
    }
}

/* The response must be of this key, and the same for everybody. */
static void check_replay(job_t *job, once_answer_t *answer, const told_t *told)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    char name[32];
    uint64_t seen = fact(told->epoch, told->body_sum), nobody = 0;

    must(once_record_response(once_answer_record(answer), &response) == ONCE_OK, "no response");
    (void)name_of(job->key, name);
    must(response.body.len >= 64 && memcmp(response.body.data, name, strlen(name)) == 0,
         "the response of another key");
    if (job->key < UNIVERSE) {
        witness_t *witness = &shared->keys[job->key];
        must(witness->done == 0 || witness->done == seen, "not what was completed");
        must(atomic_compare_exchange_strong(&witness->replayed, &nobody, seen) || nobody == seen,
             "not what was replayed before");
    }
    shared->replays++;
}

static void on_answer(once_t *once, once_answer_t *answer, void *data)
{
    job_t *job = data;
    told_t told = {0};

    told_from(&told, answer);
    if (told.error != ONCE_OK) {
        (void)fprintf(stderr, "ask: %s\n", once_error_text(told.error));
        must(0, "ask failed");
    }
    if (told.outcome == ONCE_OUTCOME_RUN) {
        run_job(job, told.claim);
        return;
    }
    if (told.outcome == ONCE_OUTCOME_REPLAY) {
        check_replay(job, answer, &told);
    } else {
        must(told.outcome == ONCE_OUTCOME_BUSY, "an outcome that cannot be");
        shared->busy++;
    }
    end_job(job);
}

static uint32_t choose_key(writer_t *writer)
{
    uint32_t fresh = shared->fresh;

    switch (dice_roll(&writer->dice, 6)) {
    case 0:
        return UNIVERSE + (uint32_t)dice_roll(&writer->dice, FLEETING);
    case 1:
    case 2:
        if (fresh < shared->allowed) {
            fresh = shared->fresh++;
            return fresh < UNIVERSE ? fresh : 0;
        }
        return (uint32_t)dice_roll(&writer->dice, fresh + 1) % UNIVERSE;
    default: /* a recent one, which somebody else may be at */
        return (fresh - (uint32_t)dice_roll(&writer->dice, fresh < 3000 ? fresh + 1 : 3000)) %
               UNIVERSE;
    }
}

static void start_job(job_t *job)
{
    char name[32];

    job->key = choose_key(job->writer);
    job->active = 1;
    job->writer->under_way++;
    must(ask_later(job->writer->once, name_of(job->key, name),
                   job->key < UNIVERSE ? LASTING : SHORT, on_answer, job) == ONCE_OK,
         "once_begin");
}

static void write_until_stopped(int number, uint64_t seed)
{
    writer_t writer = {.number = number, .dice = {seed}};
    job_t jobs[IN_FLIGHT];
    once_error_t err = {0};

    if (place_try(store, QUERY, NULL, &writer.once, &err) != ONCE_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        must(0, "open");
    }
    memset(jobs, 0, sizeof(jobs));
    while (!shared->stop[number] || writer.under_way > 0) {
        for (size_t i = 0; i < IN_FLIGHT && !shared->stop[number]; i++) {
            jobs[i].writer = &writer;
            if (!jobs[i].active) {
                start_job(&jobs[i]);
            }
        }
        for (size_t i = 0; i < IN_FLIGHT; i++) {
            if (jobs[i].claim != NULL && now_ms() >= jobs[i].due) {
                complete_job(&jobs[i]);
            }
        }
        must(once_wait(writer.once, 5) >= 0, "once_wait");
    }
    must(once_close(writer.once, 10000) == ONCE_OK, "once_close");
    _exit(0);
}

/* ------------------------------------------------------------------------------------------------------------- parent */

static pid_t start_writer(int number, uint64_t seed)
{
    pid_t child;

    shared->stop[number] = 0;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        write_until_stopped(number, seed);
    }
    return child;
}

/* Ends a writer one way or the other. A writer never ends by itself: that would be what it found out. */
static void end_writer(int number, pid_t child, int killed)
{
    int status;

    if (killed) {
        (void)kill(child, SIGKILL);
    } else {
        shared->stop[number] = 1;
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL
               : !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("writer %d ended with %x", number, (unsigned)status);
    }
}

static void campaign(unsigned seconds, unsigned *kills, unsigned *stops)
{
    pid_t children[WRITERS];
    uint64_t start = now_ms(), end = start + (uint64_t)seconds * 1000;
    dice_t dice = {(uint64_t)time(NULL)};
    uint64_t seed = dice.state * 1000;

    print_message("seed %llu\n", (unsigned long long)dice.state);
    for (int i = 0; i < WRITERS; i++) {
        children[i] = start_writer(i, seed++);
    }
    while (now_ms() < end) {
        int which = (int)dice_roll(&dice, WRITERS), killed = dice_roll(&dice, 10) < 7;
        shared->allowed = (uint32_t)(UNIVERSE * (now_ms() - start) / (end - start));
        (void)usleep((useconds_t)dice_roll(&dice, 60000));
        end_writer(which, children[which], killed);
        *kills += (unsigned)killed;
        *stops += (unsigned)!killed;
        children[which] = start_writer(which, seed++);
    }
    for (int i = 0; i < WRITERS; i++) {
        end_writer(i, children[i], 1); /* all at once: nobody is left to tidy up */
    }
}

static void check_fsck(const char *when, int index);

static void check_all(const char *when)
{
    once_t *once = place_open(store, QUERY, NULL);
    unsigned found = 0;
    peek_t peek;

    for (uint32_t key = 0; key < UNIVERSE; key++) {
        const witness_t *witness = &shared->keys[key];
        uint64_t expected = witness->done != 0 ? witness->done : witness->replayed;
        char name[32];
        told_t told;
        if (expected == 0) {
            continue;
        }
        told = get(once, name_of(key, name));
        if (told.error != ONCE_OK || told.state != ONCE_STATE_COMPLETED ||
            fact(told.epoch, told.body_sum) != expected) {
            fail_msg("%s: %s was answered as completed in epoch %u, and is %s, epoch %u, error %d",
                     when, name, (unsigned)(expected >> 32), once_state_name(told.state),
                     told.epoch, told.error);
        }
        found++;
    }
    peek_open(&peek, store);
    assert_int_equal(peek_damaged(&peek), 0);
    peek_close(&peek);
    check_fsck(when, ONCE_LOCAL_INDEX_OK);
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    print_message("%s: %u completed records as they were answered\n", when, found);
    assert_true(found > 0);
}

static void tell_finding(const once_local_finding_t *finding, void *data)
{
    print_message("fsck: %s%s: %s\n", finding->harmless ? "harmless, " : "", finding->kind,
                  finding->text);
}

/* Whatever was killed where: the log is whole, and the index says what it says. */
static void check_fsck(const char *when, int index)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_error_t err = {0};
    char url[PLACE_SIZE + 8];

    (void)snprintf(url, sizeof(url), "local:%s", store);
    how.found = tell_finding;
    if (once_local_fsck(url, &how, &report, &err) != ONCE_OK) {
        fail_msg("%s: %s", when, err.text);
    }
    assert_int_equal(report.problems, 0);
    assert_int_equal(report.index, index);
    assert_int_equal(report.damaged + report.missing, 0);
    assert_true(report.completed > 0);
}

static void test_processes(void **state)
{
    const char *soak = getenv("ONCE_SOAK_SECONDS");
    unsigned kills = 0, stops = 0;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    place_make(base);
    place_join(store, base, "store");
    campaign(soak != NULL ? (unsigned)atoi(soak) : 8, &kills, &stops);
    print_message(
        "%u killed, %u stopped; %llu completed, %llu replayed, %llu busy, %llu taken over, "
        "%llu lost; %u segments\n",
        kills, stops, (unsigned long long)shared->pairs, (unsigned long long)shared->replays,
        (unsigned long long)shared->busy, (unsigned long long)shared->takeovers,
        (unsigned long long)shared->lost, place_count(store, "segments", ".log"));
    assert_true(kills > 10 && stops > 3);
    assert_true(shared->replays > 0 && shared->takeovers > 0);
    check_fsck("as it was left", ONCE_LOCAL_INDEX_LEFT);
    check_all("the index that was left");
    check_fsck("after it was used again",
               ONCE_LOCAL_INDEX_NONE); /* it went with the last process */
    check_all("an index made anew");
    place_remove(base);
    (void)munmap(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_processes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
