/*
 * The inside of a relay: events in memory, chains of events with one key, groups, and the links to the database.
 *
 *   fetch.c    reads events          chains.c  keeps the order of each key       control.c  groups, lease, lag
 *   lanes.c    destinations, and what of the sick ones stays in the database
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

typedef struct once__event once__event_t;
typedef struct once__chain once__chain_t;
typedef struct once__lane once__lane_t;
typedef struct once__relay once__relay_t;

/* The rows of one fetch; freed with the last of its events. */
typedef struct once__batch {
    PGresult *result;
    size_t refs;
    once__event_t *events;
} once__batch_t;

typedef enum once__event_state {
    ONCE__EVENT_WAITING, /* in its chain */
    ONCE__EVENT_SENT,
    ONCE__EVENT_DONE, /* confirmed or given up: in a list of marks.c */
    ONCE__EVENT_GONE, /* removed from the database; known until a fetch that may still see it has ended */
} once__event_state_t;

struct once__event {
    once__event_t *next;      /* in a chain, or in a list of marks.c */
    once__event_t *hash_next; /* of events with the same hash of seq */
    once__chain_t *chain;
    once__lane_t *lane; /* where it goes */
    once__batch_t *batch;
    int64_t seq;
    int64_t at_us;             /* server's time, microseconds since 2000 */
    uint64_t published_before; /* by this relay, when it was sent */
    once_slice_t topic, key, type, payload, cause;
    json_t *json; /* of the headers; NULL: none */
    once__pair_t *pairs;
    size_t pair_count;
    char *reason; /* why it is given up */
    once__event_state_t state;
    unsigned tries;
    int is_probe; /* sent to ask whether its destination takes events again */
    int16_t group;
    unsigned char id[16], place[6];
    char id_text[37], time_text[33];
};

typedef struct once__chain_queue {
    once__chain_t *first, **end;
    once__lane_t *lane; /* NULL: it is that of the held ones */
} once__chain_queue_t;

/* Events of one key in the order of seq. An event without a key has a chain of its own. */
struct once__chain {
    once__chain_t *hash_next;
    once__chain_t *prev, *next;  /* all chains */
    once__chain_t *queue_next;   /* ready, held or parked */
    once__chain_t **queue_at;    /* what points to it there */
    once__chain_queue_t *queue;  /* where that is; NULL: in none */
    once__lane_t *parked;        /* nothing of it is in memory until this one takes events again */
    once__event_t *first, *last; /* waiting */
    size_t waiting, sent, known; /* known: events that point here */
    int64_t confirmed;           /* greatest seq */
    int64_t low;                 /* left in the database from here on; 0: nothing is */
    uint64_t held_ms;            /* not before then; 0: not held */
    uint64_t failed_round;       /* of its lane, when it failed the last time */
    unsigned backoff;            /* how often it was held in a row */
    int careful;                 /* one at a time: an event of it failed */
    uint32_t hash;
    int16_t group;
    int hashed;
    size_t key_len;
    char key[];
};

/* A destination: a URL, a topic or a queue. It lives while there are events for it in memory, or chains wait for it. */
struct once__lane {
    once__lane_t *hash_next;
    once__lane_t *ring_next,
        **ring_at; /* those that may have something to send; ring_at NULL: not there */
    once__lane_t *open_next, **open_at; /* those that are held */
    once__chain_queue_t ready, parked;
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

typedef struct once__group {
    int owned, giving;
    int64_t pos;             /* read up to there */
    int64_t asked;           /* pos when the fetch under way was sent; or see once__fetch_void */
    int limit;               /* rows that it asks for */
    size_t late, late_bytes; /* of the answer: below `asked` */
    size_t events;           /* in memory */
} once__group_t;

typedef struct once__milestone {
    uint64_t xmax;
    int64_t pos[ONCE__RELAY_GROUPS];
} once__milestone_t;

typedef struct once__event_list {
    once__event_t *first, **end;
    size_t count;
} once__event_list_t;

struct once__relay {
    const once__relay_options_t *options;
    once__log_t log;
    once__publisher_t *publisher;
    once__link_t fetch, mark, control, watch;
    uint64_t now_ms;
    char id[37], name[128], source[160];
    char *error; /* for the caller of once__relay_run */
    size_t error_size;
    once__relay_end_t end;

    once__group_t groups[ONCE__RELAY_GROUPS];
    size_t owned;
    uint64_t lease_over_ms; /* by our own clock */
    uint64_t turn_sent_ms, turn_due_ms, lag_sent_ms, lag_due_ms;
    int asleep, asleep_told, asleep_asked;
    int listening_lost;

    once__chain_t **chain_table;
    once__event_t **event_table;
    size_t table_mask;
    once__chain_t *all;
    once__chain_queue_t held;
    size_t events, sent;
    size_t left; /* chains with events left in the database */
    once__lane_t **lane_table;
    once__lane_t *ring_first, **ring_end, *open;
    size_t lane_count, ring_count, open_count, probes;
    uint64_t rounds, room_ms;
    uint64_t bytes;

    char *snapshot;  /* of the last fetch; NULL: none */
    char server[80]; /* that answered it */
    once__milestone_t milestones[ONCE__RELAY_MILESTONES];
    size_t milestone_count;
    uint64_t milestone_ms;
    unsigned long fetch_connection;
    int fetching, fetch_more, notified;
    size_t share; /* rows of each group that a fetch asks for: adapted to what it finds */
    uint64_t fetch_due_ms, fetch_wait_ms, idle_since_ms, busy_since_ms;
    size_t bytes_asked; /* of each group, by the fetch under way */
    once__array_t arrays[8];

    once__event_list_t done, dead, marking, gone;
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

    once__metrics_t *metrics;
    once__metric_t *m_published, *m_retries, *m_dead, *m_lag_events, *m_lag_seconds, *m_in_flight,
        *m_groups, *m_relays, *m_dead_now, *m_database, *m_destination, *m_delay, *m_fetched,
        *m_well, *m_held, *m_left;
};

/* chains.c */
int once__chains_start(once__relay_t *relay);
void once__chains_end(once__relay_t *relay);
once__event_t *once__event_known(once__relay_t *relay, int64_t seq, const unsigned char *id);
int once__chain_add(once__relay_t *relay,
                    once__event_t *event); /* 0; 1: left in the database; -1: no memory */
void once__chain_over(once__relay_t *relay, once__event_t *event); /* is no longer under way */
void once__chain_back(once__relay_t *relay, once__event_t *event); /* sent, and to be sent again */
void once__chain_ready(once__relay_t *relay, once__chain_t *chain);
void once__chain_first(once__relay_t *relay, once__chain_t *chain); /* ready before all others */
once__chain_t *
once__chain_next(once__relay_t *relay); /* takes it from the ready ones; NULL: none */
void once__chain_sent(once__relay_t *relay, once__chain_t *chain); /* its first event was */
void once__chain_hold(once__relay_t *relay, once__chain_t *chain, uint64_t until_ms);
uint64_t once__chains_wake(
    once__relay_t *relay); /* held ones whose time came; returns when the next one's comes */
void once__chain_trim(once__relay_t *relay, once__chain_t *chain); /* to its first event */
/* 0: it cannot be. An event without a key has no chain to come back to: its chain is freed. */
int once__chain_park(once__relay_t *relay, once__chain_t *chain);
void once__chain_unpark(once__relay_t *relay, once__chain_t *chain);
void once__chain_enqueue(once__chain_queue_t *queue, once__chain_t **at, once__chain_t *chain);
void once__chain_unqueue(once__chain_t *chain); /* if it stands in one */
uint32_t once__hash_bytes(const char *bytes, size_t len, uint32_t hash);
void once__event_forget(once__relay_t *relay, once__event_t *event);
void once__group_drop(once__relay_t *relay, int16_t group); /* events that wait; read again later */

/* lanes.c */
once__lane_t *once__lane_for(once__relay_t *relay,
                             const once__event_t *event);          /* NULL: no memory */
void once__lane_release(once__relay_t *relay, once__lane_t *lane); /* if nothing needs it */
int once__lane_parks(const once__relay_t *relay,
                     const once__lane_t *lane); /* has enough in memory */
int once__lane_leave(once__lane_t *lane,
                     const once__event_t *event); /* without a key; 0: no memory */
void once__lane_rings(once__relay_t *relay, once__lane_t *lane, int is_first);
once__lane_t *
once__lane_turn(once__relay_t *relay); /* takes it from the ring; NULL: none may send */
void once__lane_sent(once__relay_t *relay, once__event_t *event);
void once__lane_verdict(once__relay_t *relay, once__event_t *event, once__verdict_t verdict,
                        const char *reason, uint64_t after_ms);
int once__lane_is_over(const once__relay_t *relay, const once__event_t *event); /* --give-up */
uint64_t once__lanes_wake(once__relay_t *relay); /* probes that are due; when the next one is */
uint64_t once__jitter(uint64_t ms);

/* fetch.c */
void once__fetch_turn(once__relay_t *relay);
int once__fetch_has_room(const once__relay_t *relay);
uint64_t once__fetch_due(const once__relay_t *relay);

/* milestones.c */
void once__fetch_anew(once__relay_t *relay); /* nothing is known of what was read */
void once__fetch_group_anew(once__relay_t *relay, int16_t group);
/* What was left in the database from `low` on is read again. */
void once__fetch_back(once__relay_t *relay, int16_t group, int64_t low);
/* The fetch under way leaves out a key that is to be read now: what its answer has above the group's position does not count. */
void once__fetch_void(once__relay_t *relay, int16_t group);
void once__milestone_add(once__relay_t *relay, uint64_t xmax);
/* The newest one at which no transaction from `xid` on had begun; NULL: none is old enough. */
const once__milestone_t *once__milestone_before(const once__relay_t *relay, uint64_t xid);

/* marks.c */
void once__marks_add(once__relay_t *relay, once__event_t *event);
void once__marks_give_up(once__relay_t *relay, once__event_t *event, const char *reason);
void once__marks_turn(once__relay_t *relay);
void once__marks_fetched(once__relay_t *relay); /* no fetch is under way */
int once__marks_empty(const once__relay_t *relay);
void once__event_list_init(once__event_list_t *list);
void once__event_list_add(once__event_list_t *list, once__event_t *event);

/* control.c */
void once__groups_read(const char *list, int *has); /* "{1,5}": sets has[1] and has[5] */
void once__control_stop(once__relay_t *relay, once__relay_end_t end, const char *why);
void once__control_turn(once__relay_t *relay);
uint64_t once__control_due(const once__relay_t *relay);

/* send.c */
void once__send_turn(once__relay_t *relay);
uint64_t once__send_due(once__relay_t *relay);
void once__send_verdict(void *data, void *tag, once__verdict_t verdict, const char *reason,
                        uint64_t retry_after_ms);

/* event.c */
int once__event_read(once__event_t *event, const PGresult *result,
                     int row); /* 0 or -1: no memory */

/* report.c */
int once__report_start(once__relay_t *relay);
void once__report_turn(once__relay_t *relay);
void once__report_end(const once__relay_t *relay); /* the last word of --progress */
void once__report_said(void *data, int is_trouble, const char *sentence);
void once__report_database(once__relay_t *relay,
                           const PGresult *result); /* of a statement that failed */
void once__report_event(once__relay_t *relay, once__log_level_t level, const char *message,
                        const once__event_t *event, const char *reason);
int64_t once__event_age_us(const once__relay_t *relay, const once__event_t *event);
void once__report_published(once__relay_t *relay, const once__event_t *event);

#endif
