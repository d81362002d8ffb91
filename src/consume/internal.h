/*
 * What the files of `once consume` share: the consumer, its items and queues.
 *
 * An item is one message on its way: identified, asked about, sent, ended, acknowledged. A queue is the items that have to
 * follow each other; only its first one is under way.
 */
#ifndef ONCE_CONSUME_INTERNAL_H
#define ONCE_CONSUME_INTERNAL_H

#include <once/once.h>

#include "broker/publish.h"
#include "broker/subscribe.h"
#include "consume/consume.h"
#include "consume/counters.h"
#include "consume/handler.h"
#include "consume/identity.h"
#include "consume/poller.h"
#include "service/log.h"

typedef struct once__consume once__consume_t;
typedef struct once__consume_item once__consume_item_t;
typedef struct once__consume_queue once__consume_queue_t;

typedef enum once__consume_stage {
    ONCE__CONSUME_QUEUED,      /* others of its queue come first */
    ONCE__CONSUME_READY,       /* to be asked about, or to be buried */
    ONCE__CONSUME_ASKING,      /* the store was asked */
    ONCE__CONSUME_GRANTED,     /* we hold the claim, and wait for room at the handler */
    ONCE__CONSUME_RUNNING,     /* at the handler */
    ONCE__CONSUME_ENDING,      /* the end of the claim is being written */
    ONCE__CONSUME_DEAD_LETTER, /* the dead letter is being published */
    ONCE__CONSUME_PAUSED,      /* asked again later */
    ONCE__CONSUME_PARKED,      /* the same, until somebody settles its record */
} once__consume_stage_t;

/* What follows when the end of a claim is written. */
typedef enum once__consume_next {
    ONCE__CONSUME_NEXT_DONE,
    ONCE__CONSUME_NEXT_PAUSE,
    ONCE__CONSUME_NEXT_DEAD_LETTER,
    ONCE__CONSUME_NEXT_DROP, /* we are leaving */
} once__consume_next_t;

struct once__consume_item {
    once__consume_item_t *next;           /* of its queue, or of the free ones */
    once__consume_item_t *after, *before; /* of the list of its stage */
    once__consume_t *consumer;
    once__consume_queue_t *queue;
    once__broker_delivery_t *delivery;
    once_claim_t *claim;
    once__consume_due_t timer;
    once__consume_stage_t stage;
    once__consume_next_t then;
    unsigned tries;  /* that reached the handler */
    unsigned failed; /* requests, those that did not reach it included */
    unsigned pauses; /* since the last claim, of busy records and troubles of ours */
    int parked;      /* its record has to be settled */
    int handled;     /* our own completion is on its way to the store */
    int status;      /* of the last reply; 0: none */
    uint64_t retry_after;
    const char *reason; /* of the dead letter */
    char detail[200];
    struct once__consume_dead_letter *letter;
    once__consume_id_t key;
};

struct once__consume_queue {
    once__consume_queue_t *next; /* of its bucket */
    uint64_t hash;
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
    const char *subscriber, *dead_letter;
    char dead_letter_name[300];
    once_t *once;
    const once_policy_t *policy;
    once__consume_identity_t identity;
    once__consume_poller_t *poller;
    once__consume_watch_t once_watch, source_watch, letters_watch, signals_watch;
    once__consume_due_t second_timer;
    once__broker_subscription_t *source;
    once__broker_publisher_t *letters;
    once__consume_handler_t *handler;
    once__consume_counters_t counters;

    once__consume_items_t
        stages[ONCE__CONSUME_PARKED + 1]; /* every item is in the list of its stage */
    once__consume_item_t *free_items;
    size_t open;       /* items in all of them */
    size_t open_bytes; /* of their payloads */
    size_t crowd;      /* items beyond the share of their queues */
    once__consume_queue_t **buckets, *free_queues;
    size_t bucket_mask;
    size_t parked;
    size_t lookahead; /* claims that are asked for beyond what the handler has room for */
    _Atomic unsigned
        recall_pause; /* so many times it is not worth while to look for duplicates first */
    _Atomic unsigned recall_wait; /* how long that is, when it was not worth while again */
    int more;                     /* the subscription has more */
    int stopping, aborted;
    int store_trouble; /* the last answer of the store was an error */
    uint64_t stop_at;
};

/* So many items of one queue count as messages of the window. */
size_t once__consume_queue_share(const once__consume_t *consumer);

/* What is prepared of a delivery. What is needed of every one stands together. */
typedef struct once__consume_arrival {
    unsigned char has_id;
    unsigned char is_duplicate;       /* beyond doubt */
    uint8_t digest[ONCE_DIGEST_SIZE]; /* of the payload, where it is compared exactly */
    once__consume_id_t key;
    char why[120]; /* it has none */
} once__consume_arrival_t;

/* arrive.c: deliveries that come, and the duplicates among them that can be told at once */
void once__consume_arrivals_prepare(void *consumer, once__broker_delivery_t *const *deliveries,
                                    size_t count);
void once__consume_arrivals(void *consumer, once__broker_delivery_t *const *deliveries,
                            size_t count);

/* item.c: from the delivery to the acknowledgement */
void once__consume_item_new(once__consume_t *consumer, once__broker_delivery_t *delivery);
void once__consume_item_stage(once__consume_item_t *item, once__consume_stage_t stage);
void once__consume_item_done(once__consume_item_t *item); /* acknowledges */
void once__consume_item_drop(once__consume_item_t *item); /* does not */
void once__consume_items_free(once__consume_t *consumer);
void once__consume_item_pause(once__consume_item_t *item, once__consume_stage_t stage,
                              uint64_t ms); /* half of it at least */
void once__consume_item_pause_after(once__consume_item_t *item, uint64_t ms, uint64_t least);
uint64_t once__consume_item_backoff(const once__consume_item_t *item, unsigned times); /* from 1 */

/* ask.c: what the record says */
void once__consume_ask_ready(once__consume_t *consumer);
once_ask_t once__consume_ask_in_common(const once__consume_t *consumer); /* what all asks have */
void once__consume_ask_about(const once__consume_t *consumer,
                             const once__consume_arrival_t *arrival,
                             once_ask_t *ask); /* and what one of them has */

/* send.c: what the handler says */
void once__consume_send_granted(once__consume_t *consumer);

/* end.c: the end of a claim */
void once__consume_end_complete(once__consume_item_t *item);
void once__consume_end_release(once__consume_item_t *item, once__consume_next_t then);
void once__consume_end_release_early(once__consume_item_t *item,
                                     once__consume_next_t then); /* before any effect */
void once__consume_end_doubt(once__consume_item_t *item, once__consume_next_t then);

/* bury.c: dead letters */
void once__consume_dead_letter_send(once__consume_item_t *item);
void once__consume_dead_letter_sent(void *consumer, void *item, once__broker_verdict_t verdict,
                                    const char *reason, uint64_t retry_after_ms);
void once__consume_dead_letter_free(struct once__consume_dead_letter *letter);

/* say.c: the log */
void once__consume_say(once__consume_item_t *item, once__consume_line_t line);
void once__consume_say_duplicate(once__consume_t *consumer, once__broker_delivery_t *delivery);
void once__consume_say_about(once__consume_t *consumer, int is_trouble, const char *sentence);

#endif
