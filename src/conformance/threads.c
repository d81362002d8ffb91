#include "conformance/test.h"

#include <stdlib.h>

typedef struct crowd {
    once__test_t *test;
    void (*body)(once__test_t *t, unsigned number, void *data);
    void *data;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open; /* the start: 0 wait, 1 go, -1 go home */
} crowd_t;

typedef struct member {
    pthread_t thread;
    unsigned number;
    crowd_t *crowd;
} member_t;

static int wait_for_start(crowd_t *crowd)
{
    int open;

    (void)pthread_mutex_lock(&crowd->lock);
    while (crowd->open == 0) {
        (void)pthread_cond_wait(&crowd->changed, &crowd->lock);
    }
    open = crowd->open;
    (void)pthread_mutex_unlock(&crowd->lock);
    return open;
}

static void *run_member(void *data)
{
    member_t *member = data;
    crowd_t *crowd = member->crowd;
    jmp_buf place;

    if (wait_for_start(crowd) < 0) {
        return NULL;
    }
    once__test_exit = &place;
    if (setjmp(place) == 0) {
        crowd->body(crowd->test, member->number, crowd->data);
    }
    once__test_exit = NULL;
    return NULL;
}

static unsigned start_members(crowd_t *crowd, member_t *members, unsigned count)
{
    unsigned started = 0;

    for (unsigned i = 0; i < count; i++) {
        members[i].number = i;
        members[i].crowd = crowd;
        if (pthread_create(&members[i].thread, NULL, run_member, &members[i]) != 0) {
            break;
        }
        started++;
    }
    return started;
}

void once__test_run_threads(once__test_t *t, unsigned count,
                            void (*body)(once__test_t *t, unsigned number, void *data), void *data)
{
    crowd_t crowd = {.test = t, .body = body, .data = data};
    member_t members[ONCE__THREADS_MAX];
    unsigned started;

    CHECK(count <= ONCE__THREADS_MAX);
    CHECK(pthread_mutex_init(&crowd.lock, NULL) == 0);
    CHECK(pthread_cond_init(&crowd.changed, NULL) == 0);
    started = start_members(&crowd, members, count);
    (void)pthread_mutex_lock(&crowd.lock);
    crowd.open = started == count ? 1 : -1;
    (void)pthread_cond_broadcast(&crowd.changed);
    (void)pthread_mutex_unlock(&crowd.lock);
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(members[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&crowd.changed);
    (void)pthread_mutex_destroy(&crowd.lock);
    if (started < count) {
        FAIL("only %u of %u threads could be started", started, count);
    }
    if (once__test_is_over(t)) {
        once__test_leave();
    }
}
