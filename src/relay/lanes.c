/*
 * Lanes: one for each destination, that is for each URL, topic or queue which the template gives. What is sick is one of them, and
 * the others go on beside it.
 *
 * - They send in turns, and none takes more of what the publisher can have under way than three times what it leaves free.
 * - When several keys in a row failed and nothing was taken meanwhile, the lane is opened, as one says of a circuit: it gets one
 *   event at a time (a probe), after pauses that grow. Chains of its events stand in line. Beyond a few of them they are parked:
 *   their events stay in the database, and the group is read again from there when the lane takes events, or needs more for its
 *   probes.
 * - When there is no room in memory, lanes that take nothing are opened without waiting for their failures.
 */
#include <stdlib.h>
#include <string.h>

#include "relay/internal.h"

#define NAME_MAX_BYTES 4096
#define OPEN_AFTER     4 /* keys that failed in a row */
#define OPEN_MIN_MS    200
#define OPEN_MAX_MS    60000
#define AFTER_MAX_MS   3600000 /* of what the other side asks for */
#define KEEP           64      /* events of an open lane in memory */
#define READ_MS        1000    /* for its next events to be read */
#define STALL_MS       1000 /* under way, and nothing was taken: it has no right to all of the memory */
#define STALL_LOOK_MS  250

/* Between three quarters and all of it: relays that failed together do not come back together. */
uint64_t once__jitter(uint64_t ms)
{
    return ms - (uint64_t)random() % (ms / 4 + 1);
}

/* ------------------------------------------------------------------------------------------------------------ lanes */

static void put_ring(once__relay_t *relay, once__lane_t *lane, once__lane_t **at)
{
    lane->ring_at = at;
    lane->ring_next = *at;
    if (*at != NULL) {
        (*at)->ring_at = &lane->ring_next;
    } else {
        relay->ring_end = &lane->ring_next;
    }
    *at = lane;
    relay->ring_count++;
}

static void take_ring(once__relay_t *relay, once__lane_t *lane)
{
    if (lane->ring_at == NULL) {
        return;
    }
    *lane->ring_at = lane->ring_next;
    if (lane->ring_next != NULL) {
        lane->ring_next->ring_at = lane->ring_at;
    } else {
        relay->ring_end = lane->ring_at;
    }
    lane->ring_at = NULL;
    relay->ring_count--;
}

void once__lane_rings(once__relay_t *relay, once__lane_t *lane, int is_first)
{
    if (is_first) {
        take_ring(relay, lane);
        put_ring(relay, lane, &relay->ring_first);
    } else if (lane->ring_at == NULL && !lane->is_open) {
        put_ring(relay, lane, relay->ring_end);
    }
}

static once__lane_t *new_lane(const char *name, size_t len, uint32_t hash)
{
    once__lane_t *lane = calloc(1, sizeof(*lane) + len + 1);

    if (lane != NULL) {
        memcpy(lane->name, name, len);
        lane->name_len = len;
        lane->hash = hash;
        lane->ready = (once__chain_queue_t){.end = &lane->ready.first, .lane = lane};
        lane->parked = (once__chain_queue_t){.end = &lane->parked.first, .lane = lane};
    }
    return lane;
}

once__lane_t *once__lane_for(once__relay_t *relay, const once__event_t *event)
{
    const once__message_t message = {.topic = event->topic, .key = event->key, .type = event->type};
    char name[NAME_MAX_BYTES];
    size_t len = once__publisher_target(relay->publisher, &message, name, sizeof(name));
    uint32_t hash = once__hash_bytes(name, len, 2166136261U);
    once__lane_t *lane = relay->lane_table[hash & relay->table_mask];

    while (lane != NULL && (lane->name_len != len || memcmp(lane->name, name, len) != 0)) {
        lane = lane->hash_next;
    }
    if (lane == NULL && (lane = new_lane(name, len, hash)) != NULL) {
        lane->round = ++relay->rounds;
        lane->hash_next = relay->lane_table[hash & relay->table_mask];
        relay->lane_table[hash & relay->table_mask] = lane;
        relay->lane_count++;
    }
    return lane;
}

static void set_open(once__relay_t *relay, once__lane_t *lane, int is_open)
{
    if (is_open == lane->is_open) {
        return;
    }
    lane->is_open = is_open;
    if (is_open) {
        relay->open_count++;
        take_ring(relay, lane);
        lane->open_at = &relay->open;
        lane->open_next = relay->open;
        if (lane->open_next != NULL) {
            lane->open_next->open_at = &lane->open_next;
        }
        relay->open = lane;
        return;
    }
    relay->open_count--;
    *lane->open_at = lane->open_next;
    if (lane->open_next != NULL) {
        lane->open_next->open_at = lane->open_at;
    }
}

void once__lane_release(once__relay_t *relay, once__lane_t *lane)
{
    once__lane_t **at;

    if (lane == NULL || lane->events > 0 || lane->ready.first != NULL ||
        lane->parked.first != NULL || lane->keyless != NULL) {
        return;
    }
    at = &relay->lane_table[lane->hash & relay->table_mask];
    while (*at != lane) {
        at = &(*at)->hash_next;
    }
    *at = lane->hash_next;
    take_ring(relay, lane);
    set_open(relay, lane, 0);
    relay->lane_count--;
    free(lane);
}

/* ------------------------------------------------------------------------------------------- what is left in the database */

/* Together they have an eighth of the window, so that any number of them leaves room for the others. */
int once__lane_parks(const once__relay_t *relay, const once__lane_t *lane)
{
    size_t share, keep;

    if (!lane->is_open) {
        return 0;
    }
    share = relay->options->window / 8 / relay->open_count;
    keep = share < 1 ? 1 : share < KEEP ? share : KEEP;
    return lane->events > keep;
}

int once__lane_leave(once__lane_t *lane, const once__event_t *event)
{
    int64_t *first;

    if (lane->keyless == NULL) {
        lane->keyless = calloc(ONCE__RELAY_GROUPS, sizeof(lane->keyless[0]));
    }
    if (lane->keyless == NULL) {
        return 0;
    }
    first = &lane->keyless[event->group];
    *first = *first == 0 || event->seq < *first ? event->seq : *first;
    return 1;
}

/* Reads some chains again, and all events without a key: of those nobody knows how many there are. */
static void unpark(once__relay_t *relay, once__lane_t *lane, size_t most)
{
    for (int16_t i = 0; lane->keyless != NULL && i < ONCE__RELAY_GROUPS; i++) {
        if (lane->keyless[i] != 0) {
            once__fetch_back(relay, i, lane->keyless[i]);
        }
    }
    free(lane->keyless);
    lane->keyless = NULL;
    while (most-- > 0 && lane->parked.first != NULL) {
        once__chain_unpark(relay, lane->parked.first);
    }
}

/* ---------------------------------------------------------------------------------------------------- open and closed */

static void open_lane(once__relay_t *relay, once__lane_t *lane, uint64_t after_ms)
{
    uint64_t wait = lane->backoff_ms == 0 ? OPEN_MIN_MS : 2 * lane->backoff_ms;
    once__chain_t *next;

    wait = wait > OPEN_MAX_MS ? OPEN_MAX_MS : wait;
    lane->backoff_ms = wait;
    wait = after_ms > wait ? after_ms : once__jitter(wait);
    lane->until_ms = relay->now_ms + (wait < AFTER_MAX_MS ? wait : AFTER_MAX_MS);
    if (lane->is_open) {
        return;
    }
    set_open(relay, lane, 1);
    for (once__chain_t *chain = lane->ready.first; chain != NULL; chain = next) {
        next = chain->queue_next;
        once__chain_trim(relay, chain);
        if (once__lane_parks(relay, lane) && chain->first != NULL && chain->first->lane == lane) {
            (void)once__chain_park(relay, chain);
        }
    }
}

static void close_lane(once__relay_t *relay, once__lane_t *lane)
{
    set_open(relay, lane, 0);
    lane->backoff_ms = 0;
    unpark(relay, lane, SIZE_MAX);
    if (lane->ready.first != NULL) {
        once__lane_rings(relay, lane, 0);
    }
}

static void took(once__relay_t *relay, once__event_t *event)
{
    once__lane_t *lane = event->lane;

    lane->round = ++relay->rounds;
    lane->failing = 0;
    lane->sick_since_ms = 0;
    lane->alive_ms = relay->now_ms;
    if (lane->is_open) {
        once__report_event(relay, ONCE__LOG_INFO, "a held destination takes events again", event,
                           NULL);
        close_lane(relay, lane);
    }
}

static void refused(once__relay_t *relay, once__event_t *event, int was_probe, const char *reason,
                    uint64_t after_ms)
{
    once__lane_t *lane = event->lane;

    lane->sick_since_ms = lane->sick_since_ms != 0 ? lane->sick_since_ms : relay->now_ms;
    if (event->chain->failed_round != lane->round) {
        event->chain->failed_round = lane->round;
        lane->failing++;
    }
    if (!lane->is_open && lane->failing >= OPEN_AFTER) {
        once__report_event(relay, ONCE__LOG_WARN,
                           "a destination is held: it takes nothing, of several keys", event,
                           reason);
        open_lane(relay, lane, after_ms);
    } else if (was_probe) {
        open_lane(relay, lane, after_ms);
    }
}

void once__lane_verdict(once__relay_t *relay, once__event_t *event, once__verdict_t verdict,
                        const char *reason, uint64_t after_ms)
{
    int was_probe = event->is_probe;

    if (was_probe) {
        event->is_probe = 0;
        event->lane->is_probing = 0;
        relay->probes--;
    }
    if (verdict == ONCE__PUBLISHED) {
        took(relay, event);
    } else if (verdict == ONCE__LATER || verdict == ONCE__FAILED) {
        refused(relay, event, was_probe && event->lane->is_open, reason, after_ms);
    }
}

int once__lane_is_over(const once__relay_t *relay, const once__event_t *event)
{
    uint64_t since = event->lane->sick_since_ms, patience = relay->options->give_up_ms;

    return since != 0 && relay->now_ms - since >= patience &&
           once__event_age_us(relay, event) >= (int64_t)patience * 1000;
}

/* ------------------------------------------------------------------------------------------------------------ sending */

static int may_probe(const once__relay_t *relay)
{
    return relay->probes == 0 || relay->probes < once__publisher_most(relay->publisher) / 4;
}

static int may_send(const once__relay_t *relay, const once__lane_t *lane)
{
    size_t room = once__publisher_room(relay->publisher);

    if (lane->is_open) {
        return relay->now_ms >= lane->until_ms && !lane->is_probing && may_probe(relay);
    }
    return lane->sent == 0 ||
           (room > 1 && lane->sent / 3 < room && lane->sent < relay->options->window / 2);
}

once__lane_t *once__lane_turn(once__relay_t *relay)
{
    for (size_t left = relay->ring_count; left > 0; left--) {
        once__lane_t *lane = relay->ring_first;
        take_ring(relay, lane);
        if (may_send(relay, lane)) {
            return lane;
        }
        once__lane_rings(relay, lane, 0);
    }
    return NULL;
}

void once__lane_sent(once__relay_t *relay, once__event_t *event)
{
    event->lane->alive_ms = event->lane->sent == 0 ? relay->now_ms : event->lane->alive_ms;
    event->lane->sent++;
    if (event->lane->is_open) {
        event->is_probe = event->lane->is_probing = 1;
        relay->probes++;
    }
}

/* Others may have events behind those that fill the memory. */
static void make_room(once__relay_t *relay)
{
    if (relay->away || relay->now_ms < relay->room_ms || once__fetch_has_room(relay)) {
        return;
    }
    relay->room_ms = relay->now_ms + STALL_LOOK_MS;
    for (size_t i = 0; i <= relay->table_mask; i++) {
        for (once__lane_t *lane = relay->lane_table[i]; lane != NULL; lane = lane->hash_next) {
            if (!lane->is_open && lane->sent > 0 && lane->events > KEEP &&
                relay->now_ms - lane->alive_ms >= STALL_MS) {
                once__log(&relay->log, ONCE__LOG_WARN,
                          "a destination is held: it takes nothing, and fills the memory",
                          ONCE__FIELDS(once__field_number("events", (int64_t)lane->events)));
                open_lane(relay, lane, 0);
            }
        }
    }
}

uint64_t once__lanes_wake(once__relay_t *relay)
{
    uint64_t soonest = UINT64_MAX;
    once__lane_t *next;

    make_room(relay);
    for (once__lane_t *lane = relay->open; lane != NULL && may_probe(relay); lane = next) {
        next = lane->open_next;
        if (lane->is_probing) {
            continue;
        }
        if (relay->now_ms < lane->until_ms) {
            soonest = lane->until_ms < soonest ? lane->until_ms : soonest;
        } else if (lane->ready.first != NULL) {
            once__lane_rings(relay, lane, 1);
        } else if (lane->events == 0) {
            lane->until_ms = relay->now_ms + READ_MS;
            soonest = lane->until_ms < soonest ? lane->until_ms : soonest;
            unpark(relay, lane, KEEP);
            once__lane_release(relay, lane);
        }
    }
    return soonest;
}
