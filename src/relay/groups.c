/*
 * The groups of the outbox that are ours. Several relays share them: each renews its lease in a turn, learns which groups it
 * has and gives back what is more than its share. Whether producers notify us (asleep) and how far behind all relays are is
 * asked for here, too.
 *
 * Invariants, which assert_groups_state() checks in every turn:
 *
 *   I-1  `owned` is the number of groups that are owned; only owned groups are given back.
 *   I-2  `events` of the relay is the sum over the groups: the window counts every event once.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pg/sqlstate.h"
#include "relay/internal.h"

#define RETRY_MS 1000 /* after a turn that failed */
#define IDLE_MS  50   /* asleep after being idle for this time */
#define BUSY_MS  200  /* awake, without notifications, after being busy for this time */
#define LAG_MS   1000
#define LAG_PART 20 /* counting may take one part in these of the time */

static const char turn_statement[] = "SELECT groups, relays, share, rival FROM "
                                     "once.relay_turn($1::pg_catalog.uuid, $2, $3, $4, $5, $6)";
static const char lag_statement[] = "SELECT events, (extract(epoch FROM coalesce("
                                    "server OPERATOR(pg_catalog.-) oldest, '0')) "
                                    "OPERATOR(pg_catalog.*) 1000::numeric)::bigint, dead "
                                    "FROM once.outbox_lag()";
static const char end_statement[] = "SELECT once.relay_end($1::pg_catalog.uuid)";

/* ------------------------------------------------------------------------------------------------------------ groups */

static void assert_groups_state(const once__relay_t *relay)
{
    size_t owned = 0, events = 0;

    for (int i = 0; i < ONCE__RELAY_GROUPS; i++) {
        const once__relay_group_t *group = &relay->groups[i];
        assert(group->owned || !group->giving); /* I-1 */
        owned += (size_t)group->owned;
        events += group->events;
    }
    assert(owned == relay->sharing.owned);
    assert(events == relay->events); /* I-2 */
}

void once__relay_groups_read(const char *list, int *has)
{
    for (const char *at = list + 1; *at >= '0' && *at <= '9';) {
        char *end;
        unsigned long group = strtoul(at, &end, 10);
        if (group < ONCE__RELAY_GROUPS) {
            has[group] = 1;
        }
        at = *end == ',' ? end + 1 : end;
    }
}

static void lose(once__relay_t *relay, int16_t group)
{
    once__relay_queues_drop(relay, group);
    relay->groups[group].owned = relay->groups[group].giving = 0;
    relay->sharing.owned--;
}

/* By our own clock the lease has run out: another relay may have the groups by now. */
static void check_lease(once__relay_t *relay)
{
    if (relay->sharing.owned == 0 || relay->now_ms < relay->sharing.lease_over_ms) {
        return;
    }
    once__service_log(
        &relay->log, ONCE__SERVICE_LOG_WARN,
        "the lease has run out: events in flight may be published twice",
        ONCE__SERVICE_FIELDS(once__service_field_number("groups", (int64_t)relay->sharing.owned),
                             once__service_field_number("under_way", (int64_t)relay->sent)));
    for (int16_t i = 0; i < ONCE__RELAY_GROUPS; i++) {
        if (relay->groups[i].owned) {
            lose(relay, i);
        }
    }
}

static size_t apply_groups(once__relay_t *relay, const char *list)
{
    int has[ONCE__RELAY_GROUPS] = {0};
    size_t changed = 0;

    once__relay_groups_read(list, has);
    /*
     * A group may be ours again while events of it are still in flight. One of them that fails is dropped, and would be read again
     * and published behind the others. So the group starts when none of its events is left; the next turn checks again.
     */
    for (int16_t i = 0; i < ONCE__RELAY_GROUPS; i++) {
        if (has[i] && !relay->groups[i].owned && relay->groups[i].events == 0) {
            once__relay_fetch_restart_group(relay, i);
            relay->groups[i].owned = 1;
            relay->sharing.owned++;
            changed++;
        } else if (!has[i] && relay->groups[i].owned) {
            lose(relay, i);
            changed++;
        }
    }
    return changed;
}

/*
 * If we have more than our share, the groups with the highest numbers are given back, once none of their events is in memory.
 */
static void give_back(once__relay_t *relay, size_t share)
{
    size_t keep = relay->sharing.owned;

    for (int16_t i = ONCE__RELAY_GROUPS - 1; i >= 0; i--) {
        once__relay_group_t *group = &relay->groups[i];
        if (!group->owned) {
            continue;
        }
        if (keep > share && !group->giving) {
            group->giving = 1;
            once__relay_queues_drop(relay, i);
        }
        /*
         * Another relay has gone since. The events that were left to it are read again before later ones of their keys are
         * sent.
         */
        if (keep <= share && group->giving && group->events == 0) {
            group->giving = 0;
            once__relay_fetch_restart_group(relay, i);
            relay->reading.has_more = 1;
        }
        keep--;
    }
}

/* -------------------------------------------------------------------------------------------------------------- turns */

void once__relay_stop(once__relay_t *relay, once__relay_end_t end, const char *why)
{
    snprintf(relay->error, relay->error_size, "%s", why);
    relay->end = end;
    relay->stopping = 1;
    relay->stop_by_ms = relay->now_ms;
}

/* Errors that do not go away by waiting: a missing or older schema, missing permissions. */
static int is_for_good(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    return state != NULL && once__pg_fault_is_setup(once__pg_fault(state));
}

static void turn_failed(once__relay_t *relay, const PGresult *result)
{
    char why[400];

    relay->sharing.turn_due_ms = relay->now_ms + RETRY_MS;
    if (result == NULL) {
        return;
    }
    if (relay->sharing.lease_over_ms == 0 && is_for_good(result)) {
        snprintf(why, sizeof(why),
                 "the outbox cannot be used: %s (once pg install or upgrade, role once_relay)",
                 PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
        once__relay_stop(relay, ONCE__RELAY_UNUSABLE, why);
        return;
    }
    once__relay_report_database(relay, result);
}

static void turn_taken(once__relay_t *relay, const PGresult *result)
{
    size_t before = relay->sharing.owned, changed,
           share = (size_t)strtoul(PQgetvalue(result, 0, 2), NULL, 10);
    char why[400];

    if (!PQgetisnull(result, 0, 3)) {
        snprintf(why, sizeof(why),
                 "another relay publishes this outbox to %s: one outbox has one destination",
                 PQgetvalue(result, 0, 3));
        once__relay_stop(relay, ONCE__RELAY_RIVAL, why);
        return;
    }
    relay->sharing.lease_over_ms = relay->sharing.turn_sent_ms + relay->options->lease_ms;
    relay->sharing.turn_due_ms = relay->sharing.turn_sent_ms + relay->options->lease_ms / 3;
    if (relay->sharing.asleep_asked && !relay->sharing.asleep_known) {
        /* read once more: producers that emitted before did not notify us */
        relay->reading.notified = 1;
    }
    relay->sharing.asleep_known = relay->sharing.asleep_asked;
    changed = apply_groups(relay, PQgetvalue(result, 0, 0));
    give_back(relay, share);
    once__service_metric_set(relay->report.relays, strtol(PQgetvalue(result, 0, 1), NULL, 10));
    if (changed > 0) {
        relay->reading.has_more = 1;
        once__service_log(
            &relay->log, ONCE__SERVICE_LOG_INFO,
            before == 0 ? "publishing" : "groups changed hands",
            ONCE__SERVICE_FIELDS(
                once__service_field_number("groups", (int64_t)relay->sharing.owned),
                once__service_field_number("relays", strtol(PQgetvalue(result, 0, 1), NULL, 10))));
    }
}

static void lag_taken(once__relay_t *relay, const PGresult *result)
{
    relay->lag.events = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    relay->lag.oldest_ms = strtoll(PQgetvalue(result, 0, 1), NULL, 10);
    relay->lag.dead = strtoll(PQgetvalue(result, 0, 2), NULL, 10);
    relay->lag.published = relay->published;
    once__service_metric_set(relay->report.lag_events, relay->lag.events);
    once__service_metric_set(relay->report.lag_seconds, relay->lag.oldest_ms);
    once__service_metric_set(relay->report.dead_now, relay->lag.dead);
    if (relay->options->until_empty && relay->lag.events == 0 && relay->events == 0 &&
        relay->sharing.owned > 0 && !relay->stopping) {
        relay->stopping = 1;
        relay->stop_by_ms = relay->now_ms + relay->options->drain_ms;
    }
}

static int is_good(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;
}

static void take_turn(void *data, PGresult *result)
{
    once__relay_t *relay = data;

    if (is_good(result)) {
        turn_taken(relay, result);
    } else {
        turn_failed(relay, result);
    }
    PQclear(result);
}

static void take_lag(void *data, PGresult *result)
{
    once__relay_t *relay = data;
    uint64_t took = relay->now_ms - relay->lag.sent_ms;

    relay->lag.due_ms = relay->now_ms + (took * LAG_PART > LAG_MS ? took * LAG_PART : LAG_MS);
    if (is_good(result)) {
        lag_taken(relay, result);
    }
    PQclear(result);
}

static void take_end(void *data, PGresult *result)
{
    once__relay_t *relay = data;

    relay->stop_by_ms = 0;
    PQclear(result);
}

static void send_turn(once__relay_t *relay)
{
    once__pg_params_t *params = &relay->params;
    once__pg_value_t *give;

    once__pg_params_reset(params);
    once__pg_param_text(params, relay->id);
    once__pg_param_text(params, relay->name);
    once__pg_param_text(params, once__broker_publisher_name(relay->publisher));
    once__pg_param_int(params, ONCE__PG_INT8, relay->options->lease_ms, 8);
    once__pg_param_int(params, ONCE__PG_BOOL, relay->sharing.asleep != 0, 1);
    give = once__pg_array(params, ONCE__PG_INT2S);
    for (int i = 0; i < ONCE__RELAY_GROUPS; i++) {
        if (relay->groups[i].giving && relay->groups[i].events == 0) {
            once__pg_element_int(give, (uint64_t)i, 2);
        }
    }
    relay->sharing.asleep_asked = relay->sharing.asleep;
    relay->sharing.turn_sent_ms = relay->now_ms;
    relay->sharing.turn_due_ms = relay->now_ms + RETRY_MS;
    (void)once__relay_link_send(&relay->control, turn_statement, params, 0, take_turn, relay);
}

/* Counting many events can take long and must not delay the renewal of the lease: it has its own connection. */
static void send_lag(once__relay_t *relay)
{
    relay->reading.empty_count = 0;
    relay->lag.sent_ms = relay->now_ms;
    relay->lag.due_ms = relay->now_ms + LAG_MS;
    once__pg_params_reset(&relay->params);
    (void)once__relay_link_send(&relay->watch, lag_statement, &relay->params, 0, take_lag, relay);
}

static void send_end(once__relay_t *relay)
{
    once__pg_params_reset(&relay->params);
    once__pg_param_text(&relay->params, relay->id);
    (void)once__relay_link_send(&relay->control, end_statement, &relay->params, 0, take_end, relay);
}

/* --------------------------------------------------------------------------------------------------------------- when */

static int can_give(const once__relay_t *relay)
{
    for (int i = 0; i < ONCE__RELAY_GROUPS; i++) {
        if (relay->groups[i].giving && relay->groups[i].events == 0) {
            return 1;
        }
    }
    return 0;
}

static void choose_sleep(once__relay_t *relay)
{
    if (relay->reading.busy_since_ms != 0 &&
        relay->now_ms - relay->reading.busy_since_ms >= BUSY_MS) {
        relay->sharing.asleep = 0;
    } else if (relay->reading.busy_since_ms == 0 && relay->events == 0 &&
               relay->sharing.owned > 0 &&
               relay->now_ms - relay->reading.idle_since_ms >= IDLE_MS) {
        relay->sharing.asleep = 1;
    }
}

static int wants_lag(const once__relay_t *relay)
{
    return relay->now_ms >= relay->lag.due_ms ||
           (relay->options->until_empty && relay->reading.empty_count >= 2);
}

/* A server that cannot be trusted at the start will not be trusted later, either. */
static void check_trust(once__relay_t *relay)
{
    const once__relay_link_t *link = &relay->control;

    if (link->connected == 0 &&
        once__pg_tls_advice(&link->conninfo.tls, link->trouble)[0] != '\0') {
        once__relay_stop(relay, ONCE__RELAY_UNUSABLE, link->trouble);
    }
}

void once__relay_groups_turn(once__relay_t *relay)
{
    assert_groups_state(relay);
    check_trust(relay);
    check_lease(relay);
    choose_sleep(relay);
    if (once__relay_link_is_idle(&relay->watch) && !relay->stopping && wants_lag(relay)) {
        send_lag(relay);
    }
    if (relay->stopping && relay->sharing.owned == 0 && relay->sent == 0 &&
        once__relay_removals_empty(relay) && !once__relay_link_is_up(&relay->control)) {
        relay->stop_by_ms = 0; /* we own nothing, and there is no connection to report it on */
    }
    if (!once__relay_link_is_idle(&relay->control)) {
        return;
    }
    if (relay->stopping) {
        if (relay->sent == 0 && once__relay_removals_empty(relay)) {
            send_end(relay);
        }
    } else if (relay->now_ms >= relay->sharing.turn_due_ms ||
               relay->sharing.asleep != relay->sharing.asleep_known || can_give(relay)) {
        send_turn(relay);
    }
}

uint64_t once__relay_groups_due(const once__relay_t *relay)
{
    uint64_t due =
        once__relay_link_is_idle(&relay->control) ? relay->sharing.turn_due_ms : UINT64_MAX;

    if (once__relay_link_is_idle(&relay->watch) && relay->lag.due_ms < due) {
        due = relay->lag.due_ms;
    }
    if (relay->sharing.owned > 0 && relay->sharing.lease_over_ms < due) {
        due = relay->sharing.lease_over_ms;
    }
    return due;
}
