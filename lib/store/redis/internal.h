/*
 * Private to lib/store/redis: the store, its servers, and what each file offers to the others.
 */
#ifndef ONCE_STORE_REDIS_INTERNAL_H
#define ONCE_STORE_REDIS_INTERNAL_H

#include "base/hash.h"
#include "store/oplist.h"
#include "store/redis/command.h"
#include "store/redis/connection.h"

#define ONCE__REDIS_NODES_MAX 256
#define ONCE__REDIS_SLOTS     16384

typedef struct once__redis once__redis_t;
typedef struct once__redis_batch once__redis_batch_t;
typedef struct once__redis_check once__redis_check_t;
typedef struct once__redis_request once__redis_request_t;

/* Requests of this turn that further operations of their kind can join. */
typedef struct once__redis_groups {
    once__redis_request_t *completions, *claims;
} once__redis_groups_t;

/* A server. */
typedef struct once__redis_node {
    once__redis_connection_t connection;
    once__redis_batch_t *batch; /* this turn's events, where replicas are waited for */
    int is_dirty;               /* commands were collected and not sent yet */
    int is_mapped;              /* cluster: has slots */
} once__redis_node_t;

/* The records of a page that a scan has met. */
typedef struct once__redis_met {
    struct once__redis_met *next;
    size_t count;
    once__hash_node_t records[]; /* their hashes are the first bytes of their ids */
} once__redis_met_t;

/* One pass through all records. It outlives the single steps of a scan. */
typedef struct once__redis_pass {
    struct once__redis_pass *next;
    uint64_t number; /* in the cursor of a scan */
    uint64_t used_at;
    int is_walked; /* by a step that is not over: nothing else may use or drop it */
    uint64_t map_version;
    unsigned node;     /* which server */
    uint64_t position; /* SCAN's cursor there */
    int is_disturbed;  /* records moved meanwhile: start again */
    unsigned rounds;
    once__hash_t seen;      /* scan: the records that were shown */
    once__redis_met_t *met; /* where they lie */
} once__redis_pass_t;

#define ONCE__REDIS_IDS_MAX 64
typedef struct once__redis_ids {
    uint32_t ids[ONCE__REDIS_IDS_MAX];
    unsigned count;
} once__redis_ids_t;

/* learn.c: the question for the dictionaries of the store. */
typedef struct once__redis_learn {
    once__redis_call_t call;
    once__redis_t *redis;
    int is_asked;         /* it is under way */
    int is_doubted;       /* the store refused a dictionary: the list is to be read again */
    int code;             /* what became of the last question */
    uint64_t answered_at; /* when that was known; 0: never */
    unsigned tries;       /* to add the candidate */
    uint64_t looked_at;   /* when the samples were complete; 0: never */
    once__redis_ids_t wanted, asked, absent; /* to ask for; asked for; not there */
    uint64_t absent_at;
    once__oplist_t waiting; /* whose records need one of them */
} once__redis_learn_t;

struct once__redis {
    once__store_t base;
    once__loop_t *loop;
    once__redis_settings_t settings;
    once__redis_shared_t shared;
    once__redis_texts_t texts;
    once__oplist_t queue, answers;
    unsigned collected; /* submitted since the queue was last empty */
    int is_closing;
    once__redis_check_t *check; /* of this turn's claims: whether the store has the same secrets */
    int is_spread;              /* what looks like one server has slots: one key in each call */

    once__redis_node_t *nodes[ONCE__REDIS_NODES_MAX];
    unsigned node_count;

    once__redis_dictionaries_t dictionaries;
    once__redis_learn_t learn;

    /* cluster.c */
    uint16_t slots[ONCE__REDIS_SLOTS]; /* index of the node + 1; 0: none */
    uint64_t map_version;              /* 0: no map yet */
    int map_wanted, map_asked;
    uint64_t map_asked_at;

    /* sentinel.c */
    once__redis_connection_t *sentinels[ONCE__REDIS_HOSTS_MAX];
    unsigned sentinel_count, sentinel; /* the one that is asked */
    int sentinel_asked;
    unsigned sentinel_blind;    /* how many in a row did not know the master */
    once__redis_node_t *master; /* NULL: not known. With a single server, that one */
    once__timer_t poll_timer;

    /* scan.c */
    once__redis_pass_t *passes, reap_pass;
    uint64_t pass_number;
};

/* request.c */
void once__redis_answer(once__redis_t *redis, once__op_t *op, int error);
void once__redis_refuse(once__redis_t *redis, once__op_t *op, int error); /* it was not sent */
/* Collects a simple operation, or adds it to the group of its kind. */
void once__redis_send(once__redis_t *redis, once__redis_node_t *node, once__op_t *op,
                      once__redis_groups_t *groups);
void once__redis_send_groups(once__redis_t *redis, once__redis_groups_t *groups);
void once__redis_end_turn(once__redis_t *redis);
void once__redis_flush(once__redis_t *redis); /* sends what was collected */
int once__redis_ask(once__redis_node_t *node, once__redis_call_t *call,
                    const once__redis_command_t *command); /* returns 0, or -1 if out of memory */

/* nodes.c: where to send a simple operation. NULL: `*code` says why not; ONCE_OK means that it must wait. */
once__redis_node_t *once__redis_route(once__redis_t *redis, const once__op_t *op, int *code);
/* Server number `i` of those that hold records; NULL and ONCE_E_NOT_FOUND if there are no more. Otherwise as above. */
once__redis_node_t *once__redis_holder(once__redis_t *redis, unsigned i, int *code);
/* NULL: out of memory, or too many. */
once__redis_node_t *once__redis_node(once__redis_t *redis, const char *host, uint16_t port);
/* Why a node is not ready; ONCE_OK: operations must wait. */
int once__redis_node_code(const once__redis_node_t *node);
void once__redis_connection_changed(void *data, once__redis_connection_t *connection);

/* cluster.c */
unsigned once__redis_slot(const char *key, size_t len);
void once__redis_map_refresh(once__redis_t *redis); /* asks for the map if it is wanted */
once__redis_node_t *once__redis_cluster_route(once__redis_t *redis, unsigned slot, int *code);
/* The server that MOVED or ASK names; NULL if it names none. */
once__redis_node_t *once__redis_redirect(once__redis_t *redis, const once__redis_connection_t *from,
                                         const char *text);

/* sentinel.c */
int once__redis_sentinel_open(once__redis_t *redis); /* ONCE_OK or ONCE_E_NOMEM */
void once__redis_sentinel_close(once__redis_t *redis);
void once__redis_sentinel_ask(once__redis_t *redis); /* where the master is */
/* Why the master is not known; ONCE_OK: operations must wait. */
int once__redis_sentinel_code(const once__redis_t *redis);

/* learn.c */
void once__redis_learn(once__redis_t *redis, const void *data,
                       size_t len); /* from a text that is stored */
/*
 * A record needs a dictionary that is not known (dictionaries.missing): `op` is sent again when the store was asked for it; NULL:
 * there is nothing to send. Returns ONCE_OK; ONCE_E_CORRUPT: the store does not have it, or has no list of them; another code: the
 * list cannot be read now.
 */
int once__redis_await_dictionary(once__redis_t *redis, once__op_t *op);
void once__redis_doubt(once__redis_t *redis);      /* the store refused a dictionary */
void once__redis_learn_turn(once__redis_t *redis); /* asks for what is wanted */

/* scan.c: scan, stats and reap */
#define ONCE__REDIS_PATTERN_MAX (2 * ONCE__REDIS_PREFIX_MAX + ONCE__REDIS_NAME_LEN + 1)
void once__redis_scan(once__redis_t *redis, once__op_t *op);
void once__redis_pattern(const char *prefix,
                         char out[ONCE__REDIS_PATTERN_MAX]); /* of the keys of records, for SCAN */
void once__redis_scan_close(once__redis_t *redis);

/* scrub.c: what erased records have left in the dictionaries */
void once__redis_scrub(once__redis_t *redis, once__op_t *op);

#endif
