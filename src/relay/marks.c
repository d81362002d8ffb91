/*
 * Removing from the outbox what was published, and moving what was given up. Nothing is removed before the broker confirmed it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/internal.h"

#define MARKS_MAX 20000 /* in one statement */
#define RETRY_MS  1000

static const char published_statement[] = "SELECT once.relay_published($1, $2, $3, $4)";
static const char dead_statement[] = "SELECT once.relay_dead($1, $2, $3, $4, $5)";

void once__relay_event_list_init(once__relay_event_list_t *list)
{
    list->first = NULL;
    list->end = &list->first;
    list->count = 0;
}

void once__relay_event_list_add(once__relay_event_list_t *list, once__relay_event_t *event)
{
    event->next = NULL;
    *list->end = event;
    list->end = &event->next;
    list->count++;
}

static once__relay_event_t *list_take(once__relay_event_list_t *list)
{
    once__relay_event_t *event = list->first;

    list->first = event->next;
    list->end = list->first == NULL ? &list->first : list->end;
    list->count--;
    return event;
}

void once__relay_marks_add(once__relay_t *relay, once__relay_event_t *event)
{
    event->state = ONCE__RELAY_EVENT_DONE;
    once__relay_event_list_add(&relay->done, event);
}

void once__relay_marks_give_up(once__relay_t *relay, once__relay_event_t *event, const char *reason)
{
    event->state = ONCE__RELAY_EVENT_DONE;
    free(event->reason);
    event->reason = strdup(reason);
    for (char *at = event->reason; at != NULL && *at != '\0'; at++) {
        if (*at < 0x20 || *at >= 0x7f) {
            *at = '?'; /* a sentence of the other side that was cut is no text for the database */
        }
    }
    once__relay_event_list_add(&relay->dead, event);
}

int once__relay_marks_empty(const once__relay_t *relay)
{
    return relay->done.count + relay->dead.count + relay->marking.count == 0;
}

/* A fetch that began before a row was removed may still see it; until it has ended the event stays known. */
void once__relay_marks_fetched(once__relay_t *relay)
{
    while (relay->gone.count > 0) {
        once__relay_event_forget(relay, list_take(&relay->gone));
    }
}

static void removed(once__relay_t *relay)
{
    while (relay->marking.count > 0) {
        once__relay_event_t *event = list_take(&relay->marking);
        if (relay->marking_dead) {
            once__relay_report_event(relay, ONCE__SERVICE_LOG_ERROR, "event is dead", event,
                                     event->reason);
            once__service_metric_count(relay->m_dead, 1);
        }
        event->state = ONCE__RELAY_EVENT_GONE;
        once__relay_event_list_add(&relay->gone, event);
    }
    if (!relay->fetching) {
        once__relay_marks_fetched(relay);
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
            relay->mark_retry_ms = relay->now_ms + RETRY_MS;
        }
        while (relay->marking.count > 0) {
            once__relay_event_list_add(relay->marking_dead ? &relay->dead : &relay->done,
                                       list_take(&relay->marking));
        }
    }
    PQclear(result);
}

static void send_published(once__relay_t *relay)
{
    static const Oid types[] = {ONCE__OID_TID_ARRAY, ONCE__OID_INT2_ARRAY, ONCE__OID_INT8_ARRAY,
                                ONCE__OID_UUID_ARRAY};
    static const uint32_t elements[] = {ONCE__OID_TID, ONCE__OID_INT2, ONCE__OID_INT8,
                                        ONCE__OID_UUID};
    static const int formats[] = {1, 1, 1, 1};
    once__array_t arrays[4] = {{0}};
    const char *values[4];
    int lengths[4], failed = 0;

    for (int i = 0; i < 4; i++) {
        once__array_start(&arrays[i], elements[i]);
    }
    while (relay->done.count > 0 && relay->marking.count < MARKS_MAX) {
        once__relay_event_t *event = list_take(&relay->done);
        once__array_put(&arrays[0], event->place, sizeof(event->place));
        once__array_put_int2(&arrays[1], event->group);
        once__array_put_int8(&arrays[2], event->seq);
        once__array_put(&arrays[3], event->id, sizeof(event->id));
        once__relay_event_list_add(&relay->marking, event);
    }
    for (int i = 0; i < 4; i++) {
        values[i] = arrays[i].data;
        lengths[i] = (int)arrays[i].len;
        failed |= arrays[i].failed;
    }
    relay->marking_dead = 0;
    if (failed || once__link_send(&relay->mark, relay->now_ms, published_statement, 4, types,
                                  values, lengths, formats, 0, take_answer, relay) != 0) {
        take_answer(relay, NULL);
    }
    for (int i = 0; i < 4; i++) {
        once__array_free(&arrays[i]);
    }
}

static void send_dead(once__relay_t *relay)
{
    once__relay_event_t *event = list_take(&relay->dead);
    char group[8], seq[24], tries[16];
    const char *values[] = {group, seq, event->id_text, tries,
                            event->reason != NULL ? event->reason : ""};

    snprintf(group, sizeof(group), "%d", event->group);
    snprintf(seq, sizeof(seq), "%lld", (long long)event->seq);
    snprintf(tries, sizeof(tries), "%u", event->tries);
    once__relay_event_list_add(&relay->marking, event);
    relay->marking_dead = 1;
    if (once__link_send(&relay->mark, relay->now_ms, dead_statement, 5, NULL, values, NULL, NULL, 0,
                        take_answer, relay) != 0) {
        take_answer(relay, NULL);
    }
}

void once__relay_marks_turn(once__relay_t *relay)
{
    if (relay->mark.state != ONCE__LINK_IDLE || relay->marking.count > 0 ||
        relay->now_ms < relay->mark_retry_ms) {
        return;
    }
    /* In turns: a dead event that the database does not take keeps nothing else from being removed. */
    if (relay->dead.count > 0 && (!relay->marking_dead || relay->done.count == 0)) {
        send_dead(relay);
    } else if (relay->done.count > 0) {
        send_published(relay);
    }
}
