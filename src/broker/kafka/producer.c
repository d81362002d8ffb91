#include "broker/kafka/producer.h"

#include <stdio.h>
#include <string.h>

#include "broker/kafka/conf.h"

/* Properties that the guarantees depend on cannot be changed by the user. */
static const char *const fixed[] = {
    "enable.idempotence",
    "acks",
    "request.required.acks",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "retries",
    "message.send.max.retries",
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
    "transactional.id",
    "bootstrap.servers",
    "metadata.broker.list",
    "plugin.library.paths",
};

static const char *const settings[][2] = {
    {"enable.idempotence", "true"},
    {"enable.gapless.guarantee", "true"},
    {"message.timeout.ms", "0"},
    {"linger.ms", "0"},
    {"partitioner", "murmur2_random"}, /* chooses the same partition as Java's producer */
    {"batch.num.messages", "10000"},
    {"queue.buffering.max.messages", "200000"},
    {"ssl.endpoint.identification.algorithm", "https"},
    {"socket.keepalive.enable", "true"},
    {"reconnect.backoff.max.ms", "2000"},
    {"client.id", "once"},
};

static void no_log(const rd_kafka_t *producer, int level, const char *facility, const char *text)
{
}

static int is_fixed(const char *name)
{
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        if (strcmp(name, fixed[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static int set_all(rd_kafka_conf_t *conf, const once__url_t *address, const char *ca_file,
                   char *error, size_t size)
{
    int bad = once__kafka_set(conf, "bootstrap.servers", address->hosts, error, size);

    for (size_t i = 0; !bad && i < sizeof(settings) / sizeof(settings[0]); i++) {
        bad = once__kafka_set(conf, settings[i][0], settings[i][1], error, size);
    }
    /* A password or an authority implies an encrypted connection, unless the URL says otherwise. */
    if (!bad && (address->user != NULL || ca_file != NULL)) {
        bad = once__kafka_set(conf, "security.protocol", address->user != NULL ? "sasl_ssl" : "ssl",
                              error, size);
    }
    if (!bad && address->user != NULL) {
        bad = once__kafka_set(conf, "sasl.mechanism", "PLAIN", error, size) != 0 ||
              once__kafka_set(conf, "sasl.username", address->user, error, size) != 0 ||
              once__kafka_set(conf, "sasl.password",
                              address->password != NULL ? address->password : "", error, size) != 0;
    }
    if (!bad && ca_file != NULL) {
        bad = once__kafka_set(conf, "ssl.ca.location", ca_file, error, size);
    }
    for (size_t i = 0; !bad && i < address->param_count; i++) {
        if (is_fixed(address->params[i].name)) {
            snprintf(error, size, "Kafka's property %s is not to be changed",
                     address->params[i].name);
            return -1;
        }
        bad = once__kafka_set(conf, address->params[i].name, address->params[i].value, error, size);
    }
    return bad ? -1 : 0;
}

rd_kafka_conf_t *once__kafka_producer_conf(const once__url_t *address, const char *ca_file,
                                           char *error, size_t size)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set_log_cb(conf, no_log); /* errors that matter arrive as events */
    if (set_all(conf, address, ca_file, error, size) != 0) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    return conf;
}
