#include "store/redis/link_inside.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/backoff.h"

#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 2000

#define LINK_OF(member, pointer)                                                                   \
    ((once__redis_link_t *)(void *)((char *)(pointer)-offsetof(once__redis_link_t, member)))

/* ----------------------------------------------------------------------------------------------------------- the end */

void once__redis_link_timer(once__redis_link_t *link, uint64_t ms)
{
    once__loop_t *loop = link->shared->loop;

    once__timer_set(loop, &link->timer, ms == 0 ? 0 : once__loop_now(loop) + ms);
}

void once__redis_link_heard(once__redis_link_t *link)
{
    if (link->state != ONCE__REDIS_READY || link->condemned) {
        return;
    }
    if (link->first != NULL) {
        once__redis_link_timer(link, link->shared->settings->reply_ms);
    } else {
        once__timer_stop(link->shared->loop, &link->timer);
    }
}

void once__redis_link_watch(once__redis_link_t *link, uint32_t events)
{
    if (link->events != events) {
        (void)once__source_set(link->shared->loop, &link->source, link->source.fd, events);
        link->events = events;
    }
}

void once__redis_link_hang_up(once__redis_link_t *link)
{
    if (link->source.fd >= 0) {
        if (link->events != 0) {
            (void)once__source_set(link->shared->loop, &link->source, link->source.fd, 0);
        }
        if (link->resolve == NULL) {
            (void)close(link->source.fd);
        }
    }
    if (link->resolve != NULL) {
        once__resolve_free(link->resolve);
    }
    link->resolve = NULL;
    link->source.fd = -1;
    link->events = 0;
}

static void forget_connection(once__redis_link_t *link)
{
    once__redis_link_hang_up(link);
    if (link->addresses != NULL) {
        freeaddrinfo(link->addresses);
    }
    link->addresses = link->address = NULL;
    SSL_free(link->ssl);
    link->ssl = NULL;
    if (link->reader != NULL) {
        redisReaderFree(link->reader);
    }
    link->reader = NULL;
    once__redis_buffer_empty(&link->plain);
    once__redis_buffer_empty(&link->wire);
    link->condemned = 0;
    link->state = ONCE__REDIS_DOWN;
    once__timer_stop(link->shared->loop, &link->timer);
}

/* Calls that got no reply. What they do about it may be to call again, on whatever is there then. */
static void end_calls(once__redis_link_t *link)
{
    once__redis_call_t *call = link->first;
    uint64_t gone = link->gone;

    link->first = NULL;
    link->last = &link->first;
    link->call_count = 0;
    link->stream = link->gone = 0;
    while (call != NULL) {
        once__redis_call_t *next = call->next;
        call->sent = call->begin < gone;
        call->done(call, NULL);
        call = next;
    }
}

/* Down, and not to be tried again before a pause that grows; many that lost the same server must not come back in step. */
void once__redis_link_fail(once__redis_link_t *link, int refusal)
{
    const once__env_t *env = once__loop_env(link->shared->loop);
    uint64_t random = 0;

    forget_connection(link);
    (void)env->random(env->data, &random, sizeof(random));
    link->refusal = refusal;
    link->retry_at = once__loop_now(link->shared->loop) +
                     once__backoff(link->failures++, PAUSE_MIN_MS, PAUSE_MAX_MS, random);
    end_calls(link);
    link->shared->changed(link->shared->data, link);
}

/* A connection that had worked: the next try may be made at once. */
static void drop(once__redis_link_t *link)
{
    if (link->state != ONCE__REDIS_READY) {
        once__redis_link_fail(link, ONCE_E_UNAVAILABLE);
        return;
    }
    forget_connection(link);
    link->refusal = ONCE_E_UNAVAILABLE;
    link->retry_at = 0;
    end_calls(link);
    link->shared->changed(link->shared->data, link);
}

void once__redis_link_condemn(once__redis_link_t *link)
{
    if (link->state != ONCE__REDIS_DOWN) {
        link->condemned = 1;
        once__redis_link_timer(link, 0);
    }
}

void once__redis_link_distrust(once__redis_link_t *link)
{
    once__redis_link_complain(link, "this is not what Redis answers");
    once__redis_link_condemn(link);
}

void once__redis_link_complain(once__redis_link_t *link, const char *text)
{
    once__redis_link_trouble(link, "", text);
    link->shared->is_complaint = 1;
}

void once__redis_link_content(once__redis_link_t *link)
{
    if (link->shared->is_complaint) {
        link->shared->is_complaint = 0;
        link->shared->trouble[0] = '\0';
    }
}

/* -------------------------------------------------------------------------------------------------------------- calls */

int once__redis_link_call(once__redis_link_t *link, once__redis_call_t *call, int argc,
                          const char **argv, const size_t *lengths)
{
    once__redis_buffer_t *out = link->ssl != NULL ? &link->plain : &link->wire;
    char *text = NULL, *to;
    int len;

    if (link->state < ONCE__REDIS_GREETING || link->condemned) {
        return -1; /* it went away meanwhile */
    }
    len = redisFormatCommandArgv(&text, argc, argv, lengths);
    if (len < 0) {
        return -1;
    }
    to = once__redis_buffer_reserve(out, (size_t)len);
    if (to != NULL) {
        memcpy(to, text, (size_t)len);
        out->len += (size_t)len;
    }
    free(text);
    if (to == NULL) {
        return -1;
    }
    call->next = NULL;
    call->link = link;
    call->begin = link->stream;
    link->stream += (uint64_t)len;
    if (link->first == NULL && link->state != ONCE__REDIS_GREETING) {
        once__redis_link_timer(link, link->shared->settings->reply_ms);
    }
    *link->last = call;
    link->last = &call->next;
    link->call_count++;
    return 0;
}

/* -------------------------------------------------------------------------------------------------- what the loop says */

static void refuse_or_drop(once__redis_link_t *link)
{
    if (link->state == ONCE__REDIS_GREETING) {
        once__redis_link_fail(link, link->refusal != ONCE_OK ? link->refusal : ONCE_E_UNAVAILABLE);
    } else {
        drop(link);
    }
}

static void ready(once__source_t *source, uint32_t events)
{
    once__redis_link_t *link = LINK_OF(source, source);

    switch (link->state) {
    case ONCE__REDIS_DOWN:
        return;
    case ONCE__REDIS_RESOLVING:
        once__redis_link_resolved(link);
        return;
    case ONCE__REDIS_CONNECTING:
        once__redis_link_connected(link);
        return;
    default:
        break;
    }
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) && once__redis_link_take_in(link) != 0) {
        if (link->state != ONCE__REDIS_READY && link->refusal == ONCE_OK) {
            once__redis_link_trouble(link, "this is no Redis, or it hung up", "");
        }
        refuse_or_drop(link);
        return;
    }
    if (link->condemned) {
        refuse_or_drop(link);
    } else if (events & EPOLLOUT) {
        once__redis_link_flush(link);
    }
}

/* No reply in time: but what was sent may still be on its way, over a slow line. */
static int is_on_its_way(once__redis_link_t *link)
{
    int left = 0;

    if (link->state != ONCE__REDIS_READY || link->condemned ||
        ioctl(link->source.fd, SIOCOUTQ, &left) != 0 || left == 0 || left == link->unsent) {
        return 0;
    }
    link->unsent = left;
    return 1;
}

/* No reply for too long, no connection for too long, condemned; or an address that needed no look-up. */
static void timer_fired(once__timer_t *timer)
{
    once__redis_link_t *link = LINK_OF(timer, timer);

    if (link->state == ONCE__REDIS_CONNECTING && link->source.fd < 0 && link->address != NULL &&
        !link->condemned) {
        once__redis_link_timer(link, link->shared->settings->connect_ms);
        once__redis_link_try(link);
        return;
    }
    if (is_on_its_way(link)) {
        once__redis_link_heard(link);
        return;
    }
    if (link->state != ONCE__REDIS_READY && !link->condemned) {
        once__redis_link_trouble(link, "no connection in time", "");
    }
    refuse_or_drop(link);
}

int once__redis_link_init(once__redis_link_t *link, once__redis_shared_t *shared,
                          const once__redis_host_t *host, int is_sentinel)
{
    memset(link, 0, sizeof(*link));
    link->shared = shared;
    link->host = *host;
    link->is_sentinel = is_sentinel;
    link->source.ready = ready;
    link->source.fd = -1;
    link->timer.fire = timer_fired;
    link->last = &link->first;
    return once__timers_reserve(shared->loop);
}

static void free_memory(once__redis_link_t *link)
{
    free(link->plain.data);
    free(link->wire.data);
    memset(&link->plain, 0, sizeof(link->plain));
    memset(&link->wire, 0, sizeof(link->wire));
}

void once__redis_link_free(once__redis_link_t *link)
{
    forget_connection(link);
    end_calls(link);
    free_memory(link);
    once__timers_release(link->shared->loop);
}

/* The loop's descriptors are the parent's, too: nothing in them may be changed. */
void once__redis_link_abandon(once__redis_link_t *link)
{
    once__redis_call_t *call = link->first;

    if (link->source.fd >= 0 && link->resolve == NULL) {
        (void)close(link->source.fd);
    }
    if (link->addresses != NULL) {
        freeaddrinfo(link->addresses);
    }
    if (link->reader != NULL) {
        redisReaderFree(link->reader);
    }
    SSL_free(link->ssl);
    while (call != NULL) {
        once__redis_call_t *next = call->next;
        free(call);
        call = next;
    }
    free_memory(link);
}
