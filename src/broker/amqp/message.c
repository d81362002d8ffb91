/*
 * Messages of RabbitMQ. Outgoing ones are persistent and mandatory, with their attributes as headers; of incoming ones the headers
 * that are text or whole numbers are read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/amqp/internal.h"

#define NAME_MAX_LEN    128
#define NUMBER_SIZE     24   /* of an integer as text */
#define FIELD_SIZE      6    /* of a header, beside name and value */
#define PROPERTIES_SIZE 1024 /* an upper bound of everything but the headers */

/* ---------------------------------------------------------------------------------------------------------- outgoing */

typedef struct table {
    amqp_table_entry_t *entries;
    int count, room;
    char *names; /* copies: names of CloudEvents attributes exist during the call only */
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

/* librabbitmq would find out with half of it sent, and the connection would be lost with all that is in flight. */
const char *once__amqp_unfit(once__amqp_t *amqp, const once__broker_message_t *message)
{
    size_t size = PROPERTIES_SIZE + message->key.len;

    if (once__broker_message_content_type(message).len > 255) {
        return "a content type can have at most 255 bytes";
    }
    once__broker_message_headers(message, "ce_", add_size, &size);
    return size > (size_t)amqp_get_frame_max(amqp->connection)
               ? "its headers do not fit into an AMQP frame"
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
    if (message->id.data != NULL && message->key.data != NULL) { /* AMQP has no field for the key */
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
    status = amqp_basic_publish(amqp->connection, 1, amqp_cstring_bytes(amqp->target.name),
                                amqp_cstring_bytes(job->routing_key), 1, 0, &properties,
                                bytes_of(message->payload));
    free(table.entries);
    free(table.names);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- incoming */

once_slice_t once__amqp_slice(amqp_bytes_t bytes)
{
    return (once_slice_t){bytes.bytes != NULL ? bytes.bytes : "", bytes.len};
}

static int64_t integer(const amqp_field_value_t *value)
{
    switch (value->kind) {
    case AMQP_FIELD_KIND_I8:
        return value->value.i8;
    case AMQP_FIELD_KIND_U8:
        return value->value.u8;
    case AMQP_FIELD_KIND_I16:
        return value->value.i16;
    case AMQP_FIELD_KIND_U16:
        return value->value.u16;
    case AMQP_FIELD_KIND_I32:
        return value->value.i32;
    case AMQP_FIELD_KIND_U32:
        return value->value.u32;
    default:
        return value->value.i64;
    }
}

/* Returns 0 if it is neither text nor a whole number. */
static int value_text(const amqp_field_value_t *value, amqp_pool_t *pool, once_slice_t *slice)
{
    static const char integers[] = {
        AMQP_FIELD_KIND_I8,  AMQP_FIELD_KIND_U8,  AMQP_FIELD_KIND_I16, AMQP_FIELD_KIND_U16,
        AMQP_FIELD_KIND_I32, AMQP_FIELD_KIND_U32, AMQP_FIELD_KIND_I64, '\0'};
    char *text;

    if (value->kind == AMQP_FIELD_KIND_UTF8 || value->kind == AMQP_FIELD_KIND_BYTES) {
        *slice = once__amqp_slice(value->value.bytes);
        return 1;
    }
    if (value->kind == 0 || strchr(integers, value->kind) == NULL) {
        return 0;
    }
    text = amqp_pool_alloc(pool, NUMBER_SIZE);
    if (text == NULL) {
        return 0;
    }
    snprintf(text, NUMBER_SIZE, "%" PRId64, integer(value));
    *slice = (once_slice_t){text, strlen(text)};
    return 1;
}

void once__amqp_headers(amqp_message_t *message,
                        void (*each)(void *data, once_slice_t name, once_slice_t value), void *data)
{
    const amqp_basic_properties_t *properties = &message->properties;
    const struct {
        amqp_flags_t flag;
        const char *name;
        amqp_bytes_t value;
    } own[] = {
        {AMQP_BASIC_MESSAGE_ID_FLAG, "message-id", properties->message_id},
        {AMQP_BASIC_CORRELATION_ID_FLAG, "correlation-id", properties->correlation_id},
        {AMQP_BASIC_TYPE_FLAG, "type", properties->type},
        {AMQP_BASIC_CONTENT_TYPE_FLAG, "content-type", properties->content_type},
    };
    once_slice_t value;

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (properties->_flags & own[i].flag) {
            each(data, (once_slice_t){own[i].name, strlen(own[i].name)},
                 once__amqp_slice(own[i].value));
        }
    }
    if (properties->_flags & AMQP_BASIC_HEADERS_FLAG) {
        for (int i = 0; i < properties->headers.num_entries; i++) {
            const amqp_table_entry_t *entry = &properties->headers.entries[i];
            if (value_text(&entry->value, &message->pool, &value)) {
                each(data, once__amqp_slice(entry->key), value);
            }
        }
    }
}
