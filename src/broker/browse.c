#include "broker/browse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "broker/dead_letter.h"
#include "broker/internal.h"

int once__broker_browse(const char *url, int all, once__broker_browse_cb *each, void *data,
                        char *error, size_t size)
{
    once__url_t parsed;
    int code = once__broker_url_read(&parsed, url, error, size);

    if (code == 0 && strcmp(parsed.scheme, "kafka") == 0) {
        code = once__kafka_browse(&parsed, all, each, data, error, size);
    } else if (code == 0 && strncmp(parsed.scheme, "amqp", 4) == 0) {
        code = once__amqp_browse(&parsed, each, data, error, size);
    } else if (code == 0) {
        snprintf(error, size, "the URL must be kafka://, amqp:// or amqps://");
        code = -1;
    }
    once__url_free(&parsed);
    return code;
}

int once__broker_browse_one(const char *url, const char *topic, int32_t partition, int64_t offset,
                            once__broker_browse_cb *each, void *data, char *error, size_t size)
{
    once__url_t parsed;
    int code = once__broker_url_read(&parsed, url, error, size);

    if (code == 0 && strcmp(parsed.scheme, "kafka") == 0) {
        code = once__kafka_browse_one(&parsed, topic, partition, offset, each, data, error, size);
    } else if (code == 0) {
        snprintf(error, size, "a queue does not keep messages that were acknowledged");
        code = -1;
    }
    once__url_free(&parsed);
    return code;
}

char *once__broker_browse_publish_url(const char *url)
{
    once__url_t parsed;
    char error[200], *made = NULL;

    if (once__broker_url_read(&parsed, url, error, sizeof(error)) == 0) {
        made = once__broker_publish_url(&parsed);
    }
    once__url_free(&parsed);
    return made;
}

int once__broker_browse_name(const char *url, char *name, char *error, size_t size)
{
    once__url_t parsed;
    int code = once__broker_url_read(&parsed, url, error, size);

    if (code == 0 && strncmp(parsed.scheme, "amqp", 4) == 0) {
        code = once__amqp_queue_name(&parsed, name, error, size);
    } else if (code == 0 && strlen(parsed.path) < ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE) {
        snprintf(name, ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE, "%s", parsed.path);
    } else if (code == 0) {
        snprintf(error, size, "the name of the topic is too long");
        code = -1;
    }
    once__url_free(&parsed);
    return code;
}

void once__broker_browsed_add(void *data, once_slice_t name, once_slice_t value)
{
    once__broker_browsed_t *message = data;

    if (message->header_count < ONCE__BROKER_BROWSE_HEADERS_MAX) {
        message->headers[message->header_count++] = (once__broker_pair_t){name, value};
    }
}

once_slice_t once__broker_browsed_header(const once__broker_browsed_t *message, const char *name)
{
    for (size_t i = 0; i < message->header_count; i++) {
        once_slice_t found = message->headers[i].name;
        if (found.len == strlen(name) && strncasecmp(found.data, name, found.len) == 0) {
            return message->headers[i].value;
        }
    }
    return (once_slice_t){NULL, 0};
}
