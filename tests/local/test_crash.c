/*
 * A scripted workload on the real store; at every sync, the machine crashes. What is left is opened again, and must hold
 * everything that had been answered, and of what had not been answered all or nothing.
 *
 * A crash between two syncs needs no case of its own: what was written until then is some of the sectors that are unsynced at the
 * next one.
 */
#include "disk.h"

#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"

#define KEYS    24
#define IMAGES  64
#define HANDLES 2
#define QUERY   "segment=64k&renew=off&reap=off"
#define MINUTE  ((uint64_t)60 * 1000)
#define STEPS   150 /* of one seed */

static const char *const policies[] = {
    "lease=10m ttl=1h recover=retry",
    "lease=10m ttl=1h recover=hold",
    "lease=10m ttl=5h recover=transactional",
};

typedef struct image {
    char path[PLACE_SIZE];
    uint64_t now;           /* of the store, at the crash */
    uint8_t answered[KEYS]; /* what the step asked of this key had been answered before the crash */
} image_t;

typedef struct world {
    uint64_t seed;
    char base[PLACE_SIZE], store[PLACE_SIZE];
    disk_t disk;
    peek_t peek;
    once_t *handles[HANDLES];
    dice_t dice, crash_dice;

    once_claim_t *claims[KEYS]; /* held */
    told_t before[KEYS], after[KEYS];
    uint8_t touched[KEYS]; /* by the present step */
    _Atomic uint8_t answered[KEYS];

    int armed;
    image_t images[IMAGES];
    size_t image_count;
    unsigned serial, crashes, step, steps[16];
} world_t;

static const char *name_of(size_t key, char out[32])
{
    (void)snprintf(out, 32, "key-%zu", key);
    return out;
}

static const char *policy_of(size_t key)
{
    return policies[key % 3];
}

/* ------------------------------------------------------------------------------------------------------------ crashes */

static void crash_now(disk_t *disk, void *data)
{
    world_t *world = data;

    for (unsigned i = 0; i < 2 && world->armed && world->image_count < IMAGES; i++) {
        image_t *image = &world->images[world->image_count];
        survival_t survival = i == 1                             ? SURVIVES_SOMETHING
                              : dice_roll(&world->crash_dice, 2) ? SURVIVES_NOTHING
                                                                 : SURVIVES_EVERYTHING;
        char name[32];
        (void)snprintf(name, sizeof(name), "crash-%u", world->serial++);
        place_join(image->path, world->base, name);
        image->now = once__index_now(world->peek.index);
        for (size_t key = 0; key < KEYS; key++) {
            image->answered[key] = world->answered[key];
        }
        disk_crash(disk, survival, &world->crash_dice, image->path);
        world->image_count++;
    }
}

/* Nothing, or what a reaper may take away. Only the index forgets that at once, the log keeps it for a while. */
static int is_gone(const told_t *told)
{
    return told->error == ONCE_E_NOT_FOUND || told->reapable;
}

static int same(const told_t *a, const told_t *b)
{
    if (is_gone(a) || is_gone(b)) {
        return is_gone(a) && is_gone(b);
    }
    return a->error == b->error && a->state == b->state && a->epoch == b->epoch &&
           a->status == b->status && memcmp(a->claim_id, b->claim_id, ONCE_CLAIM_ID_SIZE) == 0 &&
           a->body_len == b->body_len && a->body_sum == b->body_sum;
}

#define TEXT_SIZE 200

static const char *describe(const told_t *told, char out[TEXT_SIZE])
{
    int len = snprintf(out, TEXT_SIZE, "%s%s epoch %u claim ", once_error_name(told->error),
                       told->reapable ? ", reapable," : "", told->epoch);

    for (unsigned i = 0; i < 4; i++) {
        len += snprintf(out + len, TEXT_SIZE - (size_t)len, "%02x", told->claim_id[i]);
    }
    (void)snprintf(out + len, TEXT_SIZE - (size_t)len,
                   " %s, lease %llu ms, status %d, body of %zu bytes %08x",
                   once_state_name(told->state), (unsigned long long)told->lease_ms, told->status,
                   told->body_len, told->body_sum);
    return out;
}

static void check_key(const world_t *world, const image_t *image, once_t *once, size_t key)
{
    char name[32];
    told_t told = get(once, name_of(key, name));
    int may_be_old = world->touched[key] && !image->answered[key];

    if (!same(&told, &world->after[key]) && !(may_be_old && same(&told, &world->before[key]))) {
        char is[TEXT_SIZE], before[TEXT_SIZE], after[TEXT_SIZE];
        fail_msg(
            "seed %llu (repeat it with ONCE_SEED=%llu), step %u, %s: %s\n  is     %s\n"
            "  was    %s\n  became %s\n  asked for in this step: %d, answered before the crash: %d",
            (unsigned long long)world->seed, (unsigned long long)world->seed, world->step,
            image->path, name, describe(&told, is), describe(&world->before[key], before),
            describe(&world->after[key], after), world->touched[key], image->answered[key]);
    }
}

/* Asks as a client would: what was granted is not granted again, and an answer stays the answer. */
static void check_ask(once_t *once, size_t key)
{
    char name[32];
    told_t is = get(once, name_of(key, name));
    told_t told = ask(once, name, policy_of(key));

    assert_int_equal(told.error, ONCE_OK);
    if (is.state == ONCE_STATE_COMPLETED) {
        assert_int_equal(told.outcome, ONCE_OUTCOME_REPLAY);
        assert_true(told.body_len == is.body_len && told.body_sum == is.body_sum);
    } else if (is.state == ONCE_STATE_PENDING && is.lease_ms > 0) {
        assert_int_equal(told.outcome, ONCE_OUTCOME_BUSY);
    } else if (told.outcome == ONCE_OUTCOME_RUN) {
        assert_int_equal(once_claim_epoch(told.claim), is.epoch + 1);
    }
    if (told.claim != NULL) {
        once_claim_drop(told.claim);
    }
}

static once_t *open_image(const image_t *image, peek_t *peek)
{
    once_t *once = place_open(image->path, QUERY, NULL);

    peek_open(peek, image->path);
    peek_set_now(peek, image->now);
    assert_int_equal(peek_damaged(peek), 0); /* a crash tears, but it damages nothing */
    return once;
}

static void check_image(world_t *world, const image_t *image)
{
    peek_t peek;
    once_t *once = open_image(image, &peek);
    told_t extra;

    for (size_t key = 0; key < KEYS; key++) {
        check_key(world, image, once, key);
    }
    if (dice_roll(&world->dice, 4) == 0) {
        /* Life goes on, and ends again: the torn tail must stay cut. */
        extra = ask(once, "extra", NULL);
        assert_int_equal(extra.outcome, ONCE_OUTCOME_RUN);
        extra = complete(extra.claim, 201, "extra", 5);
        assert_int_equal(extra.outcome, ONCE_OUTCOME_DONE);
        peek_close(&peek);
        assert_int_equal(once_close(once, 5000), ONCE_OK); /* its index is gone with it */
        once = open_image(image, &peek);
        for (size_t key = 0; key < KEYS; key++) {
            check_key(world, image, once, key);
        }
        extra = get(once, "extra");
        assert_int_equal(extra.status, 201);
    }
    for (size_t i = 0; i < 4; i++) {
        check_ask(once, dice_roll(&world->dice, KEYS));
    }
    peek_close(&peek);
    (void)once_close(once, 0);
    place_remove(image->path);
    world->crashes++;
}

/* -------------------------------------------------------------------------------------------------------------- steps */

static once_t *any_handle(world_t *world)
{
    return world->handles[dice_roll(&world->dice, HANDLES)];
}

static size_t body_size(world_t *world)
{
    switch (dice_roll(&world->dice, 12)) {
    case 0:
        return 0;
    case 1:
        return 100000; /* larger than a segment */
    case 2:
        return 30000;
    default:
        return dice_roll(&world->dice, 2000);
    }
}

/* Most are like others but for a few bytes: what is alike is stored once. */
static void make_body(world_t *world, uint8_t *body, size_t len)
{
    dice_t same = {7};

    dice_fill(dice_roll(&world->dice, 3) == 0 ? &world->dice : &same, body, len);
    for (size_t at = 0; at + 8 < len; at += 200 + dice_roll(&world->dice, 200)) {
        dice_fill(&world->dice, body + at, 8);
    }
}

static void answered(world_t *world, size_t key)
{
    world->answered[key] = 1;
}

static void drop_claim(world_t *world, size_t key)
{
    if (world->claims[key] != NULL) {
        once_claim_drop(world->claims[key]);
        world->claims[key] = NULL;
    }
}

static void do_ask(world_t *world, size_t key)
{
    char name[32];
    told_t told = ask(any_handle(world), name_of(key, name), policy_of(key));

    assert_int_equal(told.error, ONCE_OK);
    answered(world, key);
    if (told.outcome == ONCE_OUTCOME_RUN) {
        drop_claim(world, key);
        world->claims[key] = told.claim;
    }
}

static void do_finish(world_t *world, size_t key)
{
    once_claim_t *claim = world->claims[key];
    size_t len = body_size(world);
    uint8_t *body = malloc(len + 1);
    int code = ONCE_OK;

    assert_non_null(body);
    make_body(world, body, len);
    world->claims[key] = NULL;
    switch (dice_roll(&world->dice, 8)) {
    case 0:
        code = once_claim_release_sync(claim, 503, once__slice("not now", 7), NULL);
        break;
    case 1:
        code = once_claim_doubt_sync(claim, once__slice("timeout", 7), NULL);
        break;
    case 2:
        world->claims[key] = claim;
        code = once_claim_renew_sync(claim, NULL);
        break;
    default:
        code = complete(claim, 200 + (int)dice_roll(&world->dice, 100), body, len).error;
        break;
    }
    assert_int_equal(code, ONCE_OK);
    /* a renewal is answered before it is durable: it may be lost */
    if (world->claims[key] == NULL) {
        answered(world, key);
    }
    free(body);
}

static void do_settle(world_t *world, size_t key)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    once_settle_t settle = ONCE_SETTLE_INIT;
    once_t *handle = any_handle(world);

    response.body = once__slice("settled", 7);
    settle.token = world->before[key].token;
    settle.response = dice_roll(&world->dice, 2) ? &response : NULL;
    settle.note = once__slice("by hand", 7);
    settle.force = 1;
    assert_int_equal(once_record_settle_sync(handle, &settle, NULL), ONCE_OK);
    answered(world, key);
    drop_claim(world, key);
}

static void do_purge(world_t *world, size_t key)
{
    assert_int_equal(once_record_purge_sync(any_handle(world), world->before[key].token, 1, NULL),
                     ONCE_OK);
    answered(world, key);
    drop_claim(world, key);
}

/* One thing to one key, whatever its state allows. */
static void step_key(world_t *world)
{
    size_t key = dice_roll(&world->dice, KEYS);
    const told_t *is = &world->before[key];

    world->touched[key] = 1;
    if (is->error == ONCE_OK && dice_roll(&world->dice, 12) == 0) {
        do_purge(world, key);
    } else if (world->claims[key] != NULL && dice_roll(&world->dice, 4) != 0) {
        do_finish(world, key);
    } else if (is->state == ONCE_STATE_UNKNOWN && dice_roll(&world->dice, 2) == 0) {
        do_settle(world, key);
    } else {
        do_ask(world, key);
    }
}

typedef struct later {
    world_t *world;
    size_t key;
    unsigned *left;
} later_t;

static void later_done(once_t *once, once_answer_t *answer, void *data)
{
    later_t *later = data;
    told_t told = {0};

    told_from(&told, answer);
    assert_int_equal(told.error, ONCE_OK);
    answered(later->world, later->key);
    if (told.outcome == ONCE_OUTCOME_RUN) {
        drop_claim(later->world, later->key);
        later->world->claims[later->key] = told.claim;
    }
    (*later->left)--;
}

static void wait_for(once_t *once, const unsigned *left)
{
    while (*left > 0) {
        assert_true(once_wait(once, 10000) >= 0);
    }
}

/* Many claims at once, which are one batch. */
static void step_batch(world_t *world)
{
    once_t *once = any_handle(world);
    later_t later[KEYS];
    unsigned left = 0;

    for (size_t key = 0; key < KEYS; key++) {
        char name[32];
        later[key] = (later_t){world, key, &left};
        if (dice_roll(&world->dice, 2) == 0) {
            continue;
        }
        world->touched[key] = 1;
        left++;
        assert_int_equal(
            ask_later(once, name_of(key, name), policy_of(key), later_done, &later[key]), ONCE_OK);
    }
    wait_for(once, &left);
}

/* Completes everything that is held, with one batch for each handle. */
static void step_complete_all(world_t *world)
{
    later_t later[KEYS];
    unsigned left = 0;
    uint8_t body[1500];

    for (size_t key = 0; key < KEYS; key++) {
        once_response_t response = ONCE_RESPONSE_INIT;
        later[key] = (later_t){world, key, &left};
        if (world->claims[key] == NULL) {
            continue;
        }
        make_body(world, body, sizeof(body));
        response.body = once__slice(body, dice_roll(&world->dice, sizeof(body)));
        world->touched[key] = 1;
        left++;
        assert_int_equal(
            once_claim_complete(world->claims[key], &response, later_done, &later[key]), ONCE_OK);
        world->claims[key] = NULL;
    }
    while (left > 0) {
        for (size_t i = 0; i < HANDLES; i++) {
            assert_true(once_wait(world->handles[i], 1) >= 0);
        }
    }
}

static void step_reap(world_t *world)
{
    assert_int_equal(reap(any_handle(world), NULL), ONCE_OK);
}

static void step_restart(world_t *world)
{
    size_t which = dice_roll(&world->dice, HANDLES);

    for (size_t key = 0; key < KEYS; key++) {
        drop_claim(world, key); /* whosever it is: as if all had crashed */
    }
    assert_int_equal(once_close(world->handles[which], 5000), ONCE_OK);
    world->handles[which] = place_open(world->store, QUERY, &world->disk.hooks);
}

static void pass(world_t *world, uint64_t ms)
{
    peek_set_now(&world->peek, once__index_now(world->peek.index) + ms);
}

static void look_at_all(world_t *world, told_t out[KEYS])
{
    for (size_t key = 0; key < KEYS; key++) {
        char name[32];
        out[key] = get(world->handles[0], name_of(key, name));
    }
}

static void arm(world_t *world, int armed)
{
    (void)pthread_mutex_lock(&world->disk.lock);
    world->armed = armed;
    (void)pthread_mutex_unlock(&world->disk.lock);
}

static void run_step(world_t *world)
{
    uint64_t what = dice_roll(&world->dice, 40);
    unsigned kind = what < 26   ? 0
                    : what < 29 ? 1
                    : what < 32 ? 2
                    : what < 36 ? 3
                    : what < 37 ? 4
                                : 5;
    static void (*const steps[])(world_t *) = {step_key, step_batch, step_complete_all, step_reap,
                                               step_restart};

    memset(world->touched, 0, sizeof(world->touched));
    for (size_t key = 0; key < KEYS; key++) {
        world->answered[key] = 0;
    }
    world->steps[kind]++;
    if (kind == 5) {
        pass(world, dice_roll(&world->dice, 3) == 0 ? 70 * MINUTE : 11 * MINUTE);
        look_at_all(world, world->before);
        return;
    }
    arm(world, 1);
    steps[kind](world);
    look_at_all(world,
                world->after); /* also waits for a renewal's sync, which was not waited for */
    arm(world, 0);
    for (size_t i = 0; i < world->image_count; i++) {
        check_image(world, &world->images[i]);
    }
    world->image_count = 0;
    memcpy(world->before, world->after, sizeof(world->before));
}

/* ------------------------------------------------------------------------------------------------------------ the test */

static void world_open(world_t *world, uint64_t seed)
{
    once_t *once;

    memset(world, 0, sizeof(*world));
    world->seed = seed;
    world->dice.state = seed;
    world->crash_dice.state = ~seed;
    place_make(world->base);
    place_join(world->store, world->base, "store");
    once = place_open(world->store, QUERY, NULL);
    (void)get(once, "key-0"); /* the secrets are there now */
    assert_int_equal(once_close(once, 5000), ONCE_OK);
    disk_init(&world->disk, world->store);
    world->disk.short_write = seed % 3 == 0 ? 700 : 0;
    world->disk.boundary = crash_now;
    world->disk.data = world;
    for (size_t i = 0; i < HANDLES; i++) {
        world->handles[i] = place_open(world->store, QUERY, &world->disk.hooks);
    }
    peek_open(&world->peek, world->store);
    look_at_all(world, world->before);
}

static void world_close(world_t *world)
{
    for (size_t key = 0; key < KEYS; key++) {
        drop_claim(world, key);
    }
    peek_close(&world->peek);
    for (size_t i = 0; i < HANDLES; i++) {
        (void)once_close(world->handles[i], 5000);
    }
    disk_free(&world->disk);
    place_remove(world->base);
}

static void run_world(uint64_t seed, unsigned *crashes, unsigned *dropped)
{
    static world_t world;

    print_message("seed %llu\n", (unsigned long long)seed);
    world_open(&world, seed);
    for (world.step = 0; world.step < STEPS; world.step++) {
        run_step(&world);
    }
    *crashes += world.crashes;
    *dropped += peek_dropped(&world.peek);
    world_close(&world);
}

/* Always the same seeds first; then, for ONCE_SOAK_SECONDS, seeds that nobody has seen. ONCE_SEED: only this one. */
static void test_crash_at_every_sync(void **state)
{
    const char *soak = getenv("ONCE_SOAK_SECONDS"), *only = getenv("ONCE_SEED");
    time_t begin = time(NULL);
    time_t end = begin + (soak != NULL ? atoi(soak) : 0);
    unsigned crashes = 0, dropped = 0;

    if (only != NULL) {
        run_world(strtoull(only, NULL, 0), &crashes, &dropped);
        return;
    }
    for (uint64_t seed = 1; seed <= 5; seed++) {
        run_world(seed, &crashes, &dropped);
    }
    for (uint64_t i = 0; time(NULL) < end; i++) {
        run_world(((uint64_t)begin << 20) + i, &crashes, &dropped);
    }
    print_message("%u crashes, %u segments dropped\n", crashes, dropped);
    assert_true(crashes > 300);
    assert_true(dropped > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_at_every_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
