/*
 * What the files of `once consume` share: the consumer, its items and lanes.
 *
 * An item is one message on its way: identified, asked about, sent, ended, acknowledged. A lane is the items that have to
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

typedef struct once__consumer once__consumer_t;
typedef struct once__item once__item_t;
typedef struct once__lane once__lane_t;

typedef enum once__stage {
    ONCE__QUEUED,  /* others of its lane come first */
    ONCE__READY,   /* to be asked about, or to be buried */
    ONCE__ASKING,  /* the store was asked */
    ONCE__GRANTED, /* we hold the claim, and wait for room at the handler */
    ONCE__RUNNING, /* at the handler */
    ONCE__ENDING,  /* the end of the claim is being written */
    ONCE__BURYING, /* the dead letter is being published */
    ONCE__PAUSED,  /* asked again later */
    ONCE__PARKED,  /* the same, until somebody settles its record */
} once__stage_t;

/* What follows when the end of a claim is written. */
typedef enum once__next {
    ONCE__NEXT_DONE,
    ONCE__NEXT_PAUSE,
    ONCE__NEXT_BURY,
    ONCE__NEXT_DROP, /* we are leaving */
} once__next_t;

struct once__item {
    once__item_t *next;           /* of its lane, or of the free ones */
    once__item_t *after, *before; /* of the list of its stage */
    once__consumer_t *consumer;
    once__lane_t *lane;
    once__delivery_t *delivery;
    once_claim_t *claim;
    once__due_t timer;
    once__stage_t stage;
    once__next_t then;
    unsigned tries;  /* that reached the handler */
    unsigned failed; /* requests, those that did not reach it included */
    unsigned pauses; /* since the last claim, of busy records and troubles of ours */
    int parked;      /* its record has to be settled */
    int handled;     /* our own completion is on its way to the store */
    int status;      /* of the last reply; 0: none */
    uint64_t retry_after;
    const char *reason; /* of the dead letter */
    char detail[200];
    struct once__letter *letter;
    once__id_t key;
};

struct once__lane {
    once__lane_t *next; /* of its bucket */
    uint64_t hash;
    size_t count;
    once__item_t *first, *last;
};

typedef struct once__items {
    once__item_t *first, *last;
    size_t count;
} once__items_t;

struct once__consumer {
    const once__consume_settings_t *settings;
    const once__log_t *log;
    const char *subscriber, *dead_letter;
    char dead_letter_name[300];
    once_t *once;
    const once_policy_t *policy;
    once__identity_t identity;
    once__poller_t *poller;
    once__watch_t once_watch, source_watch, letters_watch, signals_watch;
    once__due_t second_timer;
    once__subscription_t *source;
    once__publisher_t *letters;
    once__handler_t *handler;
    once__counters_t counters;

    once__items_t stages[ONCE__PARKED + 1]; /* every item is in the list of its stage */
    once__item_t *free_items;
    size_t open;       /* items in all of them */
    size_t open_bytes; /* of their payloads */
    size_t crowd;      /* items beyond the share of their lanes */
    once__lane_t **buckets, *free_lanes;
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

/* So many items of one lane count as messages of the window. */
size_t once__lane_share(const once__consumer_t *consumer);

/* What is prepared of a delivery. What is needed of every one stands together. */
typedef struct once__arrival {
    unsigned char has_id;
    unsigned char is_duplicate;       /* beyond doubt */
    uint8_t digest[ONCE_DIGEST_SIZE]; /* of the payload, where it is compared exactly */
    once__id_t key;
    char why[120]; /* it has none */
} once__arrival_t;

/* arrive.c: deliveries that come, and the duplicates among them that can be told at once */
void once__arrivals_prepare(void *consumer, once__delivery_t *const *deliveries, size_t count);
void once__arrivals(void *consumer, once__delivery_t *const *deliveries, size_t count);

/* item.c: from the delivery to the acknowledgement */
void once__item_new(once__consumer_t *consumer, once__delivery_t *delivery);
void once__item_stage(once__item_t *item, once__stage_t stage);
void once__item_done(once__item_t *item); /* acknowledges */
void once__item_drop(once__item_t *item); /* does not */
void once__items_free(once__consumer_t *consumer);
void once__item_pause(once__item_t *item, once__stage_t stage,
                      uint64_t ms); /* half of it at least */
void once__item_pause_after(once__item_t *item, uint64_t ms, uint64_t least);
uint64_t once__item_backoff(const once__item_t *item, unsigned times); /* from 1 */

/* ask.c: what the record says */
void once__ask_ready(once__consumer_t *consumer);
once_ask_t once__ask_in_common(const once__consumer_t *consumer); /* what all asks have */
void once__ask_about(const once__consumer_t *consumer, const once__arrival_t *arrival,
                     once_ask_t *ask); /* and what one of them has */

/* send.c: what the handler says */
void once__send_granted(once__consumer_t *consumer);

/* end.c: the end of a claim */
void once__end_complete(once__item_t *item);
void once__end_release(once__item_t *item, once__next_t then);
void once__end_release_early(once__item_t *item, once__next_t then); /* before any effect */
void once__end_doubt(once__item_t *item, once__next_t then);

/* bury.c: dead letters */
void once__bury(once__item_t *item);
void once__buried(void *consumer, void *item, once__verdict_t verdict, const char *reason,
                  uint64_t retry_after_ms);
void once__letter_free(struct once__letter *letter);

/* say.c: the log */
void once__say(once__item_t *item, once__line_t line);
void once__say_duplicate(once__consumer_t *consumer, once__delivery_t *delivery);
void once__say_about(once__consumer_t *consumer, int is_trouble, const char *sentence);

#endif
