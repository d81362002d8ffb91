/*
 * Claims that live as long as the connection on which they were asked for. libonce renews them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

#define KEPT_MAX 1000 /* of one connection */

/* Invariant 2 of internal.h: what is in the list of a connection is in the table. */
static void assert_kept_state(const once__serve_line_t *line)
{
    assert((line->kept == NULL) == (line->kept_count == 0));
    assert(line->kept == NULL || (line->kept->line == line && line->kept->place == &line->kept));
    assert(line->kept_count <= line->serve->kept.count);
}

static uint64_t hash_of(const once__serve_t *serve, const char *token)
{
    return once__hash_data(&serve->seed, token, strlen(token));
}

int once__serve_may_keep(const once__serve_t *serve, const once__serve_line_t *line)
{
    return line->kept_count < KEPT_MAX && serve->kept.count < serve->kept.max;
}

int once__serve_keep(once__serve_line_t *line, once_claim_t *claim)
{
    once__serve_t *serve = line->serve;
    once__serve_kept_t *kept = calloc(1, sizeof(*kept));

    if (kept == NULL) {
        return -1;
    }
    once_claim_token(claim, kept->token);
    if (once__hash_add(&serve->kept, &kept->node, hash_of(serve, kept->token)) != 0) {
        free(kept);
        return -1;
    }
    kept->line = line;
    kept->claim = claim;
    kept->next = line->kept;
    kept->place = &line->kept;
    if (kept->next != NULL) {
        kept->next->place = &kept->next;
    }
    line->kept = kept;
    line->kept_count++;
    assert_kept_state(line);
    once__service_metric_set(serve->counters.kept, (int64_t)serve->kept.count);
    return 0;
}

once__serve_kept_t *once__serve_kept_find(const once__serve_t *serve, const char *token)
{
    once__hash_node_t *node = once__hash_first(&serve->kept, hash_of(serve, token));

    for (; node != NULL; node = once__hash_next(node)) {
        once__serve_kept_t *kept = ONCE__CONTAINER(node, once__serve_kept_t, node);
        if (strcmp(kept->token, token) == 0) {
            return kept;
        }
    }
    return NULL;
}

once_claim_t *once__serve_kept_take(once__serve_kept_t *kept)
{
    once__serve_line_t *line = kept->line;
    once__serve_t *serve = line->serve;
    once_claim_t *claim = kept->claim;

    assert_kept_state(line);
    once__hash_remove(&serve->kept, &kept->node);
    *kept->place = kept->next;
    if (kept->next != NULL) {
        kept->next->place = kept->place;
    }
    line->kept_count--;
    free(kept);
    assert_kept_state(line);
    once__service_metric_set(serve->counters.kept, (int64_t)serve->kept.count);
    return claim;
}

void once__serve_drop_kept(once__serve_line_t *line)
{
    once__serve_kept_t *kept = line->kept, *next;

    for (; kept != NULL; kept = next) {
        next = kept->next;
        once_claim_drop(once__serve_kept_take(kept));
    }
}
