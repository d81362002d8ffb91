#include "broker/browse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "broker/dead_letter.h"
#include "broker/internal.h"

int once__broker_browse(const char *url, int all, once__broker_browse_cb *each, void *data,
                        char *error, size_t size)
{
    once__url_t address;
    int code = once__broker_url_read(&address, url, error, size);

    if (code == 0 && strcmp(address.scheme, "kafka") == 0) {
        code = once__kafka_browse(&address, all, each, data, error, size);
    } else if (code == 0 && strncmp(address.scheme, "amqp", 4) == 0) {
        code = once__amqp_browse(&address, each, data, error, size);
    } else if (code == 0) {
        snprintf(error, size, "it is kafka://, amqp:// or amqps://");
        code = -1;
    }
    once__url_free(&address);
    return code;
}

int once__broker_browse_one(const char *url, const char *topic, int32_t partition, int64_t offset,
                            once__broker_browse_cb *each, void *data, char *error, size_t size)
{
    once__url_t address;
    int code = once__broker_url_read(&address, url, error, size);

    if (code == 0 && strcmp(address.scheme, "kafka") == 0) {
        code = once__kafka_browse_one(&address, topic, partition, offset, each, data, error, size);
    } else if (code == 0) {
        snprintf(error, size, "a queue does not keep what was taken out of it");
        code = -1;
    }
    once__url_free(&address);
    return code;
}

char *once__broker_browse_publish_url(const char *url)
{
    once__url_t address;
    char error[200], *made = NULL;

    if (once__broker_url_read(&address, url, error, sizeof(error)) == 0) {
        made = once__broker_publish_url(&address);
    }
    once__url_free(&address);
    return made;
}

int once__broker_browse_name(const char *url, char *name, char *error, size_t size)
{
    once__url_t address;
    int code = once__broker_url_read(&address, url, error, size);

    if (code == 0 && strncmp(address.scheme, "amqp", 4) == 0) {
        code = once__amqp_queue_name(&address, name, error, size);
    } else if (code == 0 && strlen(address.path) < ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE) {
        snprintf(name, ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE, "%s", address.path);
    } else if (code == 0) {
        snprintf(error, size, "the name of the topic is too long");
        code = -1;
    }
    once__url_free(&address);
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
