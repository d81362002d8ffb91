/*
 * Destinations: the URLs, topics or queues that the template gives. One of them can fail while the others go on.
 *
 * - Those that differ in nothing but the key are a family: all of a topic, if the template has {topic} and {key}. Families send in
 *   turns, and the destinations of a family do. No family and no destination may have more in flight than three times what it
 *   leaves free at the publisher: any number of URLs that hang, one for each key, take no more than one URL for all keys.
 * - A destination that failed waits in another line of its family until it takes an event. All of that line have a quarter of
 *   what can be in flight, and the two lines send in turns.
 * - When several keys in a row have failed and no event was taken meanwhile, the destination is suspended, as by a circuit breaker.
 *   It gets one event at a time (a probe), after pauses that grow. Queues of its events wait in line. Beyond a few they are
 *   evicted: their events stay in the database, and the group is read again from there when the destination takes events or needs
 *   more for its probes.
 * - When there is no room in memory, destinations that take nothing are suspended without waiting for their failures.
 *
 * Invariants of a family:
 *
 *   I-1  It is in the ring if and only if a destination is in one of its lines.
 *   I-2  The count of a line is that of its destinations, and its end is the pointer behind the last one.
 *   I-3  A destination is in one line at most, of its own family.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "relay/internal.h"

#define NAME_MAX_BYTES 4096
#define SUSPEND_AFTER  4 /* keys that failed in a row */
#define SUSPEND_MIN_MS 200
#define SUSPEND_MAX_MS 60000
#define AFTER_MAX_MS   3600000 /* the longest pause that the other side may ask for */
#define KEEP           64      /* events of a suspended destination in memory */
#define READ_MS        1000    /* that reading its next events may take */
#define STALL_MS       1000 /* with events in flight and none taken: it may not fill the memory */
#define STALL_LOOK_MS  250

static void assert_family_state(const once__relay_family_t *family)
{
    assert((family->ring_at != NULL) ==
           (family->lines[0].count + family->lines[1].count > 0)); /* I-1 */
    for (int i = 0; i < 2; i++) {
        assert((family->lines[i].count > 0) == (family->lines[i].first != NULL)); /* I-2 */
        assert(*family->lines[i].end == NULL);
    }
    assert(family->members >= family->lines[0].count + family->lines[1].count); /* I-3 */
}

/* --------------------------------------------------------------------------------------------------------------- the ring */

static void put_ring(once__relay_t *relay, once__relay_family_t *family, once__relay_family_t **at)
{
    family->ring_at = at;
    family->ring_next = *at;
    if (*at != NULL) {
        (*at)->ring_at = &family->ring_next;
    } else {
        relay->destinations.ring_end = &family->ring_next;
    }
    *at = family;
    relay->destinations.ring_count++;
}

static void take_ring(once__relay_t *relay, once__relay_family_t *family)
{
    if (family->ring_at == NULL) {
        return;
    }
    *family->ring_at = family->ring_next;
    if (family->ring_next != NULL) {
        family->ring_next->ring_at = family->ring_at;
    } else {
        relay->destinations.ring_end = family->ring_at;
    }
    family->ring_at = NULL;
    relay->destinations.ring_count--;
}

static void put_line(once__relay_t *relay, once__relay_destination_t *destination, int is_first)
{
    once__relay_family_t *family = destination->family;
    once__relay_line_t *line = &family->lines[destination->is_failing];
    once__relay_destination_t **at = is_first ? &line->first : line->end;

    destination->line_at = at;
    destination->line_next = *at;
    if (*at != NULL) {
        (*at)->line_at = &destination->line_next;
    } else {
        line->end = &destination->line_next;
    }
    *at = destination;
    line->count++;
    if (is_first) {
        take_ring(relay, family);
        put_ring(relay, family, &relay->destinations.ring_first);
    } else if (family->ring_at == NULL) {
        put_ring(relay, family, relay->destinations.ring_end);
    }
    assert_family_state(family);
}

static void take_line(once__relay_t *relay, once__relay_destination_t *destination)
{
    once__relay_family_t *family = destination->family;
    once__relay_line_t *line = &family->lines[destination->is_failing];

    if (destination->line_at == NULL) {
        return;
    }
    *destination->line_at = destination->line_next;
    if (destination->line_next != NULL) {
        destination->line_next->line_at = destination->line_at;
    } else {
        line->end = destination->line_at;
    }
    destination->line_at = NULL;
    line->count--;
    if (family->lines[0].count + family->lines[1].count == 0) {
        take_ring(relay, family);
    }
    assert_family_state(family);
}

void once__relay_destination_rings(once__relay_t *relay, once__relay_destination_t *destination,
                                   int is_first)
{
    if (is_first) {
        take_line(relay, destination);
        put_line(relay, destination, 1);
    } else if (destination->line_at == NULL && !destination->is_suspended) {
        put_line(relay, destination, 0);
    }
}

/* It changes lines, and what it has in flight counts there. */
static void set_failing(once__relay_t *relay, once__relay_destination_t *destination,
                        int is_failing)
{
    int was_in_line = destination->line_at != NULL;

    if (is_failing == destination->is_failing) {
        return;
    }
    take_line(relay, destination);
    destination->family->lines[destination->is_failing].sent -= destination->sent;
    destination->is_failing = is_failing;
    destination->family->lines[destination->is_failing].sent += destination->sent;
    if (was_in_line) {
        put_line(relay, destination, 0);
    }
}

/* ---------------------------------------------------------------------------------------------------- begin and end */

/* Its name is the destination without a key: what the template gives for the topic and the type alone. */
static once__relay_family_t *family_for(once__relay_t *relay, const once__relay_event_t *event)
{
    const once__broker_message_t message = {
        .topic = event->topic, .key = {"", 0}, .type = event->type};
    char name[NAME_MAX_BYTES];
    size_t len = once__broker_publisher_target(relay->publisher, &message, name, sizeof(name));
    uint64_t hash = once__hash_data(&relay->queues.seed, name, len);
    once__hash_node_t *node = once__hash_first(&relay->destinations.families, hash);
    once__relay_family_t *family;

    for (; node != NULL; node = once__hash_next(node)) {
        family = ONCE__CONTAINER(node, once__relay_family_t, node);
        if (family->name_len == len && memcmp(family->name, name, len) == 0) {
            return family;
        }
    }
    family = calloc(1, sizeof(*family) + len + 1);
    if (family != NULL) {
        memcpy(family->name, name, len);
        family->name_len = len;
        family->lines[0].end = &family->lines[0].first;
        family->lines[1].end = &family->lines[1].first;
        (void)once__hash_add(&relay->destinations.families, &family->node, hash);
    }
    return family;
}

static void release_family(once__relay_t *relay, once__relay_family_t *family)
{
    if (family->members == 0) {
        once__hash_remove(&relay->destinations.families, &family->node);
        free(family);
    }
}

static void leave_family(once__relay_t *relay, once__relay_destination_t *destination)
{
    take_line(relay, destination);
    destination->family->members--;
    release_family(relay, destination->family);
}

int once__relay_destinations_start(once__relay_t *relay)
{
    relay->destinations.ring_end = &relay->destinations.ring_first;
    if (once__hash_init(&relay->destinations.families, SIZE_MAX) != 0) {
        return -1;
    }
    return once__hash_init(&relay->destinations.table, SIZE_MAX);
}

void once__relay_destinations_end(once__relay_t *relay)
{
    once__hash_node_t *node = once__hash_each(&relay->destinations.table, NULL);

    while (node != NULL) {
        once__relay_destination_t *destination =
            ONCE__CONTAINER(node, once__relay_destination_t, node);
        node = once__hash_each(&relay->destinations.table, node);
        leave_family(relay, destination);
        free(destination->keyless);
        free(destination);
    }
    once__hash_free(&relay->destinations.table);
    once__hash_free(&relay->destinations.families);
}

static once__relay_destination_t *make_destination(once__relay_t *relay,
                                                   const once__relay_event_t *event,
                                                   const char *name, size_t len, uint64_t hash)
{
    once__relay_family_t *family = family_for(relay, event);
    once__relay_destination_t *destination =
        family != NULL ? calloc(1, sizeof(*destination) + len + 1) : NULL;

    if (destination != NULL) {
        memcpy(destination->name, name, len);
        destination->name_len = len;
        destination->family = family;
        family->members++;
        destination->ready = (once__relay_queue_list_t){.end = &destination->ready.first,
                                                        .destination = destination};
        destination->evicted = (once__relay_queue_list_t){.end = &destination->evicted.first,
                                                          .destination = destination};
        destination->round = ++relay->destinations.rounds;
        (void)once__hash_add(&relay->destinations.table, &destination->node, hash);
    } else if (family != NULL) {
        release_family(relay, family);
    }
    return destination;
}

once__relay_destination_t *once__relay_destination_for(once__relay_t *relay,
                                                       const once__relay_event_t *event)
{
    const once__broker_message_t message = {
        .topic = event->topic, .key = event->key, .type = event->type};
    char name[NAME_MAX_BYTES];
    size_t len = once__broker_publisher_target(relay->publisher, &message, name, sizeof(name));
    uint64_t hash = once__hash_data(&relay->queues.seed, name, len);
    once__hash_node_t *node = once__hash_first(&relay->destinations.table, hash);

    for (; node != NULL; node = once__hash_next(node)) {
        once__relay_destination_t *destination =
            ONCE__CONTAINER(node, once__relay_destination_t, node);
        if (destination->name_len == len && memcmp(destination->name, name, len) == 0) {
            return destination;
        }
    }
    return make_destination(relay, event, name, len, hash);
}

static void set_suspended(once__relay_t *relay, once__relay_destination_t *destination,
                          int is_suspended)
{
    if (is_suspended == destination->is_suspended) {
        return;
    }
    destination->is_suspended = is_suspended;
    if (is_suspended) {
        relay->destinations.suspended_count++;
        take_line(relay, destination);
        destination->suspended_at = &relay->destinations.suspended;
        destination->suspended_next = relay->destinations.suspended;
        if (destination->suspended_next != NULL) {
            destination->suspended_next->suspended_at = &destination->suspended_next;
        }
        relay->destinations.suspended = destination;
        return;
    }
    relay->destinations.suspended_count--;
    *destination->suspended_at = destination->suspended_next;
    if (destination->suspended_next != NULL) {
        destination->suspended_next->suspended_at = destination->suspended_at;
    }
}

void once__relay_destination_release(once__relay_t *relay, once__relay_destination_t *destination)
{
    if (destination == NULL || destination->events > 0 || destination->ready.first != NULL ||
        destination->evicted.first != NULL || destination->keyless != NULL) {
        return;
    }
    once__hash_remove(&relay->destinations.table, &destination->node);
    set_suspended(relay, destination, 0);
    leave_family(relay, destination);
    free(destination);
}

/* ------------------------------------------------------------------------------------------- what is left in the database */

/* All suspended destinations together have an eighth of the window, so that any number of them leaves room for the others. */
int once__relay_destination_evicts(const once__relay_t *relay,
                                   const once__relay_destination_t *destination)
{
    size_t share, keep;

    if (!destination->is_suspended) {
        return 0;
    }
    share = relay->options->window / 8 / relay->destinations.suspended_count;
    keep = share < 1 ? 1 : share < KEEP ? share : KEEP;
    return destination->events > keep;
}

int once__relay_destination_leave(once__relay_destination_t *destination,
                                  const once__relay_event_t *event)
{
    int64_t *first;

    if (destination->keyless == NULL) {
        destination->keyless = calloc(ONCE__RELAY_GROUPS, sizeof(destination->keyless[0]));
    }
    if (destination->keyless == NULL) {
        return 0;
    }
    first = &destination->keyless[event->group];
    *first = *first == 0 || event->seq < *first ? event->seq : *first;
    return 1;
}

/* Reads some queues again, and all events without a key: how many these are is not known. */
static void readmit(once__relay_t *relay, once__relay_destination_t *destination, size_t most)
{
    for (int16_t i = 0; destination->keyless != NULL && i < ONCE__RELAY_GROUPS; i++) {
        if (destination->keyless[i] != 0) {
            once__relay_fetch_back(relay, i, destination->keyless[i]);
        }
    }
    free(destination->keyless);
    destination->keyless = NULL;
    while (most-- > 0 && destination->evicted.first != NULL) {
        once__relay_queue_readmit(relay, destination->evicted.first);
    }
}

/* ---------------------------------------------------------------------------------------------------- suspending */

static void suspend(once__relay_t *relay, once__relay_destination_t *destination, uint64_t after_ms)
{
    uint64_t wait =
        once__backoff(destination->attempts++, SUSPEND_MIN_MS, SUSPEND_MAX_MS, (uint64_t)random());
    once__relay_queue_t *next;

    wait = after_ms > wait ? after_ms : wait;
    destination->until_ms = relay->now_ms + (wait < AFTER_MAX_MS ? wait : AFTER_MAX_MS);
    if (destination->is_suspended) {
        return;
    }
    set_suspended(relay, destination, 1);
    for (once__relay_queue_t *queue = destination->ready.first; queue != NULL; queue = next) {
        next = queue->list_next;
        once__relay_queue_trim(relay, queue);
        if (once__relay_destination_evicts(relay, destination) && queue->first != NULL &&
            queue->first->destination == destination) {
            (void)once__relay_queue_evict(relay, queue);
        }
    }
}

static void resume(once__relay_t *relay, once__relay_destination_t *destination)
{
    set_suspended(relay, destination, 0);
    destination->attempts = 0;
    readmit(relay, destination, SIZE_MAX);
    if (destination->ready.first != NULL) {
        once__relay_destination_rings(relay, destination, 0);
    }
}

static void took(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_destination_t *destination = event->destination;

    destination->round = ++relay->destinations.rounds;
    destination->failing = 0;
    set_failing(relay, destination, 0);
    destination->sick_since_ms = 0;
    destination->alive_ms = relay->now_ms;
    if (destination->is_suspended) {
        once__relay_report_event(relay, ONCE__SERVICE_LOG_INFO,
                                 "a suspended destination accepts events again", event, NULL);
        resume(relay, destination);
    }
}

static void refused(once__relay_t *relay, once__relay_event_t *event, int was_probe,
                    const char *reason, uint64_t after_ms)
{
    once__relay_destination_t *destination = event->destination;

    destination->sick_since_ms =
        destination->sick_since_ms != 0 ? destination->sick_since_ms : relay->now_ms;
    if (event->queue->failed_round != destination->round) {
        event->queue->failed_round = destination->round;
        destination->failing++;
        set_failing(relay, destination, 1);
    }
    if (!destination->is_suspended && destination->failing >= SUSPEND_AFTER) {
        once__relay_report_event(
            relay, ONCE__SERVICE_LOG_WARN,
            "a destination is suspended: events of several keys failed in a row", event, reason);
        suspend(relay, destination, after_ms);
    } else if (was_probe) {
        suspend(relay, destination, after_ms);
    }
}

void once__relay_destination_verdict(once__relay_t *relay, once__relay_event_t *event,
                                     once__broker_verdict_t verdict, const char *reason,
                                     uint64_t after_ms)
{
    int was_probe = event->is_probe;

    if (was_probe) {
        event->is_probe = 0;
        event->destination->is_probing = 0;
        relay->destinations.probes--;
    }
    if (verdict == ONCE__BROKER_PUBLISHED) {
        took(relay, event);
    } else if (verdict == ONCE__BROKER_LATER || verdict == ONCE__BROKER_FAILED) {
        refused(relay, event, was_probe && event->destination->is_suspended, reason, after_ms);
    }
}

int once__relay_destination_is_over(const once__relay_t *relay, const once__relay_event_t *event)
{
    uint64_t since = event->destination->sick_since_ms, patience = relay->options->give_up_ms;

    return since != 0 && relay->now_ms - since >= patience &&
           once__relay_event_age_us(relay, event) >= (int64_t)patience * 1000;
}

/* ------------------------------------------------------------------------------------------------------------ sending */

static int may_probe(const once__relay_t *relay)
{
    return relay->destinations.probes == 0 ||
           relay->destinations.probes < once__broker_publisher_most(relay->publisher) / 4;
}

/* Not more than three times what it leaves free, and one in any case. */
static int is_fair(const once__relay_t *relay, size_t sent)
{
    size_t room = once__broker_publisher_room(relay->publisher);

    return sent == 0 || (room > 1 && sent / 3 < room && sent < relay->options->window / 2);
}

static int may_send(const once__relay_t *relay, const once__relay_destination_t *destination)
{
    if (destination->is_suspended) {
        return relay->now_ms >= destination->until_ms && !destination->is_probing &&
               may_probe(relay);
    }
    return is_fair(relay, destination->sent);
}

/* Those of a family that failed have a quarter, so that they do not take everything from the others of the family. */
static int line_may_send(const once__relay_t *relay, const once__relay_family_t *family,
                         int is_failing)
{
    size_t failing = family->lines[1].sent;

    if (!is_fair(relay, family->lines[0].sent + failing)) {
        return 0;
    }
    return !is_failing || family->members == 1 || failing == 0 ||
           failing < once__broker_publisher_most(relay->publisher) / 4;
}

/* Probes go first, and do not depend on the share of their family. */
static once__relay_destination_t *take_from_line(once__relay_t *relay, once__relay_family_t *family,
                                                 int is_failing)
{
    for (size_t left = family->lines[is_failing].count; left > 0; left--) {
        once__relay_destination_t *destination = family->lines[is_failing].first;
        if (!destination->is_suspended && !line_may_send(relay, family, is_failing)) {
            return NULL;
        }
        take_line(relay, destination);
        if (may_send(relay, destination)) {
            return destination;
        }
        once__relay_destination_rings(relay, destination, 0);
    }
    return NULL;
}

once__relay_destination_t *once__relay_destination_turn(once__relay_t *relay)
{
    for (size_t left = relay->destinations.ring_count; left > 0; left--) {
        once__relay_family_t *family = relay->destinations.ring_first;
        once__relay_destination_t *destination;
        int is_failing = family->was_failing ? 0 : 1; /* the lines have turns, too */

        take_ring(relay, family);
        put_ring(relay, family, relay->destinations.ring_end);
        family->was_failing = is_failing;
        destination = take_from_line(relay, family, is_failing);
        if (destination == NULL && family->lines[!is_failing].count > 0) {
            destination = take_from_line(relay, family, !is_failing);
        }
        if (destination != NULL) {
            return destination;
        }
    }
    return NULL;
}

void once__relay_destination_sent(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_destination_t *destination = event->destination;

    destination->alive_ms = destination->sent == 0 ? relay->now_ms : destination->alive_ms;
    destination->sent++;
    destination->family->lines[destination->is_failing].sent++;
    if (destination->is_suspended) {
        event->is_probe = destination->is_probing = 1;
        relay->destinations.probes++;
    }
}

void once__relay_destination_over(const once__relay_event_t *event)
{
    event->destination->sent--;
    event->destination->family->lines[event->destination->is_failing].sent--;
}

/* Other destinations may have events in the database behind those that fill the memory. */
static void make_room(once__relay_t *relay)
{
    if (relay->outage.is_away || relay->now_ms < relay->destinations.room_ms ||
        once__relay_fetch_has_room(relay)) {
        return;
    }
    relay->destinations.room_ms = relay->now_ms + STALL_LOOK_MS;
    for (once__hash_node_t *node = NULL;
         (node = once__hash_each(&relay->destinations.table, node)) != NULL;) {
        once__relay_destination_t *destination =
            ONCE__CONTAINER(node, once__relay_destination_t, node);
        if (!destination->is_suspended && destination->sent > 0 && destination->events > KEEP &&
            relay->now_ms - destination->alive_ms >= STALL_MS) {
            once__service_log(&relay->log, ONCE__SERVICE_LOG_WARN,
                              "a destination is suspended: it accepts nothing and fills the memory",
                              ONCE__SERVICE_FIELDS(once__service_field_number(
                                  "events", (int64_t)destination->events)));
            suspend(relay, destination, 0);
        }
    }
}

uint64_t once__relay_destinations_wake(once__relay_t *relay)
{
    uint64_t soonest = UINT64_MAX;
    once__relay_destination_t *next;

    make_room(relay);
    for (once__relay_destination_t *destination = relay->destinations.suspended;
         destination != NULL && may_probe(relay); destination = next) {
        next = destination->suspended_next;
        if (destination->is_probing) {
            continue;
        }
        if (relay->now_ms < destination->until_ms) {
            soonest = destination->until_ms < soonest ? destination->until_ms : soonest;
        } else if (destination->ready.first != NULL) {
            once__relay_destination_rings(relay, destination, 1);
        } else if (destination->events == 0) {
            destination->until_ms = relay->now_ms + READ_MS;
            soonest = destination->until_ms < soonest ? destination->until_ms : soonest;
            readmit(relay, destination, KEEP);
            once__relay_destination_release(relay, destination);
        }
    }
    return soonest;
}
