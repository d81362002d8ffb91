#include "store/store.h"

#include <string.h>

#include "base/bytes.h"
#include "store/local/local.h"
#include "store/memory/memory.h"
#include "store/postgres/store.h"
#include "store/redis/redis.h"

const once__store_vt_t *once__store_find(const char *scheme, size_t len)
{
    static const once__store_vt_t *const stores[] = {
        &once__memory_store,
        &once__local_store,
#if ONCE_WITH_POSTGRES
        &once__postgres_store,
        &once__postgresql_store,
#endif
#if ONCE_WITH_REDIS
        &once__redis_store,
        &once__rediss_store,
        &once__redis_sentinel_store,
        &once__redis_cluster_store,
#endif
    };

    for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++) {
        if (strlen(stores[i]->scheme) == len && memcmp(stores[i]->scheme, scheme, len) == 0) {
            return stores[i];
        }
    }
    return NULL;
}

const char *once__store_schemes(void)
{
#if ONCE_WITH_POSTGRES && ONCE_WITH_REDIS
    return "memory:, memory:NAME, local:PATH, postgres:// and redis://";
#elif ONCE_WITH_POSTGRES
    return "memory:, memory:NAME, local:PATH and postgres:// (built without redis://)";
#elif ONCE_WITH_REDIS
    return "memory:, memory:NAME, local:PATH and redis:// (built without postgres://)";
#else
    return "memory:, memory:NAME and local:PATH (built without postgres:// and redis://)";
#endif
}

once__payload_t once__payload_after(const once__rule_t *rule, const once__op_t *op,
                                    const once__payload_t *old)
{
    static const once__payload_t none = {ONCE__PAYLOAD_NONE, 0, NULL, 0};

    if (rule->effects & ONCE__E_PAYLOAD) {
        return op->payload;
    }
    if (rule->effects & ONCE__E_ERASE) {
        return (once__payload_t){ONCE__PAYLOAD_ERASED, old->status, NULL, 0};
    }
    return rule->effects & ONCE__E_DROP_PAYLOAD ? none : *old;
}

once_slice_t once__about_after(const once__rule_t *rule, const once__op_t *op, once_slice_t old)
{
    if (rule->effects & ONCE__E_ERASE) {
        return once__slice(NULL, 0);
    }
    return rule->effects & ONCE__E_GRANT ? op->about : old;
}

once_slice_t once__cause_after(uint8_t out[ONCE__WHY_MAX], const once__step_t *step,
                               const once__op_t *op, const once__record_t *old)
{
    int granted = (step->rule->effects & ONCE__E_GRANT) != 0;

    if (step->rule->effects & ONCE__E_ERASE) {
        return once__slice(NULL, 0);
    }
    if (step->rule->effects & ONCE__E_EXTEND) {
        return old->cause;
    }
    /* The first attempt has none before it, also if it takes the place of a record that expired. */
    return granted && step->next.claim.epoch == 1
               ? op->cause
               : once__attempts_after(out, old, granted, op->cause);
}

once_slice_t once__key_after(const once__rule_t *rule, const once__op_t *op, once_slice_t old)
{
    if (rule->effects & ONCE__E_ERASE) {
        return once__slice("", 0);
    }
    return rule->effects & ONCE__E_GRANT ? once__slice(op->key, op->key_len) : old;
}

static int is_expired(const once__head_t *head, uint64_t now)
{
    return (head->state == ONCE_STATE_COMPLETED || head->state == ONCE_STATE_FAILED) &&
           head->expires != 0 && now >= head->expires;
}

static int is_stuck(const once__head_t *head, uint64_t now)
{
    return head->state == ONCE_STATE_UNKNOWN ||
           (head->state == ONCE_STATE_PENDING && now >= head->lease_until);
}

static uint64_t age(const once__head_t *head, uint64_t now)
{
    return now > head->created ? now - head->created : 0;
}

int once__filter_passes(const once_filter_t *filter, const once__record_t *record, uint64_t now)
{
    const once__head_t *head = &record->head;

    if (head->state == ONCE_STATE_NONE || is_expired(head, now)) {
        return 0;
    }
    if (filter->states != 0 && (filter->states & 1u << head->state) == 0) {
        return 0;
    }
    if (filter->stuck && !is_stuck(head, now)) {
        return 0;
    }
    if (age(head, now) < filter->older_than_ms) {
        return 0;
    }
    if (filter->younger_than_ms != 0 && age(head, now) >= filter->younger_than_ms) {
        return 0;
    }
    return filter->scope_hash_len == 0 ||
           memcmp(filter->scope_hash, record->scope_hash, filter->scope_hash_len) == 0;
}

void once__stats_add(once_stats_t *stats, const once__record_t *record, uint64_t now)
{
    const once__head_t *head = &record->head;

    if (is_expired(head, now)) {
        stats->expired++;
        if (now - head->expires > stats->behind_ms) {
            stats->behind_ms = now - head->expires;
        }
        return;
    }
    stats->pending += head->state == ONCE_STATE_PENDING;
    stats->completed += head->state == ONCE_STATE_COMPLETED;
    stats->failed += head->state == ONCE_STATE_FAILED;
    stats->unknown += head->state == ONCE_STATE_UNKNOWN;
    stats->stuck += (uint64_t)is_stuck(head, now);
    if (age(head, now) > stats->oldest_ms) {
        stats->oldest_ms = age(head, now);
    }
}
