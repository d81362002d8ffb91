/*
 * Parts of the relay, the publishers and the service that need no broker: logs, metrics, URLs, templates, signatures, snapshots,
 * queues.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/kafka/conf.h"
#include "broker/internal.h"
#include "broker/http/signature.h"
#include "relay/internal.h"
#include "service/log.h"
#include "service/metrics.h"

static once_slice_t slice(const char *text)
{
    return (once_slice_t){text, strlen(text)};
}

/* ------------------------------------------------------------------------------------------------------------- log */

static json_t *logged(once__service_log_level_t level, const once__service_field_t *fields)
{
    int ends[2];
    char line[16384];
    ssize_t len;
    once__service_log_t log = {.program = "test", .level = ONCE__SERVICE_LOG_INFO};

    assert_int_equal(pipe(ends), 0);
    log.fd = ends[1];
    once__service_log(&log, level, "said", fields);
    close(ends[1]);
    len = read(ends[0], line, sizeof(line));
    close(ends[0]);
    return len > 0 ? json_loadb(line, (size_t)len, 0, NULL) : NULL;
}

static void a_line_is_json_whatever_is_in_it(void **state)
{
    char longer[5000];
    json_t *line =
        logged(ONCE__SERVICE_LOG_WARN,
               ONCE__SERVICE_FIELDS(
                   once__service_field_slice("key", (once_slice_t){"a\"\\\n\x01\xff\xc3\xa4", 8}),
                   once__service_field_number("n", -5), once__service_field_text("none", NULL)));

    assert_string_equal(json_string_value(json_object_get(line, "key")),
                        "a\"\\\n\x01\xef\xbf\xbd\xc3\xa4");
    assert_int_equal(json_integer_value(json_object_get(line, "n")), -5);
    assert_null(json_object_get(line, "none"));
    assert_string_equal(json_string_value(json_object_get(line, "level")), "warn");
    json_decref(line);
    memset(longer, '\x02', sizeof(longer));
    line = logged(ONCE__SERVICE_LOG_ERROR,
                  ONCE__SERVICE_FIELDS(
                      once__service_field_slice("a", (once_slice_t){longer, sizeof(longer)}),
                      once__service_field_slice("b", (once_slice_t){longer, sizeof(longer)})));
    assert_non_null(line); /* what does not fit is cut, not the line */
    json_decref(line);
    assert_null(logged(ONCE__SERVICE_LOG_DEBUG, NULL));
}

/* --------------------------------------------------------------------------------------------------------- metrics */

static void metrics_as_text_and_json(void **state)
{
    static const int64_t bounds[] = {10, 100};
    struct {
        once__service_metric_t *a, *b, *c, *d;
    } all;
    const once__service_metric_spec_t specs[] = {
        {0, ONCE__SERVICE_COUNTER, "a_total", "A.", "k=\"x\"", 1, NULL, 0},
        {sizeof(all.a), ONCE__SERVICE_GAUGE, "b_seconds", "B.", NULL, 0.001, NULL, 0},
        {2 * sizeof(all.a), ONCE__SERVICE_HISTOGRAM, "c", "C.", NULL, 1, bounds, 2},
        {3 * sizeof(all.a), ONCE__SERVICE_GAUGE, "d", "D.", NULL, 1, NULL, 0},
    };
    once__service_metrics_t *metrics = once__service_metrics_new("test");
    char *text, *json;
    char error[200];
    json_t *parsed;

    assert_int_equal(once__service_metrics_add(metrics, specs, 4, &all), 0);
    once__service_metric_count(all.a, 3);
    once__service_metric_set(all.b, 1500);
    once__service_metric_set(all.d, ONCE__SERVICE_METRIC_UNKNOWN);
    once__service_metric_observe(all.c, 10);
    once__service_metric_observe(all.c, 11);
    once__service_metric_observe(all.c, 1000);
    text = once__service_metrics_text(metrics);
    assert_non_null(strstr(text, "\nonce_build_info{program=\"test\",version=\""));
    assert_non_null(strstr(text, ",stores=\"memory,local"));
    assert_non_null(strstr(text, "# TYPE a_total counter\na_total{k=\"x\"} 3\n"));
    assert_non_null(strstr(text, "b_seconds 1.5\n"));
    assert_non_null(strstr(
        text,
        "c_bucket{le=\"10\"} 1\nc_bucket{le=\"100\"} 2\nc_bucket{le=\"+Inf\"} 3\nc_sum 1021\n"));
    assert_null(strstr(text, "\nd ")); /* unknown: left out */
    assert_null(strstr(text, "TYPE d"));
    json = once__service_metrics_json(metrics);
    parsed = json_loads(json, 0, NULL);
    assert_true(json_is_null(json_object_get(parsed, "d")));
    assert_int_equal(json_integer_value(json_object_get(parsed, "a_total{k=\"x\"}")), 3);
    json_decref(parsed);
    free(text);
    free(json);
    assert_int_equal(once__service_metrics_serve(metrics, "localhost", error, sizeof(error)), -1);
    assert_int_equal(once__service_metrics_serve(metrics, "127.0.0.1:99999", error, sizeof(error)),
                     -1);
    once__service_metrics_free(metrics);
}

/* ------------------------------------------------------------------------------------------------------------- URLs */

static void addresses(void **state)
{
    once__url_t a;
    char error[200];

    assert_int_equal(once__broker_url_read(&a, "amqp://us%40er:p%3Ass@h:1,g/%2F/x%20y?k=v%26w&l=2",
                                           error, sizeof(error)),
                     0);
    assert_string_equal(a.user, "us@er");
    assert_string_equal(a.password, "p:ss");
    assert_string_equal(a.hosts, "h:1,g");
    assert_string_equal(a.raw_path, "%2F/x%20y");
    assert_string_equal(a.path, "//x y");
    assert_string_equal(once__url_take(&a, "k"), "v&w");
    assert_string_equal(once__url_untaken(&a), "l");
    once__url_free(&a);
    assert_int_equal(
        once__broker_url_read(&a, "https://h/p?anything&goes=%zz", error, sizeof(error)), 0);
    assert_string_equal(a.raw_query, "anything&goes=%zz");
    once__url_free(&a);
    static const char *const bad[] = {"kafka:/h",      "kafka://",          "kafka:///t",
                                      "kafka://h/%zz", "kafka://u:%00@h/t", "kafka://h/t?x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(once__broker_url_read(&a, bad[i], error, sizeof(error)), -1);
        once__url_free(&a);
    }
}

static void templates(void **state)
{
    once__broker_message_t message = {
        .topic = slice("a/b"), .type = slice("t"), .key = slice("k y")};
    char out[32];

    assert_int_equal(
        once__broker_template_fill("x.{topic}-{type}{key}", &message, 0, out, sizeof(out)), 0);
    assert_string_equal(out, "x.a/b-tk y");
    assert_int_equal(once__broker_template_fill("/{topic}?k={key}", &message, 1, out, sizeof(out)),
                     0);
    assert_string_equal(out, "/a%2Fb?k=k%20y");
    assert_int_equal(once__broker_template_fill("{topic}", &message, 0, out, 4), -1);
    message.topic = (once_slice_t){"a\0b", 3};
    assert_int_equal(once__broker_template_fill("{topic}", &message, 0, out, sizeof(out)), -1);
    assert_null(once__broker_template_wrong("plain {topic} {key}{type}"));
    assert_non_null(once__broker_template_wrong("{nothing}"));
    assert_non_null(once__broker_template_wrong("}"));
    assert_non_null(once__broker_template_wrong("{topic"));
}

/* ------------------------------------------------------------------------------------------------------ signatures */

static void assert_protocol(const char *url, const char *ca_file, const char *protocol)
{
    once__url_t address;
    char error[200], value[32];
    size_t size = sizeof(value);
    rd_kafka_conf_t *conf;

    assert_int_equal(once__broker_url_read(&address, url, error, sizeof(error)), 0);
    conf = once__kafka_producer_conf(&address, ca_file, error, sizeof(error));
    assert_non_null(conf);
    assert_int_equal(rd_kafka_conf_get(conf, "security.protocol", value, &size), 0);
    assert_string_equal(value, protocol);
    rd_kafka_conf_destroy(conf);
    once__url_free(&address);
}

static void a_password_for_kafka_goes_encrypted(void **state)
{
    assert_protocol("kafka://a/t", NULL, "plaintext");
    assert_protocol("kafka://a/t", "/dev/null", "ssl");
    assert_protocol("kafka://u:p@a/t", NULL, "sasl_ssl");
    assert_protocol("kafka://u:p@a/t?security.protocol=sasl_plaintext", NULL, "sasl_plaintext");
}

static void write_secret(char *path, const char *text, mode_t mode)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* 24 and 64 bytes, and one byte less and more. */
#define SECRET_24 "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define SECRET_64                                                                                  \
    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+"   \
    "Pw=="
#define SECRET_23 "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaQ="
#define SECRET_65                                                                                  \
    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+"   \
    "P0A="

static void secrets_of_webhooks(void **state)
{
    static const struct {
        const char *text;
        mode_t mode;
        const char *wrong; /* NULL: nothing */
    } cases[] = {
        {SECRET_24 "\n", 0600, NULL},
        {SECRET_64 "\r\n\n" SECRET_24, 0400, NULL},
        {SECRET_24 "\n", 0640, "chmod 600"},
        {SECRET_23 "\n", 0600, "line 1"},
        {SECRET_24 "\n" SECRET_65 "\n", 0600, "line 2"},
        {"a secret of some length, as it was before\n", 0600, "once secret webhook"},
        {"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", 0600, "line 1"},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-w\n", 0600, "line 1"},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw=\n", 0600, "line 1"},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwA===\n", 0600, "line 1"},
        {"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGB==\n", 0600, "line 1"}, /* bits beyond the end */
        {"whsec_\n", 0600, "line 1"},
        {"", 0600, "contains no secret"},
        {SECRET_24 "\n" SECRET_24 "\n" SECRET_24 "\n" SECRET_24 "\n" SECRET_24 "\n", 0600,
         "more than 4"},
    };
    char error[300];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[] = "/tmp/once-secret-XXXXXX";
        once__http_signer_t *signer;
        write_secret(path, cases[i].text, cases[i].mode);
        error[0] = '\0';
        signer = once__http_signer_open(path, error, sizeof(error));
        if (cases[i].wrong == NULL) {
            assert_non_null(signer);
        } else {
            assert_null(signer);
            assert_non_null(strstr(error, cases[i].wrong));
            assert_null(strstr(error, "MfKQ9r8G"));
        }
        once__http_signer_free(signer);
        unlink(path);
    }
}

/* The example of the specification, and its order of signatures for two secrets. */
static void signatures(void **state)
{
    const once_slice_t id = slice("msg_p5jXN8AQM9LWM0D4loKWxJek"),
                       body = slice("{\"test\": 2432232314}");
    static const char first[] = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    char path[] = "/tmp/once-secret-XXXXXX", out[ONCE__HTTP_SIGNATURE_SIZE], error[300];
    char secrets[4][ONCE__HTTP_SECRET_TEXT_SIZE], text[4 * ONCE__HTTP_SECRET_TEXT_SIZE];
    once__http_signer_t *signer;
    size_t count = 1;

    write_secret(path, SECRET_24 "\n" SECRET_64, 0600);
    signer = once__http_signer_open(path, error, sizeof(error));
    assert_non_null(signer);
    assert_int_equal(once__http_sign(signer, id, 1614265330, body, out), 0);
    assert_int_equal(strncmp(out, first, strlen(first)), 0);
    assert_int_equal(strncmp(out + strlen(first), " v1,", 4), 0);
    assert_int_equal(strlen(out), 2 * strlen(first) + 1);
    once__http_signer_free(signer);
    unlink(path);

    for (size_t i = 0; i < 4; i++) { /* those that are made can be read */
        assert_int_equal(once__http_secret_new(secrets[i]), 0);
    }
    assert_string_not_equal(secrets[0], secrets[1]);
    snprintf(text, sizeof(text), "%s\n%s\n%s\n%s", secrets[0], secrets[1], secrets[2], secrets[3]);
    strcpy(path, "/tmp/once-secret-XXXXXX");
    write_secret(path, text, 0600);
    signer = once__http_signer_open(path, error, sizeof(error));
    assert_non_null(signer);
    assert_int_equal(once__http_sign(signer, id, INT64_MAX, (once_slice_t){NULL, 0}, out), 0);
    for (const char *at = out; (at = strchr(at, ' ')) != NULL; at++) {
        count++;
    }
    assert_int_equal(count, 4);
    once__http_signer_free(signer);
    unlink(path);
}

/* ---------------------------------------------------------------------------------------------------------- headers */

typedef struct seen {
    char names[512];
} seen_t;

static void see(void *data, once_slice_t name, once_slice_t value)
{
    seen_t *seen = data;
    size_t len = strlen(seen->names);

    snprintf(seen->names + len, sizeof(seen->names) - len, "%.*s=%.*s ", (int)name.len,
             (const char *)name.data, (int)value.len, (const char *)value.data);
}

static void a_message_has_one_identity(void **state)
{
    static const char *const names[] = {"ce_id",          "CE-Type",        "cloudEvents:id",
                                        "cloudEvents_id", "Once-Id",        "webhook-id",
                                        "Webhook_Id",     "message-id",     "Message_ID",
                                        "ce_*x",          "idempotency-key"};
    static const char *const free_ones[] = {"ce", "cex", "trace", "message-id2", "x-ce-id"};
    once__broker_pair_t headers[16];
    once__broker_message_t message = {.id = slice("1"), .type = slice("t"), .headers = headers};
    seen_t seen = {""};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        headers[message.header_count++] = (once__broker_pair_t){slice(names[i]), slice("forged")};
    }
    for (size_t i = 0; i < sizeof(free_ones) / sizeof(free_ones[0]); i++) {
        headers[message.header_count++] = (once__broker_pair_t){slice(free_ones[i]), slice("v")};
    }
    once__broker_message_headers(&message, "ce_", see, &seen);
    assert_string_equal(seen.names, "ce_specversion=1.0 ce_id=1 ce_type=t ce=v cex=v trace=v "
                                    "message-id2=v x-ce-id=v ");
    message.id = (once_slice_t){NULL, 0}; /* a dead letter, or one that is replayed: as it is */
    message.header_count = 1;
    seen.names[0] = '\0';
    once__broker_message_headers(&message, "ce_", see, &seen);
    assert_string_equal(seen.names, "ce_id=forged ");
}

/* ------------------------------------------------------------------------------------------------ snapshots, arrays */

static void snapshots(void **state)
{
    const char *at = NULL;

    assert_int_equal(once__relay_snapshot_xmax("731:740:"), 740);
    assert_int_equal(once__relay_snapshot_xmax("nonsense"), 0);
    assert_int_equal(once__relay_snapshot_next("731:740:", &at), 0);
    at = NULL;
    assert_int_equal(once__relay_snapshot_next("731:740:731,735,18446744073709551614", &at), 731);
    assert_int_equal(once__relay_snapshot_next("", &at), 735);
    assert_true(once__relay_snapshot_next("", &at) == UINT64_MAX - 1);
    assert_int_equal(once__relay_snapshot_next("", &at), 0);
}

static void arrays(void **state)
{
    once__pg_params_t params = {.count = 0};
    once__pg_value_t *numbers = once__pg_array(&params, ONCE__PG_INT8S);
    once__pg_value_t *texts = once__pg_array(&params, ONCE__PG_TEXTS);

    assert_memory_equal(texts->buf.data, "\0\0\0\1\0\0\0\1\0\0\0\x19\0\0\0\0\0\0\0\1", 20);
    for (int64_t i = 0; i < 1000; i++) {
        once__pg_element_int(numbers, (uint64_t)(i < 999 ? i : -1), 8);
    }
    assert_int_equal(numbers->buf.len, 20 + 1000 * 12);
    assert_memory_equal(numbers->buf.data,
                        "\0\0\0\1\0\0\0\1\0\0\0\x14\0\0\x03\xe8\0\0\0\1\0\0\0\x08", 24);
    assert_memory_equal(numbers->buf.data + 20 + 12 * 998 + 4, "\0\0\0\0\0\0\x03\xe6", 8);
    assert_memory_equal(numbers->buf.data + 20 + 12 * 999 + 4, "\xff\xff\xff\xff\xff\xff\xff\xff",
                        8);
    once__pg_element(texts, "a\"\\", 3);
    once__pg_element(texts, "", 0);
    once__pg_element_null(texts);
    assert_int_equal(texts->buf.len, 20 + 7 + 4 + 4);
    assert_memory_equal(texts->buf.data + 12,
                        "\0\0\0\3\0\0\0\1\0\0\0\3a\"\\\0\0\0\0\xff\xff\xff\xff", 23);
    once__pg_params_free(&params);
}

/* ----------------------------------------------------------------------------------------------------------- queues */

static int64_t next_seq(once__relay_t *relay)
{
    const once__relay_queue_t *queue = once__relay_queue_next(relay);

    return queue != NULL ? queue->first->seq : 0;
}

static void queues_and_whose_turn_it_is(void **state)
{
    const once__relay_options_t options = {.window = 64};
    const once__broker_publisher_options_t with = {.timeout_ms = 1};
    once__relay_t *relay = calloc(1, sizeof(*relay));
    once__relay_batch_t *batch = calloc(1, sizeof(*batch));
    once__relay_queue_t *queue;
    char error[200];

    relay->options = &options;
    relay->publisher =
        once__broker_publisher_open("http://127.0.0.1:1/", &with, error, sizeof(error));
    assert_int_equal(once__relay_queues_start(relay), 0);
    assert_int_equal(once__relay_destinations_start(relay), 0);
    batch->refs = 5;
    batch->events = calloc(5, sizeof(batch->events[0]));
    for (int i = 0; i < 5; i++) {
        batch->events[i].seq = i + 1;
        batch->events[i].group = i == 3;
        batch->events[i].batch = batch;
        assert_int_equal(once__relay_queue_add(relay, &batch->events[i]), 0);
    }
    queue = once__relay_queue_next(relay);
    once__relay_queue_first(relay, queue); /* the publisher did not take it: its turn stays */
    assert_int_equal(next_seq(relay), 1);
    once__relay_queue_first(relay, queue);
    once__relay_queue_pause(relay, queue, 5);
    queue = once__relay_queue_next(relay);
    assert_int_equal(queue->first->seq, 2);
    once__relay_queue_pause(relay, queue, 9);
    assert_int_equal(once__relay_queues_wake(relay), 5);
    relay->now_ms = 5;
    assert_int_equal(once__relay_queues_wake(relay), 9); /* behind 3, 4 and 5 */
    once__relay_queues_drop(relay, 1);
    assert_int_equal(next_seq(relay), 3);
    assert_int_equal(next_seq(relay), 5);
    assert_int_equal(next_seq(relay), 1);
    assert_int_equal(next_seq(relay), 0);
    relay->now_ms = 9;
    assert_true(once__relay_queues_wake(relay) == UINT64_MAX);
    assert_int_equal(relay->events, 4);
    once__relay_queues_drop(relay, 0);
    assert_int_equal(relay->events, 0);
    assert_null(relay->destinations.ring_first);
    assert_int_equal(relay->destinations.table.count, 0);
    once__relay_queues_end(relay);
    once__relay_destinations_end(relay);
    once__broker_publisher_close(relay->publisher);
    free(relay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_json_whatever_is_in_it),
        cmocka_unit_test(metrics_as_text_and_json),
        cmocka_unit_test(addresses),
        cmocka_unit_test(templates),
        cmocka_unit_test(a_password_for_kafka_goes_encrypted),
        cmocka_unit_test(secrets_of_webhooks),
        cmocka_unit_test(signatures),
        cmocka_unit_test(a_message_has_one_identity),
        cmocka_unit_test(snapshots),
        cmocka_unit_test(arrays),
        cmocka_unit_test(queues_and_whose_turn_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
