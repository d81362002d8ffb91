/*
 * What the publishers have in common inside: the table of their functions, messages with their ready-made names.
 */
#ifndef ONCE_BROKER_PUBLISH_INTERNAL_H
#define ONCE_BROKER_PUBLISH_INTERNAL_H

#include "broker/url.h"
#include "broker/publish.h"

typedef struct once__broker_publisher_ops {
    int (*publish)(once__broker_publisher_t *publisher, const once__broker_message_t *message,
                   void *tag);
    void (*push)(once__broker_publisher_t *publisher); /* may be NULL */
    void (*turn)(once__broker_publisher_t *publisher);
    void (*wake)(once__broker_publisher_t *publisher);  /* makes the descriptor readable */
    void (*close)(once__broker_publisher_t *publisher); /* frees it */
} once__broker_publisher_ops_t;

/* A verdict that was clear at once; given in the next turn. */
typedef struct once__broker_early once__broker_early_t;

/* The first member of every publisher. */
struct once__broker_publisher {
    const once__broker_publisher_ops_t *ops;
    once__broker_publisher_options_t options;
    once__url_t address;
    char name[256]; /* empty when it was opened: scheme, hosts and path of the address */
    const char
        *target; /* template of what tells its destinations apart; of the publisher's memory */
    size_t most; /* messages under way at once; SIZE_MAX: any number */
    size_t key_window;
    size_t pending;
    int fd;
    once__broker_early_t *early;
};

once__broker_publisher_t *once__kafka_publisher(const once__url_t *address,
                                                const once__broker_publisher_options_t *options,
                                                char *error, size_t size);
once__broker_publisher_t *once__amqp_publisher(const once__url_t *address,
                                               const once__broker_publisher_options_t *options,
                                               char *error, size_t size);
once__broker_publisher_t *once__http_publisher(const once__url_t *address,
                                               const once__broker_publisher_options_t *options,
                                               char *error, size_t size);

/* Says something with printf's format. */
void once__broker_publisher_say(once__broker_publisher_t *publisher, int is_trouble,
                                const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Takes the message and gives the verdict in the next turn. 0, or -1: out of memory. */
int once__broker_publisher_tell_soon(once__broker_publisher_t *publisher, void *tag,
                                     once__broker_verdict_t verdict, const char *reason);

/* Gives the verdict. */
void once__broker_publisher_tell(once__broker_publisher_t *publisher, void *tag,
                                 once__broker_verdict_t verdict, const char *reason,
                                 uint64_t retry_after_ms);

/*
 * Fills a template ({topic}, {type}, {key}). `escape`: percent-encodes the values, for URLs. 0, or -1: it does not fit or has
 * a zero byte.
 */
int once__broker_template_fill(const char *template_text, const once__broker_message_t *message,
                               int escape, char *out, size_t size);

/* What is wrong with a template, NULL: nothing. */
const char *once__broker_template_wrong(const char *template_text);

/*
 * The headers of a message in order: CloudEvents attributes with the prefix, then the message's own. Calls `each`. A message that
 * has an id has no other identity: those of its own headers that look like one are left out.
 */
void once__broker_message_headers(const once__broker_message_t *message, const char *prefix,
                                  void (*each)(void *data, once_slice_t name, once_slice_t value),
                                  void *data);

/* Is the name one of these, which are in lower case, end with NULL, and of which `x-*` is all that begin with `x-`? */
int once__broker_header_is_one_of(once_slice_t name, const char *const *patterns);

/* The content type: the message's own header, or what the payload looks like. */
once_slice_t once__broker_message_content_type(const once__broker_message_t *message);

#endif
