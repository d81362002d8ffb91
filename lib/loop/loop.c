#include "loop/loop.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <once/error.h>

#include "loop/timers.h"

#define EVENTS_PER_RUN 64

/*
 * What holds outside of a dispatch, so that a host that watches the descriptor misses nothing (assert_loop_state):
 *   I-1  announced work has made the descriptor readable
 *   I-2  the timerfd is set to the first timer, or to an earlier time, which does no harm
 * In simulated time there are no descriptors: once__loop_due says what is due.
 */
struct once__loop {
    once__env_t env;
    once__timers_t timers;
    once__source_t wake_source;
    once__source_t timer_source;
    int epoll_fd;
    int inside;         /* between enter and leave */
    int woken;          /* queued work was announced */
    int wake_written;   /* the eventfd is readable */
    int paused;         /* what is left waits for the next dispatch */
    uint64_t armed_due; /* what the timerfd is set to; UINT64_MAX: not set */
};

static void drain(int fd)
{
    uint64_t ignored;

    while (read(fd, &ignored, sizeof(ignored)) < 0 && errno == EINTR) {
    }
}

static void wake_ready(once__source_t *source, uint32_t events)
{
    once__loop_t *loop =
        (once__loop_t *)(void *)((char *)source - offsetof(once__loop_t, wake_source));

    drain(source->fd);
    loop->wake_written = 0;
}

static void timer_ready(once__source_t *source, uint32_t events)
{
    once__loop_t *loop =
        (once__loop_t *)(void *)((char *)source - offsetof(once__loop_t, timer_source));

    drain(source->fd);
    loop->armed_due = UINT64_MAX;
}

static void assert_loop_state(const once__loop_t *loop)
{
    const once__timer_t *first = once__timers_first(&loop->timers);

    if (loop->inside || loop->env.simulated) {
        return;
    }
    assert(!loop->woken || loop->wake_written);                                /* I-1 */
    assert(first == NULL || loop->armed_due <= first->due || first->due == 0); /* I-2 */
}

static int open_descriptors(once__loop_t *loop)
{
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_source.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->timer_source.fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (loop->epoll_fd < 0 || loop->wake_source.fd < 0 || loop->timer_source.fd < 0) {
        return -1;
    }
    loop->wake_source.ready = wake_ready;
    loop->timer_source.ready = timer_ready;
    if (once__source_set(loop, &loop->wake_source, loop->wake_source.fd, EPOLLIN) != 0) {
        return -1;
    }
    return once__source_set(loop, &loop->timer_source, loop->timer_source.fd, EPOLLIN);
}

once__loop_t *once__loop_new(const once__env_t *env, int *code)
{
    once__loop_t *loop = calloc(1, sizeof(*loop));

    if (loop == NULL) {
        *code = ONCE_E_NOMEM;
        return NULL;
    }
    loop->env = *env;
    loop->armed_due = UINT64_MAX;
    loop->epoll_fd = loop->wake_source.fd = loop->timer_source.fd = -1;
    if (!env->simulated && open_descriptors(loop) != 0) {
        *code = errno == ENOMEM ? ONCE_E_NOMEM : ONCE_E_IO;
        once__loop_free(loop);
        return NULL;
    }
    return loop;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

void once__loop_free(once__loop_t *loop)
{
    if (loop == NULL) {
        return;
    }
    close_fd(loop->epoll_fd);
    close_fd(loop->wake_source.fd);
    close_fd(loop->timer_source.fd);
    free(loop->timers.heap);
    free(loop);
}

int once__loop_fd(const once__loop_t *loop)
{
    return loop->epoll_fd;
}

const once__env_t *once__loop_env(const once__loop_t *loop)
{
    return &loop->env;
}

uint64_t once__loop_now(const once__loop_t *loop)
{
    return loop->env.monotonic_ms(loop->env.data);
}

/* ----------------------------------------------------------------------------------------------------------- waking */

static void write_wake(once__loop_t *loop)
{
    static const uint64_t one = 1;

    if (loop->wake_written || loop->env.simulated) {
        return;
    }
    while (write(loop->wake_source.fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    loop->wake_written = 1;
}

void once__loop_wake(once__loop_t *loop)
{
    loop->woken = 1;
    if (!loop->inside) {
        write_wake(loop);
    }
    assert_loop_state(loop);
}

void once__loop_pause(once__loop_t *loop)
{
    loop->paused = 1;
    once__loop_wake(loop);
}

int once__loop_paused(const once__loop_t *loop)
{
    return loop->paused;
}

/* The timerfd follows the first timer. Set late, on leaving, because most timers are stopped again before they fire. */
static void arm(once__loop_t *loop)
{
    const once__timer_t *first = once__timers_first(&loop->timers);
    uint64_t due = first != NULL ? first->due : UINT64_MAX;
    struct itimerspec spec = {{0, 0}, {0, 0}};

    /* A timer that fires too early does no harm: only an earlier due time needs a system call. */
    if (loop->env.simulated || due >= loop->armed_due) {
        return;
    }
    due = due == 0 ? 1 : due;
    spec.it_value.tv_sec = (time_t)(due / 1000);
    spec.it_value.tv_nsec = (long)(due % 1000) * 1000000;
    (void)timerfd_settime(loop->timer_source.fd, TFD_TIMER_ABSTIME, &spec, NULL);
    loop->armed_due = due;
}

void once__loop_enter(once__loop_t *loop)
{
    assert(!loop->inside);
    loop->inside = 1;
    loop->paused = 0;
}

void once__loop_leave(once__loop_t *loop)
{
    assert(loop->inside);
    loop->inside = 0;
    if (loop->woken) {
        loop->wake_written = 0; /* once more: a host may hear of changes only */
        write_wake(loop);
    }
    arm(loop);
    assert_loop_state(loop);
}

/* ---------------------------------------------------------------------------------------------------------- running */

static int run_sources(once__loop_t *loop, int timeout_ms)
{
    struct epoll_event events[EVENTS_PER_RUN];
    int n;

    if (loop->env.simulated) {
        return 0;
    }
    n = epoll_wait(loop->epoll_fd, events, EVENTS_PER_RUN, timeout_ms);
    for (int i = 0; i < n; i++) {
        once__source_t *source = events[i].data.ptr;
        source->ready(source, events[i].events);
    }
    return n > 0;
}

static int run_timers(once__loop_t *loop)
{
    uint64_t now = once__loop_now(loop);
    uint64_t last = loop->timers.next_order; /* timers set from now on wait for the next run */
    int fired = 0;

    for (;;) {
        once__timer_t *timer = once__timers_first(&loop->timers);
        if (timer == NULL || timer->due > now || timer->order >= last) {
            return fired;
        }
        once__timers_take(&loop->timers, timer);
        timer->fire(timer);
        fired = 1;
    }
}

int once__loop_run(once__loop_t *loop)
{
    int busy = loop->woken;

    loop->woken = 0;
    busy |= run_sources(loop, 0);
    busy |= run_timers(loop);
    return busy;
}

int once__loop_wait(const once__loop_t *loop, int timeout_ms)
{
    struct pollfd p = {.fd = loop->epoll_fd, .events = POLLIN};

    assert(!loop->env.simulated);
    return poll(&p, 1, timeout_ms) < 0 && errno != EINTR ? -1 : 0;
}

void once__loop_turn(once__loop_t *loop, int timeout_ms)
{
    uint64_t due = once__loop_due(loop), now;

    assert(!loop->env.simulated);
    if (timeout_ms != 0 && due != UINT64_MAX) {
        now = once__loop_now(loop);
        due = due > now ? due - now : 0;
        timeout_ms = timeout_ms < 0 || due < (uint64_t)timeout_ms
                         ? (int)(due < INT_MAX ? due : INT_MAX)
                         : timeout_ms;
    }
    loop->woken = 0;
    (void)run_sources(loop, timeout_ms);
    (void)run_timers(loop);
}

uint64_t once__loop_due(const once__loop_t *loop)
{
    const once__timer_t *first = once__timers_first(&loop->timers);

    if (loop->woken) {
        return 0;
    }
    return first != NULL ? first->due : UINT64_MAX;
}

/* ------------------------------------------------------------------------------------------------ timers and sources */

int once__timers_reserve(once__loop_t *loop)
{
    return once__timers_grow(&loop->timers);
}

void once__timers_release(once__loop_t *loop)
{
    assert(loop->timers.reserved > loop->timers.count);
    loop->timers.reserved--;
}

void once__timer_set(once__loop_t *loop, once__timer_t *timer, uint64_t due_ms)
{
    once__timer_stop(loop, timer);
    timer->due = due_ms;
    once__timers_put(&loop->timers, timer);
    if (!loop->inside) {
        arm(loop);
    }
    assert_loop_state(loop);
}

void once__timer_stop(once__loop_t *loop, once__timer_t *timer)
{
    if (timer->slot != 0) {
        once__timers_take(&loop->timers, timer);
    }
}

int once__source_set(once__loop_t *loop, once__source_t *source, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.ptr = source}};

    source->fd = fd;
    if (events == 0) {
        return epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    }
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0) {
        return 0;
    }
    return errno == ENOENT ? epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) : -1;
}
