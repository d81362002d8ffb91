/*
 * The inside of a relay: events in memory, per-key queues, destinations, groups, and the connections to the database.
 *
 *   fetch.c         reads events, so that none is skipped
 *   event.c         one event: a row as a message, and its place in memory
 *   queues.c        per-key queues: the order of the events of a key
 *   destinations.c  destinations, and which events of failing ones stay in the database
 *   send.c          publishes, and applies the verdicts
 *   removals.c         removes from the outbox what is published or given up
 *   groups.c        the groups that are ours, their lease, and the lag
 *   report.c        log, metrics, progress
 *   relay.c         start, loop and end
 */
#ifndef ONCE_RELAY_INTERNAL_H
#define ONCE_RELAY_INTERNAL_H

#include <jansson.h>

#include "base/hash.h"
#include "base/list.h"
#include "broker/publish.h"
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
    ONCE__RELAY_EVENT_SENT,    /* at the publisher */
    ONCE__RELAY_EVENT_DONE,    /* confirmed or given up: in a list of removals.c */
    ONCE__RELAY_EVENT_GONE, /* removed from the database; known until no fetch can see it any more */
} once__relay_event_state_t;

struct once__relay_event {
    once__hash_node_t node;    /* of all events, by seq */
    once__relay_event_t *next; /* in its queue, or in a list of removals.c */
    once__relay_queue_t *queue;
    once__relay_destination_t *destination;
    once__relay_batch_t *batch;
    int64_t seq;
    int64_t at_us;             /* the server's time, microseconds since 2000 */
    uint64_t published_before; /* events this relay had published when it was sent */
    once_slice_t topic, key, type, payload, cause;
    json_t *json; /* of the headers; NULL: none */
    once__broker_pair_t *pairs;
    size_t pair_count;
    char *reason; /* why it is given up */
    once__relay_event_state_t state;
    unsigned tries;
    int is_probe; /* sent to find out whether its destination takes events again */
    int16_t group;
    unsigned char id[16], place[6];
    char id_text[37], time_text[33];
};

typedef struct once__relay_event_list {
    ONCE__LIST(once__relay_event_t);
} once__relay_event_list_t;

/* Queues that are ready for one destination, evicted for one, or paused. */
typedef struct once__relay_queue_list {
    once__relay_queue_t *first, **end;
    once__relay_destination_t *destination; /* NULL: the list of paused queues */
} once__relay_queue_list_t;

/* The events of one key in the order of seq. An event without a key has a queue of its own. */
struct once__relay_queue {
    once__hash_node_t node;           /* of all queues with a key */
    once__relay_queue_t *prev, *next; /* of all queues */
    once__relay_queue_t *list_next;   /* in its list */
    once__relay_queue_t **list_at;    /* the pointer to it there */
    once__relay_queue_list_t *list;   /* NULL: in none */
    /* none of its events is in memory until this one takes events again */
    once__relay_destination_t *evicted;
    once__relay_event_t *first, *last; /* waiting */
    size_t waiting, sent;
    size_t known;          /* events that point here, in any state */
    int64_t confirmed;     /* greatest seq that was published */
    int64_t low;           /* its events from here on are left in the database; 0: none are */
    uint64_t paused_ms;    /* nothing is sent before; 0: not paused */
    uint64_t failed_round; /* of its destination, when it failed last */
    unsigned backoff;      /* times it was paused in a row */
    int careful;           /* one event at a time: one of them failed */
    int16_t group;
    int has_key;
    size_t key_len;
    char key[];
};

typedef struct once__relay_line {
    once__relay_destination_t *first, **end;
    size_t count;
    size_t sent; /* in flight, of all destinations that belong to this line */
} once__relay_line_t;

/* Destinations that differ in nothing but the key. It exists while one of them does. */
typedef struct once__relay_family {
    once__hash_node_t node;                          /* of all families, by name */
    struct once__relay_family *ring_next, **ring_at; /* ring_at NULL: its lines are empty */
    once__relay_line_t lines[2];                     /* well ones, failing ones */
    int was_failing;                                 /* which line had the last turn */
    size_t members;
    size_t name_len;
    char name[];
} once__relay_family_t;

/* A URL, a topic or a queue of the broker. It exists while events for it are in memory, or per-key queues wait for it. */
struct once__relay_destination {
    once__hash_node_t node; /* of all destinations, by name */
    once__relay_family_t *family;
    once__relay_destination_t *line_next,
        **line_at; /* those that may have something to send; line_at NULL: not there */
    once__relay_destination_t *suspended_next, **suspended_at; /* those that are suspended */
    once__relay_queue_list_t ready, evicted;
    /* for each group: the first event without a key that was left in the database; NULL: none */
    int64_t *keyless;
    size_t events, sent;
    uint64_t round;    /* changes with each event that it takes */
    unsigned failing;  /* keys that failed in this round */
    int is_failing;    /* which line of its family it belongs to: a key failed in this round */
    uint64_t alive_ms; /* when it took an event, or was sent one after a time with none in flight */
    uint64_t sick_since_ms; /* the first failure of this round; 0: none */
    int is_suspended;       /* as a circuit breaker: it gets nothing but a probe after `until_ms` */
    int is_probing;
    unsigned attempts; /* probes that failed in a row */
    uint64_t until_ms;
    size_t name_len;
    char name[];
};

typedef struct once__relay_group {
    int owned,
        giving;    /* giving: it goes to another relay as soon as none of its events is in memory */
    int64_t pos;   /* read up to there */
    int64_t asked; /* pos when the fetch in flight was sent; INT64_MAX: see make_void() */
    int limit;     /* rows that it asks for */
    size_t late, late_bytes; /* of the answer: below `asked` */
    size_t events;           /* in memory */
} once__relay_group_t;

/* When no transaction from `xmax` on had begun, each group was read up to `pos`: their events are behind it. */
typedef struct once__relay_milestone {
    uint64_t xmax;
    int64_t pos[ONCE__RELAY_GROUPS];
} once__relay_milestone_t;

/* fetch.c */
typedef struct once__relay_reading {
    char *snapshot;  /* of the last fetch; NULL: none */
    char server[80]; /* that answered it */
    once__relay_milestone_t milestones[ONCE__RELAY_MILESTONES];
    size_t milestone_count;
    uint64_t milestone_ms;
    unsigned long connection; /* which connection the last fetch used */
    int is_under_way;
    int has_more, notified; /* reasons to fetch at once */
    size_t share;           /* rows of each group that a fetch asks for: adapted to what it finds */
    uint64_t due_ms, wait_ms, idle_since_ms, busy_since_ms;
    size_t bytes_asked;  /* of each group, by the fetch in flight */
    int64_t empty_count; /* fetches in a row that found nothing */
} once__relay_reading_t;

/* queues.c */
typedef struct once__relay_queues {
    once__hash_t table; /* by group and key */
    once__hash_seed_t seed;
    once__relay_queue_t *all;
    once__relay_queue_list_t paused;
    size_t left; /* queues with events left in the database */
} once__relay_queues_t;

/* destinations.c */
typedef struct once__relay_destinations {
    once__hash_t table, families; /* by name */
    once__relay_family_t *ring_first, **ring_end;
    once__relay_destination_t *suspended;
    size_t ring_count, suspended_count, probes;
    uint64_t rounds, room_ms;
} once__relay_destinations_t;

/* removals.c */
typedef struct once__relay_removals {
    once__relay_event_list_t done, dead; /* to be removed, to be moved to the dead events */
    once__relay_event_list_t removing;   /* in the statement that is in flight */
    once__relay_event_list_t gone;
    int removing_dead;
    uint64_t retry_ms; /* after a statement that failed */
} once__relay_removals_t;

/* send.c: the broker as a whole does not take events. */
typedef struct once__relay_outage {
    int is_away, is_probing;
    unsigned attempts; /* that failed in a row */
    uint64_t until_ms;
} once__relay_outage_t;

/* groups.c */
typedef struct once__relay_sharing {
    size_t owned;           /* groups */
    uint64_t lease_over_ms; /* by our own clock */
    uint64_t turn_sent_ms, turn_due_ms;
    int asleep, asleep_asked,
        asleep_known; /* producers notify us: wanted, in the turn in flight, known to the database */
} once__relay_sharing_t;

typedef struct once__relay_lag {
    int64_t events, oldest_ms, dead; /* in the database, of all relays */
    uint64_t published;              /* by this relay, when they were counted */
    uint64_t sent_ms, due_ms;
} once__relay_lag_t;

/* report.c */
typedef struct once__relay_report {
    once__service_metrics_t *metrics;
    once__service_metric_t *published, *retries, *dead, *lag_events, *lag_seconds, *in_flight,
        *groups, *relays, *dead_now, *database, *destination, *delay, *fetched, *destinations_well,
        *destinations_suspended, *left;
    uint64_t database_due_ms,
        database_pause_ms; /* when the next line about a missing database is due */
    uint64_t started_ms, progress_ms, progress_published;
} once__relay_report_t;

struct once__relay {
    const once__relay_options_t *options;
    once__service_log_t log;
    once__broker_publisher_t *publisher;
    once__loop_t *loop;
    once__source_t signals_source, publisher_source;
    once__relay_link_t fetch, remove, control, watch;
    once__pg_params_t params; /* of the statement that is being sent */
    uint64_t now_ms;
    int64_t clock_ahead_us; /* the server's clock before ours */
    char id[37], name[128], source[160];
    char *error; /* for the caller of once__relay_run */
    size_t error_size;
    once__relay_end_t end;
    int stopping;
    uint64_t stop_by_ms;

    once__relay_group_t groups[ONCE__RELAY_GROUPS];
    once__hash_t event_table; /* by seq */
    size_t events, sent;      /* in memory; of these, at the publisher */
    uint64_t bytes;           /* of their payloads */
    uint64_t published;

    once__relay_sharing_t sharing;
    once__relay_lag_t lag;
    once__relay_reading_t reading;
    once__relay_queues_t queues;
    once__relay_destinations_t destinations;
    once__relay_outage_t outage;
    once__relay_removals_t removals;
    once__relay_report_t report;
};

/* event.c */
/* The row as an event. Returns 0, or -1 if memory is short. */
int once__relay_event_read(once__relay_event_t *event, const PGresult *result, int row);
once__relay_event_t *once__relay_event_known(once__relay_t *relay, int64_t seq,
                                             const unsigned char *id);
void once__relay_event_keep(once__relay_t *relay, once__relay_event_t *event,
                            once__relay_queue_t *queue);
void once__relay_event_forget(once__relay_t *relay, once__relay_event_t *event);
int64_t once__relay_event_age_us(const once__relay_t *relay, const once__relay_event_t *event);
once__relay_event_t *once__relay_event_list_take(once__relay_event_list_t *list);
void once__relay_batch_release(once__relay_batch_t *batch);

/* queues.c */
int once__relay_queues_start(once__relay_t *relay);
void once__relay_queues_end(once__relay_t *relay);
/* Returns 0, 1 if the event was left in the database, or -1 if memory is short. */
int once__relay_queue_add(once__relay_t *relay, once__relay_event_t *event);
void once__relay_queue_over(once__relay_t *relay,
                            once__relay_event_t *event); /* it is no longer at the publisher */
void once__relay_queue_back(once__relay_t *relay,
                            once__relay_event_t *event); /* nor is it, and it waits again */
void once__relay_queue_known(once__relay_t *relay,
                             once__relay_queue_t *queue); /* one event fewer points to it */
void once__relay_queue_ready(once__relay_t *relay, once__relay_queue_t *queue); /* if it may send */
void once__relay_queue_first(once__relay_t *relay,
                             once__relay_queue_t *queue); /* ready before all others */
once__relay_queue_t *
once__relay_queue_next(once__relay_t *relay); /* takes a ready one; NULL: there is none */
void once__relay_queue_sent(once__relay_t *relay,
                            once__relay_queue_t *queue); /* its first event was */
void once__relay_queue_pause(once__relay_t *relay, once__relay_queue_t *queue, uint64_t until_ms);
/* Wakes paused queues whose time has come; returns when the next one is due. */
uint64_t once__relay_queues_wake(once__relay_t *relay);
void once__relay_queue_trim(once__relay_t *relay,
                            once__relay_queue_t *queue); /* to its first event */
/* Leaves its events in the database. Returns 0 if that cannot be. A queue without a key is freed. */
int once__relay_queue_evict(once__relay_t *relay, once__relay_queue_t *queue);
void once__relay_queue_readmit(once__relay_t *relay, once__relay_queue_t *queue);
void once__relay_queues_drop(once__relay_t *relay,
                             int16_t group); /* events that wait; they can be read again */

/* destinations.c */
int once__relay_destinations_start(once__relay_t *relay);
void once__relay_destinations_end(once__relay_t *relay);
once__relay_destination_t *
once__relay_destination_for(once__relay_t *relay,
                            const once__relay_event_t *event); /* NULL: no memory */
/* if nothing needs it */
void once__relay_destination_release(once__relay_t *relay, once__relay_destination_t *destination);
/* Whether it has enough events in memory. */
int once__relay_destination_evicts(const once__relay_t *relay,
                                   const once__relay_destination_t *destination);
/* Leaves an event without a key in the database. Returns 0 if memory is short. */
int once__relay_destination_leave(once__relay_destination_t *destination,
                                  const once__relay_event_t *event);
void once__relay_destination_rings(once__relay_t *relay, once__relay_destination_t *destination,
                                   int is_first);
once__relay_destination_t *
once__relay_destination_turn(once__relay_t *relay); /* takes the next that may send; NULL: none */
void once__relay_destination_sent(once__relay_t *relay, once__relay_event_t *event);
void once__relay_destination_over(const once__relay_event_t *event); /* no longer in flight */
void once__relay_destination_verdict(once__relay_t *relay, once__relay_event_t *event,
                                     once__broker_verdict_t verdict, const char *reason,
                                     uint64_t after_ms);
int once__relay_destination_is_over(const once__relay_t *relay,
                                    const once__relay_event_t *event); /* --give-up */
/* Sends probes that are due; returns when the next one is. */
uint64_t once__relay_destinations_wake(once__relay_t *relay);

/* fetch.c */
void once__relay_fetch_turn(once__relay_t *relay);
int once__relay_fetch_has_room(const once__relay_t *relay);
uint64_t once__relay_fetch_due(const once__relay_t *relay);
void once__relay_fetch_restart_group(once__relay_t *relay, int16_t group);
/* What was left in the database from `low` on is read again. */
void once__relay_fetch_back(once__relay_t *relay, int16_t group, int64_t low);
/* A snapshot as text is "xmin:xmax:xid,xid,..." (pg_snapshot). The first transaction id that had not begun; 0: malformed. */
uint64_t once__relay_snapshot_xmax(const char *text);
/* The transactions that were in progress, one after the other: begins with *at NULL. 0: there are no more. */
uint64_t once__relay_snapshot_next(const char *text, const char **at);

/* removals.c */
void once__relay_removals_start(once__relay_t *relay);
void once__relay_removals_add(once__relay_t *relay, once__relay_event_t *event);
void once__relay_removals_give_up(once__relay_t *relay, once__relay_event_t *event,
                                  const char *reason);
void once__relay_removals_turn(once__relay_t *relay);
void once__relay_removals_fetched(once__relay_t *relay); /* no fetch is in flight */
int once__relay_removals_empty(const once__relay_t *relay);

/* groups.c */
void once__relay_groups_read(const char *list, int *has); /* "{1,5}": sets has[1] and has[5] */
void once__relay_groups_turn(once__relay_t *relay);
uint64_t once__relay_groups_due(const once__relay_t *relay);
void once__relay_stop(once__relay_t *relay, once__relay_end_t end, const char *why);

/* send.c */
void once__relay_send_turn(once__relay_t *relay);
uint64_t once__relay_send_due(once__relay_t *relay);
void once__relay_send_verdict(void *data, void *tag, once__broker_verdict_t verdict,
                              const char *reason, uint64_t retry_after_ms);

/* report.c */
int once__relay_report_start(once__relay_t *relay);
void once__relay_report_turn(once__relay_t *relay);
void once__relay_report_end(const once__relay_t *relay); /* the last line of --progress */
void once__relay_report_said(void *data, int is_trouble, const char *sentence);
void once__relay_report_database(once__relay_t *relay,
                                 const PGresult *result); /* of a statement that failed */
void once__relay_report_event(once__relay_t *relay, once__service_log_level_t level,
                              const char *message, const once__relay_event_t *event,
                              const char *reason);
void once__relay_report_published(once__relay_t *relay, const once__relay_event_t *event);

#endif
