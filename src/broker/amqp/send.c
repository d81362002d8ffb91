/*
 * One message as RabbitMQ takes it: persistent, mandatory, with its attributes as headers.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/amqp/internal.h"

#define NAME_MAX_LEN    128
#define FIELD_SIZE      6    /* of a header, beside name and value */
#define PROPERTIES_SIZE 1024 /* of everything but the headers, at most */

typedef struct table {
    amqp_table_entry_t *entries;
    int count, room;
    char *names; /* CloudEvents' names are made for the call only */
    size_t names_len;
} table_t;

static amqp_bytes_t bytes_of(once_slice_t slice)
{
    return (amqp_bytes_t){.len = slice.len, .bytes = (void *)(uintptr_t)slice.data};
}

static void add_header(void *data, once_slice_t name, once_slice_t value)
{
    table_t *table = data;
    char *copy = table->names + table->names_len;

    if (table->count == table->room || name.len == 0 || name.len > NAME_MAX_LEN) {
        return;
    }
    memcpy(copy, name.data, name.len);
    table->names_len += name.len;
    table->entries[table->count++] = (amqp_table_entry_t){
        .key = {.len = name.len, .bytes = copy},
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = bytes_of(value)},
    };
}

static void add_size(void *data, once_slice_t name, once_slice_t value)
{
    *(size_t *)data += name.len + value.len + FIELD_SIZE;
}

/* librabbitmq would find out when the half of it is sent, and the connection would be lost with all that is under way. */
const char *once__amqp_unfit(once__amqp_t *amqp, const once__broker_message_t *message)
{
    size_t size = PROPERTIES_SIZE + message->key.len;

    if (once__broker_message_content_type(message).len > 255) {
        return "a content type has at most 255 bytes";
    }
    once__broker_message_headers(message, "ce_", add_size, &size);
    return size > (size_t)amqp_get_frame_max(amqp->connection)
               ? "its headers do not fit in a frame of AMQP"
               : NULL;
}

int once__amqp_send(once__amqp_t *amqp, const once__amqp_job_t *job)
{
    const once__broker_message_t *message = &job->message;
    int room = (int)message->header_count + 8;
    table_t table = {.room = room};
    amqp_basic_properties_t properties = {
        ._flags =
            AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG,
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
        .content_type = bytes_of(once__broker_message_content_type(message)),
    };
    int status;

    table.entries = calloc((size_t)room, sizeof(table.entries[0]));
    table.names = malloc((size_t)room * NAME_MAX_LEN);
    if (table.entries == NULL || table.names == NULL) {
        free(table.entries);
        free(table.names);
        return AMQP_STATUS_NO_MEMORY;
    }
    once__broker_message_headers(message, "ce_", add_header, &table);
    if (message->id.data != NULL && message->key.data != NULL) { /* AMQP has no place for it */
        add_header(&table, (once_slice_t){"ce_partitionkey", 15}, message->key);
    }
    properties.headers = (amqp_table_t){.num_entries = table.count, .entries = table.entries};
    if (message->id.data != NULL) {
        properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
        properties.message_id = bytes_of(message->id);
    }
    if (message->type.data != NULL && message->type.len < 256) {
        properties._flags |= AMQP_BASIC_TYPE_FLAG;
        properties.type = bytes_of(message->type);
    }
    status = amqp_basic_publish(amqp->connection, 1, amqp_cstring_bytes(amqp->exchange),
                                amqp_cstring_bytes(job->routing_key), 1, 0, &properties,
                                bytes_of(message->payload));
    free(table.entries);
    free(table.names);
    return status;
}
