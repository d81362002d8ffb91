#include "broker/kafka/conf.h"

#include <openssl/x509_vfy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "broker/tls.h"

#define TOPIC_MAX 249

/* Properties that the guarantees depend on cannot be changed by the user. */
static const char *const fixed[] = {
    "group.id",
    "bootstrap.servers",
    "metadata.broker.list",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "partition.assignment.strategy",
    "enable.partition.eof",
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
    "plugin.library.paths",
};

static const char *const settings[][2] = {
    {"enable.auto.commit", "true"},
    {"auto.commit.interval.ms", "1000"},
    {"enable.auto.offset.store", "false"},
    {"auto.offset.reset", "earliest"},
    {"partition.assignment.strategy", "cooperative-sticky"},
    {"queued.max.messages.kbytes", "16384"},
    {"fetch.wait.max.ms", "100"},
    {"enable.partition.eof", "true"}, /* a partition that was read to its end has no lag */
    {"topic.metadata.refresh.interval.ms", "10000"}, /* how soon new partitions are noticed */
    {"ssl.endpoint.identification.algorithm", "https"},
    {"socket.keepalive.enable", "true"},
    {"reconnect.backoff.max.ms", "2000"},
    {"client.id", "once"},
};

int once__kafka_set(rd_kafka_conf_t *conf, const char *name, const char *value, char *error,
                    size_t size)
{
    char why[300];

    if (rd_kafka_conf_set(conf, name, value, why, sizeof(why)) == RD_KAFKA_CONF_OK) {
        return 0;
    }
    /* librdkafka's own message would show the value, which may be a password. */
    snprintf(error, size, "Kafka's property %s cannot be set like that", name);
    return -1;
}

/* librdkafka would take a name that begins with ^ for a pattern. */
const char *once__kafka_name_wrong(const char *name, int is_template)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *at = name + strspn(name, plain);

    while (is_template && *at == '{' && strchr(at, '}') != NULL) {
        at = strchr(at, '}') + 1;
        at += strspn(at, plain);
    }
    return *at != '\0' || name[0] == '\0' || strlen(name) > TOPIC_MAX || strcmp(name, ".") == 0 ||
                   strcmp(name, "..") == 0
               ? "a topic of Kafka has 1 to 249 letters, digits, dots, dashes and underscores"
               : NULL;
}

int once__kafka_trusts(_Atomic int *distrust, const int *x509_error)
{
    if (*x509_error != X509_V_OK) {
        atomic_store(distrust, *x509_error);
    }
    return *x509_error == X509_V_OK;
}

static int wants_certificate(const char *reason)
{
    return strstr(reason, "alert bad certificate") != NULL ||
           strstr(reason, "alert certificate required") != NULL ||
           strstr(reason, "alert unknown ca") != NULL;
}

/* The length of the part that says where; 0 if the reason is not about a certificate of the broker. */
static int place_in(const char *reason)
{
    const char *verify = strstr(reason, "certificate verify failed");
    const char *place = verify != NULL ? strstr(reason, ": ") : NULL;

    return place != NULL && place < verify ? (int)(place - reason) : 0;
}

void once__kafka_explain(_Atomic int *distrust, const char *reason, const char *authorities,
                         char *text, size_t size)
{
    int place = place_in(reason), error = place > 0 ? atomic_load(distrust) : X509_V_OK;
    size_t len;

    if (error == X509_V_OK) {
        snprintf(text, size, "Kafka: %s%s", reason,
                 wants_certificate(reason) ? ": the broker wants another client certificate: "
                                             "ssl.certificate.location=FILE, ssl.key.location=FILE"
                                           : "");
        return;
    }
    snprintf(text, size, "Kafka: %.*s: ", place, reason);
    len = strlen(text);
    once__broker_tls_explain(error, authorities, text + len, size - len);
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

static int set_params(rd_kafka_conf_t *conf, const once__url_t *address, char *error, size_t size)
{
    for (size_t i = 0; i < address->param_count; i++) {
        const char *name = address->params[i].name;
        if (strcmp(name, "group") == 0) {
            continue;
        }
        if (is_fixed(name)) {
            snprintf(error, size, "Kafka's property %s is not to be changed", name);
            return -1;
        }
        if (once__kafka_set(conf, name, address->params[i].value, error, size) != 0) {
            return -1;
        }
    }
    return 0;
}

static int set_all(rd_kafka_conf_t *conf, const once__url_t *address, const char *group,
                   char *error, size_t size)
{
    int bad = once__kafka_set(conf, "bootstrap.servers", address->hosts, error, size) != 0 ||
              once__kafka_set(conf, "group.id", group, error, size) != 0;

    for (size_t i = 0; !bad && i < sizeof(settings) / sizeof(settings[0]); i++) {
        bad = once__kafka_set(conf, settings[i][0], settings[i][1], error, size);
    }
    if (!bad && address->user != NULL) {
        const char *password = address->password != NULL ? address->password : "";
        bad = once__kafka_set(conf, "security.protocol", "sasl_ssl", error, size) != 0 ||
              once__kafka_set(conf, "sasl.mechanism", "PLAIN", error, size) != 0 ||
              once__kafka_set(conf, "sasl.username", address->user, error, size) != 0 ||
              once__kafka_set(conf, "sasl.password", password, error, size) != 0;
    }
    return bad ? -1 : set_params(conf, address, error, size);
}

rd_kafka_conf_t *once__kafka_consumer_conf(const once__url_t *address, const char *group,
                                           char *error, size_t size)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    if (set_all(conf, address, group, error, size) != 0) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    return conf;
}
