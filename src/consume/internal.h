/*
 * What the files of `once consume` share: the consumer, its items and its per-key queues.
 *
 *   delivery.c     what arrives: prepared by any thread; messages known to be duplicates are acknowledged, the others become items
 *   item.c         the life of an item: the state machine from the delivery to the acknowledgement
 *   queue.c        per-key queues: items of one key are handled one after the other
 *   request.c      the request to the handler: its headers
 *   dead_letter.c  messages that are given up
 *   report.c       the log and the metrics
 *   consume.c      start, loop and end
 */
#ifndef ONCE_CONSUME_INTERNAL_H
#define ONCE_CONSUME_INTERNAL_H

#include <once/experimental.h>
#include <once/once.h>

#include "base/hash.h"
#include "broker/publish.h"
#include "broker/subscribe.h"
#include "consume/consume.h"
#include "consume/handler.h"
#include "consume/identity.h"
#include "consume/report.h"
#include "loop/loop.h"
#include "service/log.h"

typedef struct once__consume once__consume_t;
typedef struct once__consume_item once__consume_item_t;
typedef struct once__consume_queue once__consume_queue_t;
typedef struct once__consume_dead_letter once__consume_dead_letter_t;

/* The stage of an item. item.c has the transitions. */
typedef enum once__consume_stage {
    ONCE__CONSUME_QUEUED,      /* other items of its queue come first */
    ONCE__CONSUME_READY,       /* its record can be asked for; without an id: it can be given up */
    ONCE__CONSUME_ASKING,      /* the store was asked */
    ONCE__CONSUME_GRANTED,     /* we hold the claim; the handler is full */
    ONCE__CONSUME_RUNNING,     /* the handler has the request */
    ONCE__CONSUME_ENDING,      /* the end of the claim is being written */
    ONCE__CONSUME_DEAD_LETTER, /* the dead letter is being published */
    ONCE__CONSUME_PAUSED,      /* ready again when its timer fires */
    ONCE__CONSUME_PARKED,      /* the same; its record is unknown until it is settled */
    ONCE__CONSUME_STAGES,
} once__consume_stage_t;

/* What follows when the end of a claim is written. */
typedef enum once__consume_next {
    ONCE__CONSUME_NEXT_DONE,
    ONCE__CONSUME_NEXT_PAUSE,
    ONCE__CONSUME_NEXT_DEAD_LETTER,
    ONCE__CONSUME_NEXT_DROP, /* we are stopping, or the message is no longer ours */
} once__consume_next_t;

struct once__consume_item {
    once__consume_item_t *next;           /* of its queue, or of the free items */
    once__consume_item_t *after, *before; /* of the list of its stage */
    once__consume_t *consumer;
    once__consume_queue_t *queue; /* NULL: it has no order */
    once__broker_delivery_t *delivery;
    once_claim_t *claim;
    once__timer_t timer;
    once__consume_stage_t stage;
    once__consume_next_t then;
    unsigned tries;  /* requests that reached the handler */
    unsigned failed; /* requests, including those that did not reach it */
    unsigned pauses; /* in a row, since the last claim */
    int is_parked;   /* counted in the consumer's `parked` */
    int is_handled;  /* the handler succeeded, but the store has not confirmed our completion */
    int status;      /* of the handler's last response; 0: none */
    uint64_t retry_after;
    const char *reason; /* of the dead letter; NULL: it is not given up */
    char detail[200];
    once__consume_dead_letter_t *dead_letter; /* NULL: not written yet */
    once__consume_id_t key;
};

/* Items that follow each other; only the first of them is under way. */
struct once__consume_queue {
    once__hash_node_t node;
    once__consume_queue_t *next_free;
    size_t count;
    once__consume_item_t *first, *last;
};

typedef struct once__consume_items {
    once__consume_item_t *first, *last;
    size_t count;
} once__consume_items_t;

struct once__consume {
    const once__consume_settings_t *settings;
    const once__service_log_t *log;
    const char *subscriber;
    char dead_letter_topic[300];
    once_t *once;
    const once_policy_t *policy;
    once__consume_identity_t identity;
    once__broker_subscription_t *subscription;
    once__broker_publisher_t *dead_letters; /* NULL: everything is being closed */
    once__consume_handler_t *handler;
    once__consume_counters_t counters;

    once__loop_t *loop;
    once__source_t once_source, subscription_source, dead_letters_source, signals_source;
    int is_reading; /* the loop watches the subscription */
    int has_more;   /* the subscription has more than its descriptor shows */
    once__timer_t second_timer;

    once__consume_items_t stages[ONCE__CONSUME_STAGES];
    once__consume_item_t *free_items;
    size_t open;       /* items in all stages */
    size_t open_bytes; /* of their payloads */
    size_t parked;     /* items whose record was unknown when it was asked for last */
    size_t lookahead;  /* claims that may be asked for beyond what the handler has room for */

    once__hash_t queues; /* by partition and key */
    once__hash_seed_t seed;
    once__consume_queue_t *free_queues;
    size_t crowd; /* items beyond the share of their queues */

    _Atomic unsigned recall_pause; /* batches to go without looking for duplicates */
    _Atomic unsigned recall_wait;  /* the last such pause; doubles while it finds none */
    int stopping, aborted;
    int store_failed; /* the store's last answer was an error */
    uint64_t stop_at;
};

/* What is prepared of a delivery. The members that every delivery needs come first. */
typedef struct once__consume_arrival {
    unsigned char has_id;
    unsigned char is_duplicate;       /* certainly */
    uint8_t digest[ONCE_DIGEST_SIZE]; /* of the payload, if payloads are compared byte by byte */
    once__consume_id_t key;
    char why[120]; /* it has no id */
} once__consume_arrival_t;

/* delivery.c: callbacks of the subscription */
void once__consume_prepare(void *consumer, once__broker_delivery_t *const *deliveries,
                           size_t count);
void once__consume_deliver(void *consumer, once__broker_delivery_t *const *deliveries,
                           size_t count);

/* item.c */
void once__consume_item_new(once__consume_t *consumer, once__broker_delivery_t *delivery);
void once__consume_items_send(once__consume_t *consumer); /* granted items, to the handler */
void once__consume_items_ask(once__consume_t *consumer);  /* for the records of ready items */
void once__consume_items_stop(once__consume_t *consumer); /* all that did not reach the handler */
void once__consume_items_free(once__consume_t *consumer);
/* The invariants of item.c; the item is in this stage. */
void once__consume_assert_item_state(const once__consume_item_t *item, once__consume_stage_t stage);
void once__consume_item_set_stage(once__consume_item_t *item, once__consume_stage_t stage);
void once__consume_item_done(once__consume_item_t *item);   /* acknowledges */
void once__consume_item_repeat(once__consume_item_t *item); /* pauses longer each time */
/* What asks for records have in common. */
once_ask_t once__consume_ask(const once__consume_t *consumer);

/* queue.c */
void once__consume_queue_enter(once__consume_item_t *item); /* sets its queue and first stage */
/* The item is the first of its queue; the next one becomes ready. */
void once__consume_queue_leave(once__consume_item_t *item);
void once__consume_queues_free(once__consume_t *consumer);

/* request.c: NULL if memory is short */
once__consume_handler_headers_t *once__consume_request_headers(once__consume_item_t *item);

/* dead_letter.c */
void once__consume_dead_letter_send(once__consume_item_t *item);
void once__consume_dead_letter_sent(void *consumer, void *item, once__broker_verdict_t verdict,
                                    const char *reason, uint64_t retry_after_ms);

/* report.c */
void once__consume_report_item(once__consume_item_t *item, once__consume_line_t line);
void once__consume_report_duplicate(once__consume_t *consumer, once__broker_delivery_t *delivery);
void once__consume_report(once__consume_t *consumer, int is_trouble, const char *sentence);

#endif
