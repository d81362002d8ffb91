/*
 * One row of a fetch as an event.
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

/* Events of one second are many: the second is written once. */
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

/* The server made strings of all values; there is no JSON of the application's in it. Slices point into the object. */
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
    event->group = once__get_int2(PQgetvalue(result, row, GRP));
    event->seq = once__get_int8(PQgetvalue(result, row, SEQ));
    event->at_us = once__get_int8(PQgetvalue(result, row, AT));
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
