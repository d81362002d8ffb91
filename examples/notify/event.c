#include "event.h"

#include <string.h>
#include <strings.h>

#define NAME_MAX_LEN 128 /* of an id or a type; both are parts of keys and log lines */

static const char *first(const char *a, const char *b)
{
    return a != NULL ? a : b;
}

static const char *member(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* Visible ASCII: what a header, a key and a log line can hold. */
static const char *usable(const char *text)
{
    size_t len = text != NULL ? strlen(text) : 0;

    if (len == 0 || len > NAME_MAX_LEN) {
        return "";
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (*c <= 0x20 || *c >= 0x7f) {
            return "";
        }
    }
    return text;
}

static int structured(const char *content_type)
{
    static const char name[] = "application/cloudevents+json";

    return content_type != NULL && strncasecmp(content_type, name, sizeof(name) - 1) == 0;
}

static void name_event(event_t *event, event_header_t *header, void *data)
{
    const char *key = header(data, "Idempotency-Key");
    once_slice_t value = {key, key != NULL ? strlen(key) : 0};

    if (once_key_parse(&value, key != NULL, 0, &event->key, NULL) != ONCE_OK) {
        event->key.text[0] = '\0'; /* the event's id is what counts */
    }
    event->payload = event->document;
    if (structured(header(data, "Content-Type"))) {
        event->id = member(event->document, "id");
        event->type = member(event->document, "type");
        event->payload = json_object_get(event->document, "data");
        return;
    }
    event->id = first(header(data, "ce-id"), header(data, "ce_id"));
    event->type = first(header(data, "ce-type"), header(data, "ce_type"));
    if (event->id == NULL) {
        event->id = first(member(event->document, "event_id"), member(event->document, "id"));
    }
    if (event->type == NULL) {
        event->type = member(event->document, "type");
    }
}

int event_read(event_t *event, event_header_t *header, void *data, const char *body, size_t len,
               problem_t *problem)
{
    json_error_t error;

    *event = (event_t){.body = body, .body_len = len};
    event->document = json_loadb(body, len, JSON_REJECT_DUPLICATES, &error);
    name_event(event, header, data);
    event->id = usable(event->id);
    event->type = usable(event->type);
    event->traceparent = usable(header(data, "traceparent"));
    if (!json_is_object(event->document)) {
        return problem_set(problem, 400, PROBLEM_BAD_EVENT, "the body is not a JSON object");
    }
    if (!json_is_object(event->payload)) {
        return problem_set(problem, 422, PROBLEM_BAD_EVENT, "the member data is not a JSON object");
    }
    if (event->id[0] == '\0') {
        return problem_set(
            problem, 422, PROBLEM_BAD_EVENT,
            "no event id: ce-id, or event_id in the payload; 1 to 128 visible characters");
    }
    if (event->type[0] == '\0') {
        return problem_set(problem, 422, PROBLEM_BAD_EVENT,
                           "no type: ce-type, or type in the payload; 1 to 128 visible characters");
    }
    return 0;
}

void event_free(event_t *event)
{
    json_decref(event->document);
}
