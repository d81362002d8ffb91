/*
 * Removing from the outbox what was published, and moving what was given up to the dead events. Nothing is removed before the
 * broker confirmed it.
 *
 * An event passes through the lists in this order:
 *
 *   done or dead   to be removed, or to be moved
 *   removing       in the statement that is in flight; if that fails, back to where it came from
 *   gone           the database has forgotten it; forgotten here, too, when no fetch is in flight that may still see it
 *
 * Invariants, which assert_removals_state() checks in every turn and when a statement is answered:
 *
 *   I-1  A list is empty if and only if its count is 0 and its end is its beginning.
 *   I-2  Events are DONE in the first three lists and GONE in the last.
 *   I-3  A statement removes at most REMOVALS_MAX events, or moves one.
 *   I-4  Events are gone and still known only while a fetch is in flight.
 *   I-5  All of them are in memory, and none of them is at the publisher.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/internal.h"

#define REMOVALS_MAX 20000 /* in one statement */
#define RETRY_MS     1000

static const char published_statement[] = "SELECT once.relay_published($1, $2, $3, $4)";
static const char traced_statement[] = "SELECT once.relay_published($1, $2, $3, $4, $5)";
static const char dead_statement[] = "SELECT once.relay_dead($1, $2, $3, $4, $5)";

static void assert_list_state(const once__relay_event_list_t *list, once__relay_event_state_t state)
{
    assert((list->first == NULL) == (list->count == 0)); /* I-1 */
    assert((list->end == &list->first) == (list->count == 0));
    assert(list->first == NULL || list->first->state == state); /* I-2 */
}

static void assert_removals_state(const once__relay_t *relay)
{
    const once__relay_removals_t *removals = &relay->removals;

    assert_list_state(&removals->done, ONCE__RELAY_EVENT_DONE);
    assert_list_state(&removals->dead, ONCE__RELAY_EVENT_DONE);
    assert_list_state(&removals->removing, ONCE__RELAY_EVENT_DONE);
    assert_list_state(&removals->gone, ONCE__RELAY_EVENT_GONE);
    assert(removals->removing.count <= (removals->removing_dead ? 1 : REMOVALS_MAX)); /* I-3 */
    assert(removals->gone.count == 0 || relay->reading.is_under_way);                 /* I-4 */
    assert(removals->done.count + removals->dead.count + removals->removing.count +
               removals->gone.count + relay->sent <=
           relay->events); /* I-5 */
}

void once__relay_removals_start(once__relay_t *relay)
{
    once__list_init(&relay->removals.done);
    once__list_init(&relay->removals.dead);
    once__list_init(&relay->removals.removing);
    once__list_init(&relay->removals.gone);
}

void once__relay_removals_add(once__relay_t *relay, once__relay_event_t *event)
{
    event->state = ONCE__RELAY_EVENT_DONE;
    once__list_add(&relay->removals.done, event);
}

void once__relay_removals_give_up(once__relay_t *relay, once__relay_event_t *event,
                                  const char *reason)
{
    event->state = ONCE__RELAY_EVENT_DONE;
    free(event->reason);
    event->reason = strdup(reason);
    for (char *at = event->reason; at != NULL && *at != '\0'; at++) {
        if (*at < 0x20 || *at >= 0x7f) {
            *at = '?'; /* it may be cut in the middle of a character */
        }
    }
    once__list_add(&relay->removals.dead, event);
}

int once__relay_removals_empty(const once__relay_t *relay)
{
    return relay->removals.done.count + relay->removals.dead.count +
               relay->removals.removing.count ==
           0;
}

/* A fetch that started before a row was removed may still see it: until it is answered the event stays known. */
void once__relay_removals_fetched(once__relay_t *relay)
{
    while (relay->removals.gone.count > 0) {
        once__relay_event_forget(relay, once__relay_event_list_take(&relay->removals.gone));
    }
}

static void removed(once__relay_t *relay)
{
    while (relay->removals.removing.count > 0) {
        once__relay_event_t *event = once__relay_event_list_take(&relay->removals.removing);
        if (relay->removals.removing_dead) {
            once__relay_report_event(relay, ONCE__SERVICE_LOG_ERROR, "event is dead", event,
                                     event->reason);
            once__service_metric_count(relay->report.dead, 1);
        }
        event->state = ONCE__RELAY_EVENT_GONE;
        once__list_add(&relay->removals.gone, event);
    }
    if (!relay->reading.is_under_way) {
        once__relay_removals_fetched(relay);
    }
}

static void take_answer(void *data, PGresult *result)
{
    once__relay_t *relay = data;

    if (PQresultStatus(result) == PGRES_TUPLES_OK) {
        removed(relay);
    } else {
        if (result != NULL) {
            once__relay_report_database(relay, result);
            relay->removals.retry_ms = relay->now_ms + RETRY_MS;
        }
        once__list_move(relay->removals.removing_dead ? &relay->removals.dead
                                                      : &relay->removals.done,
                        &relay->removals.removing);
    }
    PQclear(result);
    assert_removals_state(relay);
}

static void send(once__relay_t *relay, const char *statement)
{
    if (once__relay_link_send(&relay->remove, statement, &relay->params, 0, take_answer, relay) !=
        0) {
        take_answer(relay, NULL);
    }
}

static void send_published(once__relay_t *relay)
{
    once__pg_params_t *params = &relay->params;
    once__pg_value_t *places, *groups, *seqs, *ids;

    once__pg_params_reset(params);
    places = once__pg_array(params, ONCE__PG_TIDS);
    groups = once__pg_array(params, ONCE__PG_INT2S);
    seqs = once__pg_array(params, ONCE__PG_INT8S);
    ids = once__pg_array(params, ONCE__PG_UUIDS);
    while (relay->removals.done.count > 0 && relay->removals.removing.count < REMOVALS_MAX) {
        once__relay_event_t *event = once__relay_event_list_take(&relay->removals.done);
        once__pg_element(places, event->place, sizeof(event->place));
        once__pg_element_int(groups, (uint64_t)event->group, 2);
        once__pg_element_int(seqs, (uint64_t)event->seq, 8);
        once__pg_element(ids, event->id, sizeof(event->id));
        once__list_add(&relay->removals.removing, event);
    }
    relay->removals.removing_dead = 0;
    if (relay->options->trace) {
        once__pg_param_text(params, once__broker_publisher_name(relay->publisher));
    }
    send(relay, relay->options->trace ? traced_statement : published_statement);
}

static void send_dead(once__relay_t *relay)
{
    once__relay_event_t *event = once__relay_event_list_take(&relay->removals.dead);
    once__pg_params_t *params = &relay->params;

    once__pg_params_reset(params);
    once__pg_param_int(params, ONCE__PG_INT2, (uint64_t)event->group, 2);
    once__pg_param_int(params, ONCE__PG_INT8, (uint64_t)event->seq, 8);
    once__pg_put(once__pg_param(params, ONCE__PG_UUID), event->id, sizeof(event->id));
    once__pg_param_int(params, ONCE__PG_INT4, event->tries, 4);
    once__pg_param_text(params, event->reason != NULL ? event->reason : "");
    once__list_add(&relay->removals.removing, event);
    relay->removals.removing_dead = 1;
    send(relay, dead_statement);
}

void once__relay_removals_turn(once__relay_t *relay)
{
    assert_removals_state(relay);
    if (!once__relay_link_is_idle(&relay->remove) || relay->removals.removing.count > 0 ||
        relay->now_ms < relay->removals.retry_ms) {
        return;
    }
    /* In turns: a dead event that the database does not accept must not keep others from being removed. */
    if (relay->removals.dead.count > 0 &&
        (!relay->removals.removing_dead || relay->removals.done.count == 0)) {
        send_dead(relay);
    } else if (relay->removals.done.count > 0) {
        send_published(relay);
    }
}
