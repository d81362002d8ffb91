#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"
#include "loop/timers.h"

static uint64_t now_ms;

static uint64_t get_now(void *data)
{
    return now_ms;
}

static once__loop_t *make_loop(void)
{
    once__env_t env = {.monotonic_ms = get_now, .wall_ms = get_now, .simulated = 1};
    int code;
    once__loop_t *loop = once__loop_new(&env, &code);

    assert_non_null(loop);
    now_ms = 0;
    return loop;
}

#define COUNT 500

typedef struct probe {
    once__timer_t timer;
    uint64_t fired_at;
} probe_t;

static uint64_t last_due, last_order;
static unsigned fired;

static void note(once__timer_t *timer)
{
    probe_t *probe = (probe_t *)timer;

    assert_true(timer->due <= now_ms);
    assert_true(timer->due > last_due || (timer->due == last_due && timer->order >= last_order));
    last_due = timer->due;
    last_order = timer->order;
    probe->fired_at = now_ms;
    fired++;
}

static void timers_fire_in_order_and_stopped_ones_never(void **state)
{
    once__loop_t *loop = make_loop();
    probe_t *probes = calloc(COUNT, sizeof(*probes));
    unsigned stopped = 0;

    assert_non_null(probes);
    srand(7);
    for (int i = 0; i < COUNT; i++) {
        probes[i].timer.fire = note;
        assert_int_equal(once__timers_reserve(loop), 0);
        once__timer_set(loop, &probes[i].timer, (uint64_t)(rand() % 50) + 1);
    }
    for (int i = 0; i < COUNT; i += 3) {
        once__timer_stop(loop, &probes[i].timer);
        once__timer_stop(loop, &probes[i].timer); /* twice is fine */
        stopped++;
    }
    for (int i = 1; i < COUNT; i += 3) {
        once__timer_set(loop, &probes[i].timer, (uint64_t)(rand() % 50) + 1);
    }
    last_due = last_order = 0;
    fired = 0;
    while (once__loop_due(loop) != UINT64_MAX) {
        now_ms = once__loop_due(loop);
        (void)once__loop_run(loop);
    }
    assert_int_equal(fired, COUNT - stopped);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(probes[i].fired_at != 0, i % 3 != 0);
        once__timers_release(loop);
    }
    free(probes);
    once__loop_free(loop);
}

static unsigned rings;
static once__loop_t *ringing;

static void ring_again(once__timer_t *timer)
{
    rings++;
    once__timer_set(ringing, timer, now_ms); /* due at once: the next run's business */
}

static void a_timer_that_sets_itself_does_not_hold_the_loop(void **state)
{
    once__timer_t timer = {.fire = ring_again};

    ringing = make_loop();
    assert_int_equal(once__timers_reserve(ringing), 0);
    once__timer_set(ringing, &timer, 0);
    (void)once__loop_run(ringing);
    assert_int_equal(rings, 1);
    (void)once__loop_run(ringing);
    assert_int_equal(rings, 2);
    once__timer_stop(ringing, &timer);
    once__timers_release(ringing);
    once__loop_free(ringing);
}

static void a_wake_up_makes_it_due_until_it_ran(void **state)
{
    once__loop_t *loop = make_loop();

    assert_true(once__loop_due(loop) == UINT64_MAX);
    once__loop_wake(loop);
    assert_int_equal(once__loop_due(loop), 0);
    assert_int_equal(once__loop_run(loop), 1);
    assert_int_equal(once__loop_run(loop), 0);
    once__loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_and_stopped_ones_never),
        cmocka_unit_test(a_timer_that_sets_itself_does_not_hold_the_loop),
        cmocka_unit_test(a_wake_up_makes_it_due_until_it_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
