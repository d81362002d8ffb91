/*
 * A consumer that owns its transaction: an invoice for each order event, exactly one, with librdkafka and libpq.
 *
 *   invoices BROKERS TOPIC GROUP POSTGRES-URL
 *
 * The message id (header ce_id) and the invoice are written in one transaction; the offset is committed after that. Killed
 * anywhere in between, the message comes again, and once_pg_accept says that it was handled. A message that no invoice can be
 * made of, however often it comes (no id, no payload, no text), is left out, and the log says which; a topic for those would
 * be the next step. Wants a table
 *   CREATE TABLE invoices (id bigserial, event text NOT NULL, body text NOT NULL)
 */
#include <librdkafka/rdkafka.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <once/postgres.h>

static volatile sig_atomic_t leaving;

static void leave(int number)
{
    leaving = number;
}

/* 0, -1: it failed, -2: it would fail each time, because of what is in the message (SQLSTATE of the classes 22 and 23). */
static int run(PGconn *conn, const char *sql, int count, const char *const *values)
{
    PGresult *result = PQexecParams(conn, sql, count, NULL, values, NULL, NULL, 0);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    int bad =
        PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK;
    int code = !bad ? 0 : state != NULL && state[0] == '2' && strchr("23", state[1]) ? -2 : -1;

    if (code == -1) {
        fprintf(stderr, "invoices: %s", PQerrorMessage(conn));
    }
    PQclear(result);
    return code;
}

/* 1: done now, 0: it was done before, -1: neither; roll back and try again. -2: roll back, and leave it out. */
static int handle(PGconn *conn, const char *subscriber, const char *id, const char *body)
{
    const char *const values[] = {id, body};
    once_error_t err;
    int is_new;

    if (run(conn, "BEGIN", 0, NULL) != 0) {
        return -1;
    }
    if (once_pg_accept(conn, subscriber, id, &is_new, &err) != ONCE_OK) {
        fprintf(stderr, "invoices: %s\n", err.text);
        return -1;
    }
    if (is_new) {
        int code = run(conn, "INSERT INTO invoices (event, body) VALUES ($1, $2)", 2, values);
        if (code != 0) {
            return code;
        }
    }
    return run(conn, "COMMIT", 0, NULL) == 0 ? is_new : -1;
}

static int header(rd_kafka_message_t *message, const char *name, char *out, size_t size)
{
    rd_kafka_headers_t *headers;
    const void *value;
    size_t len;

    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        rd_kafka_header_get_last(headers, name, &value, &len) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        len == 0 || len >= size || memchr(value, '\0', len) != NULL) {
        return -1;
    }
    memcpy(out, value, len);
    out[len] = '\0';
    return 0;
}

/* UTF-8 without a zero byte, which PostgreSQL takes as text. */
static int is_text(const unsigned char *at, size_t len)
{
    for (const unsigned char *end = at + len; at < end; at++) {
        int more = *at < 0x80   ? 0
                   : *at < 0xc2 ? -1
                   : *at < 0xe0 ? 1
                   : *at < 0xf0 ? 2
                   : *at < 0xf5 ? 3
                                : -1;
        if (*at == '\0' || more < 0 || more >= end - at || (*at == 0xe0 && at[1] < 0xa0) ||
            (*at == 0xed && at[1] > 0x9f) || (*at == 0xf0 && at[1] < 0x90) ||
            (*at == 0xf4 && at[1] > 0x8f)) {
            return 0;
        }
        for (; more > 0; more--) {
            if ((*++at & 0xc0) != 0x80) {
                return 0;
            }
        }
    }
    return 1;
}

/* Why it can never be handled; NULL: it can. */
static const char *unfit(rd_kafka_message_t *message, char *id, size_t size)
{
    if (header(message, "ce_id", id, size) != 0) {
        return "it has no id of at most 255 bytes";
    }
    if (message->payload == NULL) {
        return "it has no payload";
    }
    return is_text((unsigned char *)id, strlen(id)) && is_text(message->payload, message->len)
               ? NULL
               : "it is no text";
}

/* Says which one, but not what is in it. */
static int leave_out(const rd_kafka_message_t *message, const char *why)
{
    fprintf(stderr, "invoices: left out: %s/%d@%lld: %s\n", rd_kafka_topic_name(message->rkt),
            (int)message->partition, (long long)message->offset, why);
    return 0;
}

static void take(rd_kafka_t *consumer, PGconn *conn, const char *subscriber,
                 rd_kafka_message_t *message)
{
    char id[256], *body = strndup(message->payload != NULL ? message->payload : "", message->len);
    const char *why = unfit(message, id, sizeof(id));
    int done = why != NULL ? leave_out(message, why) : -1;

    while (done < 0 && !leaving) {
        done = handle(conn, subscriber, id, body);
        if (done < 0) { /* rolled back, or not even that: the connection may be gone */
            run(conn, "ROLLBACK", 0, NULL);
            if (done == -2) {
                done = leave_out(message, "the database refuses it");
                break;
            }
            usleep(20000); /* what fails forever must not burn the processor */
            if (PQstatus(conn) != CONNECTION_OK) {
                sleep(1);
                PQreset(conn);
            }
        }
    }
    free(body);
    if (done >= 0) {
        rd_kafka_commit_message(consumer, message, 1); /* after the transaction, never before */
    }
}

static rd_kafka_t *subscribe(const char *brokers, const char *topic, const char *group)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_t *consumer;
    char why[300];

    rd_kafka_conf_set(conf, "bootstrap.servers", brokers, why, sizeof(why));
    rd_kafka_conf_set(conf, "group.id", group, why, sizeof(why));
    rd_kafka_conf_set(conf, "enable.auto.commit", "false", why, sizeof(why));
    rd_kafka_conf_set(conf, "auto.offset.reset", "earliest", why, sizeof(why));
    rd_kafka_conf_set(conf, "session.timeout.ms", "6000", why, sizeof(why));
    consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof(why));
    if (consumer != NULL) {
        rd_kafka_poll_set_consumer(consumer);
        rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
        rd_kafka_subscribe(consumer, topics);
    } else {
        fprintf(stderr, "invoices: %s\n", why);
    }
    rd_kafka_topic_partition_list_destroy(topics);
    return consumer;
}

int main(int argc, char **argv)
{
    rd_kafka_t *consumer = argc == 5 ? subscribe(argv[1], argv[2], argv[3]) : NULL;
    PGconn *conn = consumer != NULL ? PQconnectdb(argv[4]) : NULL;

    if (conn == NULL || PQstatus(conn) != CONNECTION_OK) {
        fprintf(stderr,
                "usage: invoices BROKERS TOPIC GROUP POSTGRES-URL, all of them reachable\n");
        return 2;
    }
    signal(SIGTERM, leave);
    signal(SIGINT, leave);
    while (!leaving) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 200);
        if (message != NULL && message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            take(consumer, conn, argv[3], message);
        }
        if (message != NULL) {
            rd_kafka_message_destroy(message);
        }
    }
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
    PQfinish(conn);
    return 0;
}
