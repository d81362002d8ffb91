/*
 * Claims that live as long as the connection on which they were asked for. libonce renews them.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

#define HELD_MAX 1000 /* of one connection */

static uint64_t hash_of(const once__serve_t *serve, const char *token)
{
    return once__hash_data(&serve->seed, token, strlen(token));
}

int once__serve_may_hold(const once__serve_t *serve, const once__serve_line_t *line)
{
    return line->held_count < HELD_MAX && serve->held.count < serve->held.max;
}

int once__serve_hold(once__serve_line_t *line, once_claim_t *claim)
{
    once__serve_t *serve = line->serve;
    once__serve_held_t *held = calloc(1, sizeof(*held));

    if (held == NULL) {
        return -1;
    }
    once_claim_token(claim, held->token);
    if (once__hash_add(&serve->held, &held->node, hash_of(serve, held->token)) != 0) {
        free(held);
        return -1;
    }
    held->line = line;
    held->claim = claim;
    held->next = line->held;
    held->place = &line->held;
    if (held->next != NULL) {
        held->next->place = &held->next;
    }
    line->held = held;
    line->held_count++;
    once__service_metric_set(serve->counters.held, (int64_t)serve->held.count);
    return 0;
}

once__serve_held_t *once__serve_held_find(const once__serve_t *serve, const char *token)
{
    once__hash_node_t *node = once__hash_first(&serve->held, hash_of(serve, token));

    for (; node != NULL; node = once__hash_next(node)) {
        once__serve_held_t *held = ONCE__CONTAINER(node, once__serve_held_t, node);
        if (strcmp(held->token, token) == 0) {
            return held;
        }
    }
    return NULL;
}

once_claim_t *once__serve_held_take(once__serve_held_t *held)
{
    once__serve_t *serve = held->line->serve;
    once_claim_t *claim = held->claim;

    once__hash_remove(&serve->held, &held->node);
    *held->place = held->next;
    if (held->next != NULL) {
        held->next->place = held->place;
    }
    held->line->held_count--;
    free(held);
    once__service_metric_set(serve->counters.held, (int64_t)serve->held.count);
    return claim;
}

void once__serve_drop_held(once__serve_line_t *line)
{
    while (line->held != NULL) {
        once_claim_drop(once__serve_held_take(line->held));
    }
}
