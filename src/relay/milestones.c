/*
 * What is known of transactions by when they began: see fetch.c.
 */
#include <stdlib.h>

#include "relay/internal.h"

#define MILESTONE_MS 200 /* between two */

void once__relay_fetch_void(once__relay_t *relay, int16_t group)
{
    if (relay->fetching) {
        relay->groups[group].asked = INT64_MAX;
    }
}

void once__relay_fetch_back(once__relay_t *relay, int16_t group, int64_t low)
{
    once__relay_group_t *back = &relay->groups[group];

    back->pos = low - 1 < back->pos ? low - 1 : back->pos;
    once__relay_fetch_void(relay, group);
    relay->fetch_more = 1;
}

void once__relay_fetch_group_anew(once__relay_t *relay, int16_t group)
{
    relay->groups[group].pos = 0;
    once__relay_fetch_void(relay, group);
    for (size_t i = 0; i < relay->milestone_count; i++) {
        relay->milestones[i].pos[group] = 0;
    }
}

void once__relay_fetch_anew(once__relay_t *relay)
{
    free(relay->snapshot);
    relay->snapshot = NULL;
    relay->milestone_count = 0;
    for (int16_t group = 0; group < ONCE__RELAY_GROUPS; group++) {
        once__relay_fetch_group_anew(relay, group);
    }
}

/* When they are too many, every second one goes: the older a transaction, the coarser what is known of it. */
void once__relay_milestone_add(once__relay_t *relay, uint64_t xmax)
{
    once__relay_milestone_t *added;

    if (relay->now_ms - relay->milestone_ms < MILESTONE_MS && relay->milestone_count > 0) {
        return;
    }
    if (relay->milestone_count == ONCE__RELAY_MILESTONES) {
        for (size_t i = 1; i < ONCE__RELAY_MILESTONES / 2; i++) {
            relay->milestones[i] = relay->milestones[2 * i];
        }
        relay->milestone_count = ONCE__RELAY_MILESTONES / 2;
    }
    added = &relay->milestones[relay->milestone_count++];
    added->xmax = xmax;
    for (int i = 0; i < ONCE__RELAY_GROUPS; i++) {
        added->pos[i] = relay->groups[i].pos;
    }
    relay->milestone_ms = relay->now_ms;
}

/* The newest one at which no transaction from `xid` on had begun; NULL: none is old enough. */
const once__relay_milestone_t *once__relay_milestone_before(const once__relay_t *relay,
                                                            uint64_t xid)
{
    const once__relay_milestone_t *found = NULL;

    for (size_t i = 0; i < relay->milestone_count; i++) {
        found = relay->milestones[i].xmax <= xid ? &relay->milestones[i] : found;
    }
    return found;
}
