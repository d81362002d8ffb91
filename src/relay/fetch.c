/*
 * Reading events, so that none is skipped and the order of each key is kept.
 *
 * A group is read forwards by seq: `pos` is how far. A transaction that emits takes its numbers before it commits, so rows can
 * become visible below `pos` later. They belong to transactions that were in progress in the snapshot of the previous fetch;
 * each fetch asks for those, too, in the same snapshot as for the next rows. How far down such rows can be is known from
 * milestones: at each, every group had been read up to a position, and a transaction that had not begun then has no number
 * below it. So a transaction of hours costs nothing but one longer scan when it ends.
 *
 * One fetch is in flight at a time:
 *
 *   idle        fetch_turn() asks when a group is ours, there is room in memory, and one of these holds: the last answer had rows,
 *               a producer notified us, a group went back, or `due_ms` has come
 *   in flight   is_under_way; groups may go back meanwhile (fetch_back, restart): their part of the answer is void
 *   answered    take_answer(): another server or an older snapshot restarts all groups; otherwise groups that the server does not
 *               count as ours are dropped, rows become events, positions move on, and a milestone is added
 *   failed      all groups restart: whatever was missed is read again, and known events are recognised by their numbers
 *
 * Invariants, which assert_reading_state() checks in every turn and when a fetch is answered:
 *
 *   I-1  While a fetch is in flight the link takes no other statement.
 *   I-2  There are milestones only since a snapshot that is known: each tells which transactions had begun before it.
 *   I-3  Milestones are in the order of their snapshots, and there is room for them.
 *   I-4  The share of a group is at least LIMIT_MIN rows.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "relay/internal.h"

/* About as many rows are read by one statement: while they are published, the next ones are read. */
#define FETCH_ROWS   10000
#define BYTES_MAX    (64U << 20) /* of payloads in memory */
#define BYTES_MIN    (64U << 10) /* asked for of each group, however much is in memory */
#define LIMIT_MIN    16
#define EXCLUDED_MAX 64  /* keys that the server is asked to leave out */
#define LATE_MAX     256 /* as in once.relay_fetch */
#define WAIT_MIN_MS  2   /* between fetches that find nothing: doubled up to poll_ms */
#define AWAKE_MS     20  /* or to this while producers do not notify us */
#define MILESTONE_MS 200 /* between two milestones */

static const char statement[] =
    "SELECT * FROM once.relay_fetch($1::pg_catalog.uuid, $2, $3, $4, $5, $6, $7, "
    "$8::pg_catalog.pg_snapshot, $9, $10, $11)";

static void assert_reading_state(const once__relay_t *relay)
{
    const once__relay_reading_t *reading = &relay->reading;
    size_t count = reading->milestone_count;

    assert(!reading->is_under_way || !once__relay_link_is_idle(&relay->fetch)); /* I-1 */
    assert(reading->snapshot != NULL || count == 0);                            /* I-2 */
    assert(count <= ONCE__RELAY_MILESTONES);                                    /* I-3 */
    assert(count < 2 || reading->milestones[count - 2].xmax <= reading->milestones[count - 1].xmax);
    assert(reading->share >= LIMIT_MIN); /* I-4 */
}

/* --------------------------------------------------------------------------------------------------------- snapshots */

uint64_t once__relay_snapshot_xmax(const char *text)
{
    const char *colon = strchr(text, ':');

    return colon != NULL ? strtoull(colon + 1, NULL, 10) : 0;
}

uint64_t once__relay_snapshot_next(const char *text, const char **at)
{
    uint64_t xid;
    char *end;

    if (*at == NULL) {
        const char *colon = strchr(text, ':');
        colon = colon != NULL ? strchr(colon + 1, ':') : NULL;
        if (colon == NULL) {
            return 0;
        }
        *at = colon + 1;
    }
    xid = strtoull(*at, &end, 10);
    if (end == *at) {
        return 0;
    }
    *at = *end == ',' ? end + 1 : end;
    return xid;
}

/* --------------------------------------------------------------------------------------------- positions, milestones */

/*
 * A group goes back while a fetch is in flight that leaves out a key which must now be read. So the part of its answer above
 * the group's position is ignored.
 */
static void make_void(once__relay_t *relay, int16_t group)
{
    if (relay->reading.is_under_way) {
        relay->groups[group].asked = INT64_MAX;
    }
}

void once__relay_fetch_back(once__relay_t *relay, int16_t group, int64_t low)
{
    once__relay_group_t *back = &relay->groups[group];

    back->pos = low - 1 < back->pos ? low - 1 : back->pos;
    make_void(relay, group);
    relay->reading.has_more = 1;
}

void once__relay_fetch_restart_group(once__relay_t *relay, int16_t group)
{
    relay->groups[group].pos = 0;
    make_void(relay, group);
    for (size_t i = 0; i < relay->reading.milestone_count; i++) {
        relay->reading.milestones[i].pos[group] = 0;
    }
}

/* Forgets what was read, of all groups. */
static void restart(once__relay_t *relay)
{
    free(relay->reading.snapshot);
    relay->reading.snapshot = NULL;
    relay->reading.milestone_count = 0;
    for (int16_t group = 0; group < ONCE__RELAY_GROUPS; group++) {
        once__relay_fetch_restart_group(relay, group);
    }
}

/* When there are too many, every second one goes: the older a transaction, the coarser what is known of it. */
static void add_milestone(once__relay_t *relay, uint64_t xmax)
{
    once__relay_milestone_t *added;

    if (relay->now_ms - relay->reading.milestone_ms < MILESTONE_MS &&
        relay->reading.milestone_count > 0) {
        return;
    }
    if (relay->reading.milestone_count == ONCE__RELAY_MILESTONES) {
        for (size_t i = 1; i < ONCE__RELAY_MILESTONES / 2; i++) {
            relay->reading.milestones[i] = relay->reading.milestones[2 * i];
        }
        relay->reading.milestone_count = ONCE__RELAY_MILESTONES / 2;
    }
    added = &relay->reading.milestones[relay->reading.milestone_count++];
    added->xmax = xmax;
    for (int i = 0; i < ONCE__RELAY_GROUPS; i++) {
        added->pos[i] = relay->groups[i].pos;
    }
    relay->reading.milestone_ms = relay->now_ms;
}

/* The newest milestone at which no transaction from `xid` on had begun; NULL if none is old enough. */
static const once__relay_milestone_t *milestone_before(const once__relay_t *relay, uint64_t xid)
{
    const once__relay_milestone_t *found = NULL;

    for (size_t i = 0; i < relay->reading.milestone_count; i++) {
        found = relay->reading.milestones[i].xmax <= xid ? &relay->reading.milestones[i] : found;
    }
    return found;
}

/* --------------------------------------------------------------------------------------------------------- the question */

static int wants(const once__relay_t *relay, int group)
{
    return relay->groups[group].owned && !relay->groups[group].giving;
}

static int limit_of(const once__relay_t *relay, int group, size_t share)
{
    size_t cap = relay->options->window / 8 + LIMIT_MIN, has = relay->groups[group].events;
    size_t room = has < cap ? cap - has : 0;

    if (relay->events >= relay->options->window || relay->bytes >= BYTES_MAX) {
        return 0;
    }
    return (int)(room < share ? room : share);
}

/* Writes the transactions in progress that are older than `young`, and returns the oldest of them. */
static uint64_t put_old(once__pg_value_t *array, const char *snapshot,
                        const once__relay_milestone_t *young)
{
    const char *at = NULL;
    uint64_t xid, oldest = UINT64_MAX;

    while (snapshot != NULL && young != NULL &&
           (xid = once__relay_snapshot_next(snapshot, &at)) != 0) {
        if (xid < young->xmax) {
            once__pg_element_int(array, xid, 8);
            oldest = xid < oldest ? xid : oldest;
        }
    }
    return oldest;
}

/* Fills parameters 2 to 6, which are empty arrays. */
static void put_groups(once__relay_t *relay, const once__relay_milestone_t *young,
                       const once__relay_milestone_t *old, size_t share)
{
    once__pg_value_t *arrays = relay->params.values + 1;

    for (int i = 0; i < ONCE__RELAY_GROUPS; i++) {
        if (!wants(relay, i)) {
            continue;
        }
        relay->groups[i].asked = relay->groups[i].pos;
        relay->groups[i].late = relay->groups[i].late_bytes = 0;
        relay->groups[i].limit = limit_of(relay, i, share);
        once__pg_element_int(&arrays[0], (uint64_t)i, 2);
        once__pg_element_int(&arrays[1], (uint64_t)relay->groups[i].pos, 8);
        once__pg_element_int(&arrays[2], (uint64_t)relay->groups[i].limit, 4);
        once__pg_element_int(&arrays[3], (uint64_t)(young != NULL ? young->pos[i] : 0), 8);
        once__pg_element_int(&arrays[4], (uint64_t)(old != NULL ? old->pos[i] : 0), 8);
    }
}

/* Keys with events left in the database: the server leaves out some of them, and the rest is dropped on arrival. */
static void put_excluded(once__relay_t *relay)
{
    once__pg_value_t *groups = once__pg_array(&relay->params, ONCE__PG_INT2S);
    once__pg_value_t *keys = once__pg_array(&relay->params, ONCE__PG_TEXTS);
    const once__relay_queue_t *queue = relay->queues.left > 0 ? relay->queues.all : NULL;

    for (int count = 0; queue != NULL && count < EXCLUDED_MAX; queue = queue->next) {
        if (queue->low != 0) {
            count++;
            once__pg_element_int(groups, (uint64_t)queue->group, 2);
            once__pg_element(keys, queue->key, queue->key_len);
        }
    }
}

static void take_answer(void *data, PGresult *result);

static void ask(once__relay_t *relay)
{
    static const Oid types[] = {ONCE__PG_INT2S, ONCE__PG_INT8S, ONCE__PG_INT4S,
                                ONCE__PG_INT8S, ONCE__PG_INT8S, ONCE__PG_XID8S};
    once__relay_reading_t *reading = &relay->reading;
    const once__relay_milestone_t *young =
        reading->milestone_count >= 2 ? &reading->milestones[reading->milestone_count - 2] : NULL;
    once__pg_params_t *params = &relay->params;
    size_t room = (relay->options->window - relay->events) / relay->sharing.owned;
    size_t share = reading->share < room ? reading->share : room;
    uint64_t oldest;

    once__pg_params_reset(params);
    once__pg_param_text(params, relay->id);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        (void)once__pg_array(params, types[i]);
    }
    oldest = put_old(&params->values[6], reading->snapshot, young);
    put_groups(relay, young, oldest != UINT64_MAX ? milestone_before(relay, oldest) : young,
               share > LIMIT_MIN ? share : LIMIT_MIN);
    once__pg_param_text(params, reading->snapshot != NULL ? reading->snapshot : "1:1:");
    reading->bytes_asked = relay->bytes < BYTES_MAX
                               ? (BYTES_MAX - relay->bytes) / relay->sharing.owned + BYTES_MIN
                               : BYTES_MIN;
    once__pg_param_int(params, ONCE__PG_INT8, reading->bytes_asked, 8);
    put_excluded(relay);
    reading->connection = relay->fetch.connected;
    reading->notified = 0;
    if (once__relay_link_send(&relay->fetch, statement, params, 1, take_answer, relay) == 0) {
        reading->is_under_way = 1;
    }
}

/* ---------------------------------------------------------------------------------------------------------- the answer */

/* Drops what was read of groups that are not ours, according to the server. */
static void check_groups(once__relay_t *relay, const char *list)
{
    int has[ONCE__RELAY_GROUPS] = {0};

    once__relay_groups_read(list, has);
    for (int16_t i = 0; i < ONCE__RELAY_GROUPS; i++) {
        if (wants(relay, i) && !has[i]) {
            once__relay_queues_drop(relay, i);
            once__relay_fetch_restart_group(relay, i);
            relay->groups[i].asked = 0;
        }
    }
}

/* A group that went back meanwhile will read again what is above its position; what is below comes only once. */
static int is_wanted(once__relay_t *relay, const once__relay_event_t *event)
{
    const once__relay_group_t *group = &relay->groups[event->group];

    if (event->group < 0 || event->group >= ONCE__RELAY_GROUPS || !wants(relay, event->group)) {
        return 0;
    }
    if (group->pos < group->asked && event->seq > group->pos) {
        return 0;
    }
    return once__relay_event_known(relay, event->seq, event->id) == NULL;
}

/* A transaction with very many events may have ended: the answer is then cut off, and the rest is read forwards from there. */
static void note_late(once__relay_t *relay, const once__relay_event_t *event)
{
    once__relay_group_t *group = &relay->groups[event->group];

    if (event->seq > group->asked) {
        return;
    }
    group->late++;
    group->late_bytes += event->payload.len;
    if ((group->late >= LATE_MAX || group->late_bytes > relay->reading.bytes_asked) &&
        event->seq < group->pos) {
        group->pos = event->seq;
    }
}

/* Many keys fill all groups evenly, few keys only some of them: then more rows of each group are asked for. */
static void adapt_share(once__relay_t *relay, const int *rows, int total)
{
    int full = 0;

    for (int i = 0; i < ONCE__RELAY_GROUPS; i++) {
        full |= rows[i] > 0 && rows[i] >= relay->groups[i].limit;
    }
    if (full && total < FETCH_ROWS / 2 && relay->reading.share < FETCH_ROWS) {
        relay->reading.share *= 2;
    } else if (total > FETCH_ROWS && relay->reading.share > LIMIT_MIN) {
        relay->reading.share /= 2;
    }
}

static void move_on(once__relay_t *relay, const int64_t *reached)
{
    for (int i = 0; i < ONCE__RELAY_GROUPS; i++) {
        once__relay_group_t *group = &relay->groups[i];
        if (group->pos >= group->asked && reached[i] > group->pos) {
            group->pos = reached[i];
        }
    }
}

/* Every event keeps a reference to its batch, and so does this function until it returns. */
static void take_rows(once__relay_t *relay, once__relay_batch_t *batch, int rows)
{
    int64_t reached[ONCE__RELAY_GROUPS] = {0};
    int counts[ONCE__RELAY_GROUPS] = {0};
    int failed = 0;

    batch->refs = 1;
    for (int row = 1; row < rows && !failed; row++) { /* later events of a key must not overtake */
        once__relay_event_t *event = &batch->events[row - 1];
        int added = 1;
        if (once__relay_event_read(event, batch->result, row) != 0) {
            added = -1;
        } else if (is_wanted(relay, event)) {
            event->batch = batch;
            batch->refs++;
            added = once__relay_queue_add(relay, event);
            batch->refs -= added != 0;
        }
        failed = added < 0;
        if (event->group >= 0 && event->group < ONCE__RELAY_GROUPS) {
            counts[event->group]++;
            note_late(relay, event);
            reached[event->group] =
                event->seq > reached[event->group] ? event->seq : reached[event->group];
        }
        if (added != 0) {
            json_decref(event->json);
            free(event->pairs);
        }
    }
    move_on(relay, reached);
    adapt_share(relay, counts, rows - 1);
    if (failed) { /* out of memory: nothing may be skipped */
        restart(relay);
    }
    once__relay_batch_release(batch);
}

/* Behind the connection of a pool there may be another server, or one that was restored from a backup. */
static int is_another(once__relay_t *relay, const PGresult *result)
{
    const char *server = PQgetvalue(result, 0, 7);
    int changed =
        strcmp(relay->reading.server, server) != 0 ||
        (relay->reading.snapshot != NULL && once__relay_snapshot_xmax(PQgetvalue(result, 0, 5)) <
                                                once__relay_snapshot_xmax(relay->reading.snapshot));

    if (changed) {
        if (relay->reading.server[0] != '\0') {
            once__service_log(&relay->log, ONCE__SERVICE_LOG_WARN,
                              "another server answers, or an earlier state of the same one: all "
                              "groups are read again",
                              NULL);
        }
        snprintf(relay->reading.server, sizeof(relay->reading.server), "%s", server);
    }
    return changed && relay->reading.snapshot != NULL;
}

static int keep_snapshot(once__relay_t *relay, PGresult *result)
{
    size_t len = (size_t)PQgetlength(result, 0, 5);
    char *text = malloc(len + 1);
    struct timespec now;

    if (text == NULL) {
        return -1;
    }
    memcpy(text, PQgetvalue(result, 0, 5), len);
    text[len] = '\0';
    free(relay->reading.snapshot);
    relay->reading.snapshot = text;
    clock_gettime(CLOCK_REALTIME, &now);
    relay->clock_ahead_us = once__pg_int(result, 0, 4) -
                            ((int64_t)(now.tv_sec - 946684800) * 1000000 + now.tv_nsec / 1000);
    return 0;
}

static void found(once__relay_t *relay, int rows)
{
    uint64_t most;

    relay->reading.has_more = rows > 1 ? 1 : relay->reading.has_more;
    once__service_metric_count(relay->report.fetched, (uint64_t)rows - 1);
    if (rows > 1) {
        relay->reading.wait_ms = WAIT_MIN_MS;
        relay->reading.idle_since_ms = relay->now_ms;
        relay->reading.busy_since_ms =
            relay->reading.busy_since_ms == 0 ? relay->now_ms : relay->reading.busy_since_ms;
        relay->reading.empty_count = 0;
        return;
    }
    most = relay->sharing.asleep_known || relay->options->poll_ms < AWAKE_MS
               ? relay->options->poll_ms
               : AWAKE_MS;
    relay->reading.wait_ms = 2 * relay->reading.wait_ms < most ? 2 * relay->reading.wait_ms : most;
    relay->reading.busy_since_ms = 0;
    relay->reading.empty_count++;
}

static void take_answer(void *data, PGresult *result)
{
    once__relay_t *relay = data;
    int rows = PQresultStatus(result) == PGRES_TUPLES_OK ? PQntuples(result) : 0;
    once__relay_batch_t *batch = rows > 0 ? calloc(1, sizeof(*batch)) : NULL;

    relay->reading.is_under_way = 0;
    relay->reading.has_more = 0;
    relay->reading.due_ms = relay->now_ms + relay->options->poll_ms;
    if (result != NULL && rows == 0) {
        once__relay_report_database(relay, result);
    }
    if (rows > 0 && PQgetlength(result, 0, 7) == 0) {
        once__relay_stop(relay, ONCE__RELAY_UNUSABLE,
                         "the outbox cannot be used: its functions are older than this program "
                         "(once pg upgrade)");
    }
    if (batch != NULL) {
        batch->events = calloc((size_t)rows, sizeof(batch->events[0]));
    }
    if (batch == NULL || batch->events == NULL || is_another(relay, result) ||
        keep_snapshot(relay, result) != 0) {
        restart(relay); /* whatever was missed is read again */
        relay->reading.due_ms = batch != NULL ? relay->now_ms : relay->reading.due_ms;
        free(batch != NULL ? batch->events : NULL);
        free(batch);
        PQclear(result);
        once__relay_removals_fetched(relay);
        return;
    }
    check_groups(relay, PQgetvalue(result, 0, 6));
    found(relay, rows);
    batch->result = result;
    take_rows(relay, batch, rows);
    if (relay->reading.snapshot != NULL) { /* not after a restart for want of memory */
        add_milestone(relay, once__relay_snapshot_xmax(relay->reading.snapshot));
    }
    relay->reading.due_ms = relay->now_ms + relay->reading.wait_ms;
    assert_reading_state(relay);
    once__relay_removals_fetched(relay);
}

/* ----------------------------------------------------------------------------------------------------------- when */

int once__relay_fetch_has_room(const once__relay_t *relay)
{
    size_t spare =
        relay->options->window / 4 < FETCH_ROWS ? relay->options->window / 4 : FETCH_ROWS;

    return relay->events + spare <= relay->options->window && relay->bytes < BYTES_MAX;
}

void once__relay_fetch_turn(once__relay_t *relay)
{
    assert_reading_state(relay);
    if (!once__relay_link_is_idle(&relay->fetch) || relay->reading.is_under_way ||
        relay->sharing.owned == 0 || relay->stopping ||
        relay->now_ms >= relay->sharing.lease_over_ms || !once__relay_fetch_has_room(relay)) {
        return;
    }
    if (relay->reading.connection != relay->fetch.connected) {
        restart(relay);
    }
    if (relay->reading.has_more || relay->reading.notified ||
        relay->now_ms >= relay->reading.due_ms) {
        ask(relay);
    }
}

uint64_t once__relay_fetch_due(const once__relay_t *relay)
{
    if (!once__relay_link_is_idle(&relay->fetch) || relay->reading.is_under_way ||
        relay->sharing.owned == 0 || relay->stopping || !once__relay_fetch_has_room(relay)) {
        return UINT64_MAX;
    }
    return relay->reading.due_ms;
}
