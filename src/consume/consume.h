/*
 * `once consume`: gives each message of a broker to an HTTP handler once.
 */
#ifndef ONCE_CONSUME_CONSUME_H
#define ONCE_CONSUME_CONSUME_H

#include <stddef.h>
#include <stdint.h>

#include <once/once.h>

#include "service/log.h"

typedef enum once__consume_order {
    ONCE__CONSUME_ORDER_KEY, /* messages with the same partition and key are handled in order */
    ONCE__CONSUME_ORDER_PARTITION,
    ONCE__CONSUME_ORDER_NONE,
} once__consume_order_t;

/* All texts are borrowed until it returns; NULL: the default. */
typedef struct once__consume_settings {
    const char *from, *to;
    const char *subscriber;  /* the group, or the queue */
    const char *id;          /* header:ce_id */
    const char *dead_letter; /* NAME.dlq */
    const char *content_type;
    const char *metrics; /* no metrics are served */
    const char *ca_file;
    const char *const *headers; /* of messages that are passed on to the handler */
    size_t header_count;
    once__consume_order_t order;
    once_body_mode_t fingerprint;
    int signals; /* of once__service_signals_open, called before any thread is started */
    size_t concurrency, window;
    unsigned tries;
    uint64_t timeout_ms, backoff_ms, backoff_max_ms, shutdown_ms;
} once__consume_settings_t;

enum once__consume_end {
    ONCE__CONSUME_ENDED = 0,   /* by a signal, gracefully */
    ONCE__CONSUME_WRONG = 1,   /* a setting is wrong; `error` says which */
    ONCE__CONSUME_FAILED = 2,  /* it cannot start; `error` says why */
    ONCE__CONSUME_ABORTED = 3, /* some requests in flight could not be finished */
};

/*
 * Runs until INT or TERM. `once` is a handle that nothing else uses; it is closed at the end. `policy` is the handle's own policy,
 * and that of the claims. Returns one of the codes above.
 */
int once__consume_run(const once__consume_settings_t *settings, once_t *once,
                      const once_policy_t *policy, const once__service_log_t *log, char *error,
                      size_t size);

#endif
