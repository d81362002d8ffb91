#include "broker/publish.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/internal.h"

static const struct {
    const char *scheme;
    once__broker_publisher_t *(*open)(const once__url_t *parsed,
                                      const once__broker_publisher_options_t *options, char *error,
                                      size_t size);
} kinds[] = {
    {"kafka", once__kafka_publisher}, {"amqp", once__amqp_publisher},
    {"amqps", once__amqp_publisher},  {"http", once__http_publisher},
    {"https", once__http_publisher},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void assert_publisher_state(const once__broker_publisher_t *publisher)
{
    assert(publisher->early == NULL || publisher->pending > 0); /* I-1 */
    assert(publisher->fd >= 0);                                 /* I-2 */
}

static size_t kind_of(const char *url)
{
    size_t len = strcspn(url, ":"), i = 0;

    while (i < KINDS &&
           (strlen(kinds[i].scheme) != len || strncmp(url, kinds[i].scheme, len) != 0)) {
        i++;
    }
    return strncmp(url + len, "://", 3) == 0 ? i : KINDS;
}

int once__broker_publisher_knows(const char *url)
{
    return kind_of(url) < KINDS;
}

/* The publisher takes the parsed URL over. */
once__broker_publisher_t *
once__broker_publisher_open(const char *url, const once__broker_publisher_options_t *options,
                            char *error, size_t size)
{
    once__broker_publisher_options_t with = *options;
    size_t kind = kind_of(url);
    once__url_t parsed;
    once__broker_publisher_t *publisher = NULL;

    if (kind == KINDS) {
        snprintf(error, size, "the URL must be kafka://, amqp://, amqps://, http:// or https://");
        return NULL;
    }
    with.timeout_ms = with.timeout_ms != 0 ? with.timeout_ms : 30000;
    with.connections = with.connections != 0 ? with.connections : 16;
    if (once__broker_url_read(&parsed, url, error, size) == 0) {
        publisher = kinds[kind].open(&parsed, &with, error, size);
    }
    if (publisher == NULL) {
        once__url_free(&parsed);
        return NULL;
    }
    publisher->url = parsed;
    if (publisher->name[0] == '\0') {
        snprintf(publisher->name, sizeof(publisher->name), "%s://%s/%s", parsed.scheme,
                 parsed.hosts, parsed.raw_path);
    }
    return publisher;
}

const char *once__broker_publisher_name(const once__broker_publisher_t *publisher)
{
    return publisher->name;
}

size_t once__broker_publisher_key_limit(const once__broker_publisher_t *publisher)
{
    return publisher->key_limit;
}

size_t once__broker_publisher_target(const once__broker_publisher_t *publisher,
                                     const once__broker_message_t *message, char *out, size_t size)
{
    if (once__broker_template_fill(publisher->target, message, 0, out, size) != 0) {
        out[0] = '\0';
    }
    return strlen(out);
}

size_t once__broker_publisher_most(const once__broker_publisher_t *publisher)
{
    return publisher->most;
}

size_t once__broker_publisher_room(const once__broker_publisher_t *publisher)
{
    return publisher->most > publisher->pending ? publisher->most - publisher->pending : 0;
}

int once__broker_publish(once__broker_publisher_t *publisher, const once__broker_message_t *message,
                         void *tag)
{
    assert_publisher_state(publisher);
    return publisher->ops->publish(publisher, message, tag);
}

void once__broker_publisher_push(once__broker_publisher_t *publisher)
{
    if (publisher->ops->push != NULL) {
        publisher->ops->push(publisher);
    }
}

int once__broker_publisher_fd(const once__broker_publisher_t *publisher)
{
    return publisher->fd;
}

struct once__broker_early {
    once__broker_early_t *next;
    void *tag;
    once__broker_verdict_t verdict;
    char reason[200];
};

int once__broker_publisher_tell_soon(once__broker_publisher_t *publisher, void *tag,
                                     once__broker_verdict_t verdict, const char *reason)
{
    once__broker_early_t *early = calloc(1, sizeof(*early));

    if (early == NULL) {
        return -1;
    }
    early->tag = tag;
    early->verdict = verdict;
    snprintf(early->reason, sizeof(early->reason), "%s", reason);
    early->next = publisher->early;
    publisher->early = early;
    publisher->pending++;
    publisher->ops->wake(publisher);
    return 0;
}

void once__broker_publisher_turn(once__broker_publisher_t *publisher)
{
    once__broker_early_t *list = publisher->early;

    assert_publisher_state(publisher);
    publisher->early = NULL;
    while (list != NULL) {
        once__broker_early_t *early = list;
        list = early->next;
        once__broker_publisher_tell(publisher, early->tag, early->verdict, early->reason, 0);
        free(early);
    }
    publisher->ops->turn(publisher);
}

void once__broker_publisher_close(once__broker_publisher_t *publisher)
{
    if (publisher != NULL) {
        once__url_t parsed = publisher->url;
        while (publisher->early != NULL) {
            once__broker_early_t *early = publisher->early;
            publisher->early = early->next;
            free(early);
        }
        publisher->ops->close(publisher);
        once__url_free(&parsed);
    }
}

void once__broker_publisher_say(once__broker_publisher_t *publisher, int is_trouble,
                                const char *format, ...)
{
    char sentence[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    if (publisher->options.said != NULL) {
        publisher->options.said(publisher->options.data, is_trouble, sentence);
    }
}

void once__broker_publisher_tell(once__broker_publisher_t *publisher, void *tag,
                                 once__broker_verdict_t verdict, const char *reason,
                                 uint64_t retry_after_ms)
{
    assert(publisher->pending > 0); /* one verdict on each message */
    publisher->pending--;
    publisher->options.published(publisher->options.data, tag, verdict, reason, retry_after_ms);
}
