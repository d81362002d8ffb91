#include "support/testing.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "loop/loop.h"

static int is_readable(const once__loop_t *loop, int timeout_ms)
{
    struct pollfd p = {.fd = once__loop_fd(loop), .events = POLLIN};

    return poll(&p, 1, timeout_ms) == 1;
}

static once__loop_t *make_loop(void)
{
    int code = 0;
    once__loop_t *loop = once__loop_new(&once__real_env, &code);

    assert_non_null(loop);
    return loop;
}

static void a_wake_up_is_seen_outside_and_drained(void **state)
{
    once__loop_t *loop = make_loop();

    assert_false(is_readable(loop, 0));
    once__loop_wake(loop);
    once__loop_wake(loop);
    assert_true(is_readable(loop, 0));
    assert_int_equal(once__loop_run(loop), 1);
    assert_false(is_readable(loop, 0));
    once__loop_enter(loop);
    once__loop_wake(loop);
    assert_false(is_readable(loop, 0)); /* inside, it costs nothing */
    once__loop_leave(loop);
    assert_true(is_readable(loop, 0));
    once__loop_free(loop);
}

static void a_pause_lasts_until_the_next_dispatch(void **state)
{
    once__loop_t *loop = make_loop();

    once__loop_enter(loop);
    assert_false(once__loop_paused(loop));
    once__loop_pause(loop);
    assert_true(once__loop_paused(loop));
    once__loop_leave(loop);
    assert_true(is_readable(loop, 0));
    once__loop_enter(loop);
    assert_false(once__loop_paused(loop));
    assert_int_equal(once__loop_run(loop), 1);
    once__loop_leave(loop);
    assert_false(is_readable(loop, 0));
    once__loop_free(loop);
}

static void hear(once__source_t *source, uint32_t events)
{
}

/* More is ready than one run looks at, so that the wake-up is not among it: an edge-triggered host hears of it. */
static void a_pause_is_a_change(void **state)
{
    enum { MANY = 80 };
    once__loop_t *loop = make_loop();
    once__source_t sources[MANY];
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int host = epoll_create1(0);

    for (int i = 0; i < MANY; i++) {
        sources[i].ready = hear;
        assert_int_equal(once__source_set(loop, &sources[i], eventfd(1, 0), EPOLLIN), 0);
    }
    once__loop_wake(loop);
    assert_int_equal(epoll_ctl(host, EPOLL_CTL_ADD, once__loop_fd(loop), &event), 0);
    assert_int_equal(epoll_wait(host, &event, 1, 0), 1);
    assert_int_equal(epoll_wait(host, &event, 1, 0), 0);
    once__loop_enter(loop);
    assert_int_equal(once__loop_run(loop), 1);
    once__loop_pause(loop);
    once__loop_leave(loop);
    assert_int_equal(epoll_wait(host, &event, 1, 0), 1);
    for (int i = 0; i < MANY; i++) {
        (void)close(sources[i].fd);
    }
    (void)close(host);
    once__loop_free(loop);
}

static unsigned fired;

static void count(once__timer_t *timer)
{
    fired++;
}

static void a_timer_makes_the_descriptor_readable(void **state)
{
    once__timer_t late = {.fire = count}, soon = {.fire = count};
    once__loop_t *loop = make_loop();

    assert_int_equal(once__timers_reserve(loop), 0);
    assert_int_equal(once__timers_reserve(loop), 0);
    once__timer_set(loop, &late, once__loop_now(loop) + 3600000);
    once__timer_set(loop, &soon, once__loop_now(loop) + 5);
    fired = 0;
    while (fired == 0) {
        assert_true(is_readable(loop, 10000));
        (void)once__loop_run(loop);
    }
    assert_int_equal(fired, 1);
    assert_false(is_readable(loop, 0));
    once__timer_stop(loop, &late);
    once__timers_release(loop);
    once__timers_release(loop);
    once__loop_free(loop);
}

static once__loop_t *source_loop;
static unsigned ready;

static void on_ready(once__source_t *source, uint32_t events)
{
    char c;

    ready++;
    assert_int_equal(read(source->fd, &c, 1), 1);
}

static void a_source_is_heard_until_it_is_removed(void **state)
{
    once__source_t source = {.ready = on_ready};
    int ends[2];

    source_loop = make_loop();
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(once__source_set(source_loop, &source, ends[0], EPOLLIN), 0);
    assert_int_equal(once__source_set(source_loop, &source, ends[0], EPOLLIN | EPOLLRDHUP), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_true(is_readable(source_loop, 1000));
    assert_int_equal(once__loop_run(source_loop), 1);
    assert_int_equal(ready, 1);
    assert_int_equal(once__source_set(source_loop, &source, ends[0], 0), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_false(is_readable(source_loop, 0));
    (void)close(ends[0]);
    (void)close(ends[1]);
    once__loop_free(source_loop);
}

static void the_real_world_has_time_and_randomness(void **state)
{
    uint8_t a[64], b[64];
    uint64_t before = once__real_env.monotonic_ms(NULL);

    assert_int_equal(once__real_env.random(NULL, a, sizeof(a)), 0);
    assert_int_equal(once__real_env.random(NULL, b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_true(once__real_env.wall_ms(NULL) > 1600000000000);
    assert_true(once__real_env.monotonic_ms(NULL) >= before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wake_up_is_seen_outside_and_drained),
        cmocka_unit_test(a_pause_lasts_until_the_next_dispatch),
        cmocka_unit_test(a_pause_is_a_change),
        cmocka_unit_test(a_timer_makes_the_descriptor_readable),
        cmocka_unit_test(a_source_is_heard_until_it_is_removed),
        cmocka_unit_test(the_real_world_has_time_and_randomness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
