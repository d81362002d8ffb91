/*
 * The inside of a relay: events in memory, queues of events with one key, groups, and the links to the database.
 *
 *   fetch.c    reads events          queues.c  keeps the order of each key       control.c  groups, lease, lag
 *   destinations.c    destinations, and what of the sick ones stays in the database
 *   marks.c    removes what is done  send.c    publishes, judges verdicts        relay.c    the loop
 */
#ifndef ONCE_RELAY_INTERNAL_H
#define ONCE_RELAY_INTERNAL_H

#include <jansson.h>

#include "broker/publish.h"
#include "relay/arrays.h"
#include "relay/link.h"
#include "relay/relay.h"
#include "service/metrics.h"

#define ONCE__RELAY_GROUPS     64 /* as in sql/0001.sql */
#define ONCE__RELAY_MILESTONES 32

typedef struct once__relay_event once__relay_event_t;
typedef struct once__relay_queue once__relay_queue_t;
typedef struct once__relay_destination once__relay_destination_t;
typedef struct once__relay once__relay_t;

/* The rows of one fetch; freed with the last of its events. */
typedef struct once__relay_batch {
    PGresult *result;
    size_t refs;
    once__relay_event_t *events;
} once__relay_batch_t;

typedef enum once__relay_event_state {
    ONCE__RELAY_EVENT_WAITING, /* in its queue */
    ONCE__RELAY_EVENT_SENT,
    ONCE__RELAY_EVENT_DONE, /* confirmed or given up: in a list of marks.c */
    ONCE__RELAY_EVENT_GONE, /* removed from the database; known until a fetch that may still see it has ended */
} once__relay_event_state_t;

struct once__relay_event {
    once__relay_event_t *next;      /* in a queue, or in a list of marks.c */
    once__relay_event_t *hash_next; /* of events with the same hash of seq */
    once__relay_queue_t *queue;
    once__relay_destination_t *destination; /* where it goes */
    once__relay_batch_t *batch;
    int64_t seq;
    int64_t at_us;             /* server's time, microseconds since 2000 */
    uint64_t published_before; /* by this relay, when it was sent */
    once_slice_t topic, key, type, payload, cause;
    json_t *json; /* of the headers; NULL: none */
    once__broker_pair_t *pairs;
    size_t pair_count;
    char *reason; /* why it is given up */
    once__relay_event_state_t state;
    unsigned tries;
    int is_probe; /* sent to ask whether its destination takes events again */
    int16_t group;
    unsigned char id[16], place[6];
    char id_text[37], time_text[33];
};

typedef struct once__relay_queue_list {
    once__relay_queue_t *first, **end;
    once__relay_destination_t *destination; /* NULL: it is that of the held ones */
} once__relay_queue_list_t;

/* Events of one key in the order of seq. An event without a key has a queue of its own. */
struct once__relay_queue {
    once__relay_queue_t *hash_next;
    once__relay_queue_t *prev, *next; /* all queues */
    once__relay_queue_t *list_next;   /* ready, held or parked */
    once__relay_queue_t **list_at;    /* what points to it there */
    once__relay_queue_list_t *list;   /* where that is; NULL: in none */
    once__relay_destination_t
        *parked; /* nothing of it is in memory until this one takes events again */
    once__relay_event_t *first, *last; /* waiting */
    size_t waiting, sent, known;       /* known: events that point here */
    int64_t confirmed;                 /* greatest seq */
    int64_t low;                       /* left in the database from here on; 0: nothing is */
    uint64_t held_ms;                  /* not before then; 0: not held */
    uint64_t failed_round;             /* of its destination, when it failed the last time */
    unsigned backoff;                  /* how often it was held in a row */
    int careful;                       /* one at a time: an event of it failed */
    uint32_t hash;
    int16_t group;
    int hashed;
    size_t key_len;
    char key[];
};

/* A destination: a URL, a topic or a queue. It lives while there are events for it in memory, or queues wait for it. */
struct once__relay_destination {
    once__relay_destination_t *hash_next;
    once__relay_destination_t *ring_next,
        **ring_at; /* those that may have something to send; ring_at NULL: not there */
    once__relay_destination_t *open_next, **open_at; /* those that are held */
    once__relay_queue_list_t ready, parked;
    int64_t *
        keyless; /* for each group: the first event without a key that was left in the database; NULL: none */
    size_t events, sent;
    uint64_t round;    /* between two events that it took */
    unsigned failing;  /* keys that failed in this round */
    uint64_t alive_ms; /* when it took an event, or got the first one after nothing was under way */
    uint64_t sick_since_ms; /* the first failure of this round; 0: none */
    int is_open;            /* as of a circuit: nothing goes there but a probe after `until_ms` */
    int is_probing;
    uint64_t until_ms, backoff_ms;
    uint32_t hash;
    size_t name_len;
    char name[];
};

typedef struct once__relay_group {
    int owned, giving;
    int64_t pos;   /* read up to there */
    int64_t asked; /* pos when the fetch under way was sent; or see once__relay_fetch_void */
    int limit;     /* rows that it asks for */
    size_t late, late_bytes; /* of the answer: below `asked` */
    size_t events;           /* in memory */
} once__relay_group_t;

typedef struct once__relay_milestone {
    uint64_t xmax;
    int64_t pos[ONCE__RELAY_GROUPS];
} once__relay_milestone_t;

typedef struct once__relay_event_list {
    once__relay_event_t *first, **end;
    size_t count;
} once__relay_event_list_t;

struct once__relay {
    const once__relay_options_t *options;
    once__service_log_t log;
    once__broker_publisher_t *publisher;
    once__link_t fetch, mark, control, watch;
    uint64_t now_ms;
    char id[37], name[128], source[160];
    char *error; /* for the caller of once__relay_run */
    size_t error_size;
    once__relay_end_t end;

    once__relay_group_t groups[ONCE__RELAY_GROUPS];
    size_t owned;
    uint64_t lease_over_ms; /* by our own clock */
    uint64_t turn_sent_ms, turn_due_ms, lag_sent_ms, lag_due_ms;
    int asleep, asleep_told, asleep_asked;
    int listening_lost;

    once__relay_queue_t **queue_table;
    once__relay_event_t **event_table;
    size_t table_mask;
    once__relay_queue_t *all;
    once__relay_queue_list_t held;
    size_t events, sent;
    size_t left; /* queues with events left in the database */
    once__relay_destination_t **destination_table;
    once__relay_destination_t *ring_first, **ring_end, *open;
    size_t destination_count, ring_count, open_count, probes;
    uint64_t rounds, room_ms;
    uint64_t bytes;

    char *snapshot;  /* of the last fetch; NULL: none */
    char server[80]; /* that answered it */
    once__relay_milestone_t milestones[ONCE__RELAY_MILESTONES];
    size_t milestone_count;
    uint64_t milestone_ms;
    unsigned long fetch_connection;
    int fetching, fetch_more, notified;
    size_t share; /* rows of each group that a fetch asks for: adapted to what it finds */
    uint64_t fetch_due_ms, fetch_wait_ms, idle_since_ms, busy_since_ms;
    size_t bytes_asked; /* of each group, by the fetch under way */
    once__array_t arrays[8];

    once__relay_event_list_t done, dead, marking, gone;
    int marking_dead;
    uint64_t mark_retry_ms; /* after a statement that failed */

    int away, probing;
    uint64_t tell_away_ms, away_told_ms; /* of the database */
    uint64_t away_until_ms, away_backoff_ms;
    int stopping;
    uint64_t stop_by_ms;
    int64_t clock_ahead_us; /* of the server */
    int64_t lag_events, lag_ms, dead_events, empty_seen;
    uint64_t published, started_ms, progress_ms, progress_published, lag_published;

    once__service_metrics_t *metrics;
    once__service_metric_t *m_published, *m_retries, *m_dead, *m_lag_events, *m_lag_seconds,
        *m_in_flight, *m_groups, *m_relays, *m_dead_now, *m_database, *m_destination, *m_delay,
        *m_fetched, *m_well, *m_held, *m_left;
};

/* queues.c */
int once__relay_queues_start(once__relay_t *relay);
void once__relay_queues_end(once__relay_t *relay);
once__relay_event_t *once__relay_event_known(once__relay_t *relay, int64_t seq,
                                             const unsigned char *id);
int once__relay_queue_add(
    once__relay_t *relay,
    once__relay_event_t *event); /* 0; 1: left in the database; -1: no memory */
void once__relay_queue_over(once__relay_t *relay,
                            once__relay_event_t *event); /* is no longer under way */
void once__relay_queue_back(once__relay_t *relay,
                            once__relay_event_t *event); /* sent, and to be sent again */
void once__relay_queue_ready(once__relay_t *relay, once__relay_queue_t *queue);
void once__relay_queue_first(once__relay_t *relay,
                             once__relay_queue_t *queue); /* ready before all others */
once__relay_queue_t *
once__relay_queue_next(once__relay_t *relay); /* takes it from the ready ones; NULL: none */
void once__relay_queue_sent(once__relay_t *relay,
                            once__relay_queue_t *queue); /* its first event was */
void once__relay_queue_hold(once__relay_t *relay, once__relay_queue_t *queue, uint64_t until_ms);
uint64_t once__relay_queues_wake(
    once__relay_t *relay); /* held ones whose time came; returns when the next one's comes */
void once__relay_queue_trim(once__relay_t *relay,
                            once__relay_queue_t *queue); /* to its first event */
/* 0: it cannot be. An event without a key has no queue to come back to: its queue is freed. */
int once__relay_queue_park(once__relay_t *relay, once__relay_queue_t *queue);
void once__relay_queue_unpark(once__relay_t *relay, once__relay_queue_t *queue);
void once__relay_queue_enlist(once__relay_queue_list_t *list, once__relay_queue_t **at,
                              once__relay_queue_t *queue);
void once__relay_queue_unlist(once__relay_queue_t *queue); /* if it stands in one */
uint32_t once__relay_hash_bytes(const char *bytes, size_t len, uint32_t hash);
void once__relay_event_forget(once__relay_t *relay, once__relay_event_t *event);
void once__relay_group_drop(once__relay_t *relay,
                            int16_t group); /* events that wait; read again later */

/* destinations.c */
once__relay_destination_t *
once__relay_destination_for(once__relay_t *relay,
                            const once__relay_event_t *event); /* NULL: no memory */
void once__relay_destination_release(
    once__relay_t *relay, once__relay_destination_t *destination); /* if nothing needs it */
int once__relay_destination_parks(
    const once__relay_t *relay,
    const once__relay_destination_t *destination); /* has enough in memory */
int once__relay_destination_leave(
    once__relay_destination_t *destination,
    const once__relay_event_t *event); /* without a key; 0: no memory */
void once__relay_destination_rings(once__relay_t *relay, once__relay_destination_t *destination,
                                   int is_first);
once__relay_destination_t *once__relay_destination_turn(
    once__relay_t *relay); /* takes it from the ring; NULL: none may send */
void once__relay_destination_sent(once__relay_t *relay, once__relay_event_t *event);
void once__relay_destination_verdict(once__relay_t *relay, once__relay_event_t *event,
                                     once__broker_verdict_t verdict, const char *reason,
                                     uint64_t after_ms);
int once__relay_destination_is_over(const once__relay_t *relay,
                                    const once__relay_event_t *event); /* --give-up */
uint64_t
once__relay_destinations_wake(once__relay_t *relay); /* probes that are due; when the next one is */
uint64_t once__relay_jitter(uint64_t ms);

/* fetch.c */
void once__relay_fetch_turn(once__relay_t *relay);
int once__relay_fetch_has_room(const once__relay_t *relay);
uint64_t once__relay_fetch_due(const once__relay_t *relay);

/* milestones.c */
void once__relay_fetch_anew(once__relay_t *relay); /* nothing is known of what was read */
void once__relay_fetch_group_anew(once__relay_t *relay, int16_t group);
/* What was left in the database from `low` on is read again. */
void once__relay_fetch_back(once__relay_t *relay, int16_t group, int64_t low);
/* The fetch under way leaves out a key that is to be read now: what its answer has above the group's position does not count. */
void once__relay_fetch_void(once__relay_t *relay, int16_t group);
void once__relay_milestone_add(once__relay_t *relay, uint64_t xmax);
/* The newest one at which no transaction from `xid` on had begun; NULL: none is old enough. */
const once__relay_milestone_t *once__relay_milestone_before(const once__relay_t *relay,
                                                            uint64_t xid);

/* marks.c */
void once__relay_marks_add(once__relay_t *relay, once__relay_event_t *event);
void once__relay_marks_give_up(once__relay_t *relay, once__relay_event_t *event,
                               const char *reason);
void once__relay_marks_turn(once__relay_t *relay);
void once__relay_marks_fetched(once__relay_t *relay); /* no fetch is under way */
int once__relay_marks_empty(const once__relay_t *relay);
void once__relay_event_list_init(once__relay_event_list_t *list);
void once__relay_event_list_add(once__relay_event_list_t *list, once__relay_event_t *event);

/* control.c */
void once__relay_groups_read(const char *list, int *has); /* "{1,5}": sets has[1] and has[5] */
void once__relay_control_stop(once__relay_t *relay, once__relay_end_t end, const char *why);
void once__relay_control_turn(once__relay_t *relay);
uint64_t once__relay_control_due(const once__relay_t *relay);

/* send.c */
void once__relay_send_turn(once__relay_t *relay);
uint64_t once__relay_send_due(once__relay_t *relay);
void once__relay_send_verdict(void *data, void *tag, once__broker_verdict_t verdict,
                              const char *reason, uint64_t retry_after_ms);

/* event.c */
int once__relay_event_read(once__relay_event_t *event, const PGresult *result,
                           int row); /* 0 or -1: no memory */

/* report.c */
int once__relay_report_start(once__relay_t *relay);
void once__relay_report_turn(once__relay_t *relay);
void once__relay_report_end(const once__relay_t *relay); /* the last word of --progress */
void once__relay_report_said(void *data, int is_trouble, const char *sentence);
void once__relay_report_database(once__relay_t *relay,
                                 const PGresult *result); /* of a statement that failed */
void once__relay_report_event(once__relay_t *relay, once__service_log_level_t level,
                              const char *message, const once__relay_event_t *event,
                              const char *reason);
int64_t once__relay_event_age_us(const once__relay_t *relay, const once__relay_event_t *event);
void once__relay_report_published(once__relay_t *relay, const once__relay_event_t *event);

#endif
