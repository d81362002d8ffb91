#include "broker/amqp/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/text.h"
#include "broker/amqp/dial.h"

#define CONNECT_SECONDS 3 /* the loop stands still meanwhile, and claims have to be renewed */
#define RPC_SECONDS     5
#define HEARTBEAT       10
#define NUMBER_SIZE     24 /* of an integer as text */

/* ------------------------------------------------------------------------------------------------------------ places */

int once__amqp_place_read(once__url_t *address, once__amqp_place_t *place, char *error, size_t size)
{
    static const char *const known[] = {"cacert", "cert", "key", "heartbeat"};
    const char *slash = strchr(address->raw_path, '/');
    const char *unknown, *beat;

    if (slash == NULL || slash[1] == '\0' ||
        once__percent_decode(place->vhost, sizeof(place->vhost), address->raw_path,
                             (size_t)(slash - address->raw_path)) != 0 ||
        once__percent_decode(place->queue, sizeof(place->queue), slash + 1, strlen(slash + 1)) !=
            0) {
        snprintf(error, size, "it is amqp://HOST[:PORT]/VHOST/QUEUE, where the vhost / is %%2F");
        return -1;
    }
    if (place->vhost[0] == '\0') {
        strcpy(place->vhost, "/");
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        (void)once__url_take(address, known[i]);
    }
    beat = once__url_take(address, "heartbeat");
    if (beat != NULL && (beat[0] == '\0' || strspn(beat, "0123456789") != strlen(beat) ||
                         strlen(beat) > 5 || strtol(beat, NULL, 10) > 65535)) {
        snprintf(error, size, "heartbeat is 0 to 65535 seconds");
        return -1;
    }
    unknown = once__url_untaken(address);
    if (unknown != NULL) {
        snprintf(error, size, "amqp:// has no parameter %s: cacert, cert, key, heartbeat", unknown);
        return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------- connections */

int once__amqp_said_no(amqp_rpc_reply_t reply, char *error, size_t size)
{
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        return 0;
    }
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
        snprintf(error, size, "%s", amqp_error_string2(reply.library_error));
    } else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
               reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *said = reply.reply.decoded;
        snprintf(error, size, "%.*s", (int)said->reply_text.len,
                 (const char *)said->reply_text.bytes);
    } else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
               reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *said = reply.reply.decoded;
        snprintf(error, size, "%.*s", (int)said->reply_text.len,
                 (const char *)said->reply_text.bytes);
    } else {
        snprintf(error, size, "an answer that was not expected");
    }
    return -1;
}

static int connect_to(amqp_connection_state_t connection, once__url_t *address, const char *vhost,
                      char *error, size_t size)
{
    const char *beat = once__url_take(address, "heartbeat");
    struct timeval connecting = {CONNECT_SECONDS, 0}, answering = {RPC_SECONDS, 0};
    const once__amqp_tls_t tls = {
        .ca_file = once__url_take(address, "cacert"),
        .cert_file = once__url_take(address, "cert"),
        .key_file = once__url_take(address, "key"),
        .authorities = "cacert=FILE in the URL",
    };
    amqp_rpc_reply_t reply;
    int with_tls = strcmp(address->scheme, "amqps") == 0;

    if (once__amqp_dial(connection, &address->host[0], with_tls ? &tls : NULL, connecting, error,
                        size) != 0) {
        return -1;
    }
    amqp_set_handshake_timeout(connection, &answering);
    amqp_set_rpc_timeout(connection, &answering);
    reply = amqp_login(connection, vhost, 0, AMQP_DEFAULT_FRAME_SIZE,
                       beat != NULL ? (int)strtol(beat, NULL, 10) : HEARTBEAT,
                       AMQP_SASL_METHOD_PLAIN, address->user != NULL ? address->user : "guest",
                       address->password != NULL ? address->password : "guest");
    if (once__amqp_said_no(reply, error, size) != 0) {
        once__amqp_hint(with_tls ? &tls : NULL, reply, error, size);
        return -1;
    }
    amqp_channel_open(connection, 1);
    return once__amqp_said_no(amqp_get_rpc_reply(connection), error, size);
}

amqp_connection_state_t once__amqp_open(once__url_t *address, const char *vhost, char *error,
                                        size_t size)
{
    amqp_connection_state_t connection = amqp_new_connection();

    snprintf(error, size, "out of memory");
    if (connection != NULL && connect_to(connection, address, vhost, error, size) != 0) {
        amqp_destroy_connection(connection);
        return NULL;
    }
    return connection;
}

void once__amqp_close(amqp_connection_state_t connection)
{
    if (connection != NULL) {
        amqp_destroy_connection(connection);
    }
}

static int declare(amqp_connection_state_t connection, const char *queue, int passive, char *error,
                   size_t size)
{
    amqp_queue_declare(connection, 1, amqp_cstring_bytes(queue), (amqp_boolean_t)passive, 1, 0, 0,
                       amqp_empty_table);
    return once__amqp_said_no(amqp_get_rpc_reply(connection), error, size);
}

int once__amqp_declare(amqp_connection_state_t connection, const char *queue, char *error,
                       size_t size)
{
    amqp_channel_close_ok_t closed = {0};

    if (declare(connection, queue, 1, error, size) == 0) {
        return 0;
    }
    amqp_send_method(connection, 1, AMQP_CHANNEL_CLOSE_OK_METHOD, &closed); /* the refusal did */
    amqp_channel_open(connection, 1);
    if (once__amqp_said_no(amqp_get_rpc_reply(connection), error, size) != 0) {
        return -1;
    }
    return declare(connection, queue, 0, error, size);
}

/* ----------------------------------------------------------------------------------------------------------- headers */

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

/* 0: neither text nor a whole number. */
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
