/*
 * One event: read from a row of a fetch, known by its number while it is in memory, in a list of removals.c when it is done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/uuid.h"
#include "relay/internal.h"

#define SECONDS_TO_2000 946684800LL

enum { GRP, SEQ, PLACE, ID, AT, TOPIC, KEY, TYPE, PAYLOAD, HEADERS, CAUSE };

static once_slice_t column(const PGresult *result, int row, int field)
{
    if (PQgetisnull(result, row, field)) {
        return (once_slice_t){NULL, 0};
    }
    return (once_slice_t){PQgetvalue(result, row, field), (size_t)PQgetlength(result, row, field)};
}

/* There are many events in a second: its text is kept. */
static void write_time(char *out, size_t size, int64_t at_us)
{
    static _Thread_local time_t known = -1;
    static _Thread_local char text[24];
    time_t seconds = (time_t)(at_us / 1000000 + SECONDS_TO_2000 - (at_us % 1000000 < 0));
    long us = (long)((at_us % 1000000 + 1000000) % 1000000);
    struct tm utc;

    if (seconds != known) {
        gmtime_r(&seconds, &utc);
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
        known = seconds;
    }
    snprintf(out, size, "%s.%06ldZ", text, us);
}

/* The server has turned all values into strings: nothing in it is JSON of the application. Slices point into the object. */
static int read_headers(once__relay_event_t *event, const char *text, size_t len)
{
    const char *name;
    json_t *value;

    if (len <= 2) {
        return 0;
    }
    event->json = json_loadb(text, len, 0, NULL);
    event->pairs = calloc(json_object_size(event->json) + 1, sizeof(event->pairs[0]));
    if (event->json == NULL || event->pairs == NULL) {
        return -1;
    }
    json_object_foreach(event->json, name, value)
    {
        if (json_is_string(value)) {
            event->pairs[event->pair_count++] = (once__broker_pair_t){
                .name = {name, strlen(name)},
                .value = {json_string_value(value), json_string_length(value)},
            };
        }
    }
    return 0;
}

int once__relay_event_read(once__relay_event_t *event, const PGresult *result, int row)
{
    event->group = (int16_t)once__pg_int(result, row, GRP);
    event->seq = once__pg_int(result, row, SEQ);
    event->at_us = once__pg_int(result, row, AT);
    memcpy(event->place, PQgetvalue(result, row, PLACE), sizeof(event->place));
    memcpy(event->id, PQgetvalue(result, row, ID), sizeof(event->id));
    event->topic = column(result, row, TOPIC);
    event->key = column(result, row, KEY);
    event->type = column(result, row, TYPE);
    event->payload = column(result, row, PAYLOAD);
    event->cause = column(result, row, CAUSE);
    once__uuid_text(event->id_text, event->id);
    write_time(event->time_text, sizeof(event->time_text), event->at_us);
    return read_headers(event, PQgetvalue(result, row, HEADERS),
                        (size_t)PQgetlength(result, row, HEADERS));
}

/* ------------------------------------------------------------------------------------------------------------- memory */

once__relay_event_t *once__relay_event_known(once__relay_t *relay, int64_t seq,
                                             const unsigned char *id)
{
    once__hash_node_t *node =
        once__hash_first(&relay->event_table, once__hash_number((uint64_t)seq));

    for (; node != NULL; node = once__hash_next(node)) {
        once__relay_event_t *event = ONCE__CONTAINER(node, once__relay_event_t, node);
        if (event->seq == seq && memcmp(event->id, id, sizeof(event->id)) == 0) {
            return event;
        }
    }
    return NULL;
}

void once__relay_event_keep(once__relay_t *relay, once__relay_event_t *event,
                            once__relay_queue_t *queue)
{
    event->queue = queue;
    (void)once__hash_add(&relay->event_table, &event->node,
                         once__hash_number((uint64_t)event->seq));
    relay->groups[event->group].events++;
    relay->events++;
    relay->bytes += event->payload.len;
    event->destination->events++;
}

void once__relay_event_forget(once__relay_t *relay, once__relay_event_t *event)
{
    once__relay_queue_t *queue = event->queue;

    once__hash_remove(&relay->event_table, &event->node);
    relay->groups[event->group].events--;
    relay->events--;
    relay->bytes -= event->payload.len;
    event->destination->events--;
    once__relay_destination_release(relay, event->destination);
    json_decref(event->json);
    free(event->pairs);
    free(event->reason);
    once__relay_batch_release(event->batch);
    once__relay_queue_known(relay, queue);
}

void once__relay_batch_release(once__relay_batch_t *batch)
{
    if (--batch->refs == 0) {
        PQclear(batch->result);
        free(batch->events);
        free(batch);
    }
}

int64_t once__relay_event_age_us(const once__relay_t *relay, const once__relay_event_t *event)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)(now.tv_sec - SECONDS_TO_2000) * 1000000 + now.tv_nsec / 1000 +
           relay->clock_ahead_us - event->at_us;
}

/* -------------------------------------------------------------------------------------------------------------- lists */

once__relay_event_t *once__relay_event_list_take(once__relay_event_list_t *list)
{
    once__relay_event_t *event = list->first;

    once__list_drop(list);
    return event;
}
