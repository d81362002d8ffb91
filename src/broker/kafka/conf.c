/*
 * The configuration of Kafka's consumers and producers: what both have in common, what each of them needs, then the URL.
 * Properties that the guarantees depend on cannot be changed by the URL.
 */
#include "broker/kafka/conf.h"

#include <openssl/x509_vfy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "broker/tls.h"

#define TOPIC_MAX 249

typedef const char *setting_t[2];

/* All lists end with NULL. */
static const char *const fixed_for_both[] = {
    "bootstrap.servers",
    "metadata.broker.list",
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
    "plugin.library.paths",
    NULL,
};

static const setting_t settings_for_both[] = {
    {"ssl.endpoint.identification.algorithm", "https"},
    {"socket.keepalive.enable", "true"},
    {"reconnect.backoff.max.ms", "2000"},
    {"client.id", "once"},
    {NULL, NULL},
};

static const char *const fixed_for_consumers[] = {
    "group.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "partition.assignment.strategy",
    "enable.partition.eof",
    NULL,
};

static const setting_t settings_for_consumers[] = {
    {"enable.auto.commit", "true"},
    {"auto.commit.interval.ms", "1000"},
    {"enable.auto.offset.store", "false"},
    {"auto.offset.reset", "earliest"},
    {"partition.assignment.strategy", "cooperative-sticky"},
    {"queued.max.messages.kbytes", "16384"},
    {"fetch.wait.max.ms", "100"},
    {"enable.partition.eof", "true"}, /* a partition that was read to its end has no lag */
    {"topic.metadata.refresh.interval.ms", "10000"}, /* how soon new partitions are noticed */
    {NULL, NULL},
};

static const char *const fixed_for_producers[] = {
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
    "transactional.id",
    NULL,
};

static const setting_t settings_for_producers[] = {
    {"enable.idempotence", "true"},
    {"enable.gapless.guarantee", "true"},
    {"message.timeout.ms", "0"},
    {"linger.ms", "0"},
    {"partitioner", "murmur2_random"}, /* chooses the same partition as Java's producer */
    {"batch.num.messages", "10000"},
    {"queue.buffering.max.messages", "200000"},
    {NULL, NULL},
};

/* Sets a property. Returns 0, or -1 after naming it, but never its value, in `error`. */
static int set_property(rd_kafka_conf_t *conf, const char *name, const char *value, char *error,
                        size_t size)
{
    char why[300];

    if (rd_kafka_conf_set(conf, name, value, why, sizeof(why)) == RD_KAFKA_CONF_OK) {
        return 0;
    }
    /* librdkafka's own message would show the value, which may be a password. */
    snprintf(error, size, "Kafka's property %s cannot have that value", name);
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
               ? "the name of a Kafka topic must have 1 to 249 letters, digits, dots, dashes and "
                 "underscores"
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

static int is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

static int set_list(rd_kafka_conf_t *conf, const setting_t *settings, char *error, size_t size)
{
    for (; (*settings)[0] != NULL; settings++) {
        if (set_property(conf, (*settings)[0], (*settings)[1], error, size) != 0) {
            return -1;
        }
    }
    return 0;
}

static int set_url(rd_kafka_conf_t *conf, const once__url_t *url, const char *const *fixed,
                   char *error, size_t size)
{
    for (size_t i = 0; i < url->param_count; i++) {
        const char *name = url->params[i].name;
        if (is_one_of(name, fixed_for_both) || is_one_of(name, fixed)) {
            snprintf(error, size, "Kafka's property %s cannot be changed", name);
            return -1;
        }
        if ((fixed != fixed_for_consumers || strcmp(name, "group") != 0) &&
            set_property(conf, name, url->params[i].value, error, size) != 0) {
            return -1;
        }
    }
    return 0;
}

/* A password or an authority implies an encrypted connection, unless the URL says otherwise. */
static int set_security(rd_kafka_conf_t *conf, const once__url_t *url, const char *ca_file,
                        char *error, size_t size)
{
    const char *password = url->password != NULL ? url->password : "";
    const char *protocol = url->user != NULL ? "sasl_ssl" : ca_file != NULL ? "ssl" : NULL;

    return (protocol != NULL &&
            set_property(conf, "security.protocol", protocol, error, size) != 0) ||
                   (url->user != NULL &&
                    (set_property(conf, "sasl.mechanism", "PLAIN", error, size) != 0 ||
                     set_property(conf, "sasl.username", url->user, error, size) != 0 ||
                     set_property(conf, "sasl.password", password, error, size) != 0)) ||
                   (ca_file != NULL &&
                    set_property(conf, "ssl.ca.location", ca_file, error, size) != 0)
               ? -1
               : 0;
}

static int set_all(rd_kafka_conf_t *conf, const once__url_t *url, const char *ca_file,
                   int is_consumer, char *error, size_t size)
{
    return set_property(conf, "bootstrap.servers", url->hosts, error, size) != 0 ||
                   set_list(conf, settings_for_both, error, size) != 0 ||
                   set_list(conf, is_consumer ? settings_for_consumers : settings_for_producers,
                            error, size) != 0 ||
                   set_security(conf, url, ca_file, error, size) != 0 ||
                   set_url(conf, url, is_consumer ? fixed_for_consumers : fixed_for_producers,
                           error, size) != 0
               ? -1
               : 0;
}

rd_kafka_conf_t *once__kafka_consumer_conf(const once__url_t *url, const char *group, char *error,
                                           size_t size)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    if (set_property(conf, "group.id", group, error, size) != 0 ||
        set_all(conf, url, NULL, 1, error, size) != 0) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    return conf;
}

static void no_log(const rd_kafka_t *producer, int level, const char *facility, const char *text)
{
}

rd_kafka_conf_t *once__kafka_producer_conf(const once__url_t *url, const char *ca_file, char *error,
                                           size_t size)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set_log_cb(conf, no_log); /* errors that matter arrive as events */
    if (set_all(conf, url, ca_file, 0, error, size) != 0) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    return conf;
}
