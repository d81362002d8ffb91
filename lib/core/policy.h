/*
 * The inside of a policy (once/policy.h), for the layers that keep one by value. It holds no pointers: copy it by assignment.
 */
#ifndef ONCE_CORE_POLICY_H
#define ONCE_CORE_POLICY_H

#include <once/policy.h>

#include "core/statuses.h"

#define ONCE__TTL_MIN_MS   1000ull
#define ONCE__TTL_MAX_MS   (3650ull * 24 * 3600 * 1000)
#define ONCE__LEASE_MIN_MS 10ull
#define ONCE__LEASE_MAX_MS (24ull * 3600 * 1000)

struct once_policy {
    uint64_t ttl_ms;
    uint64_t lease_ms;
    uint64_t release_ttl_ms; /* 0: twice the lease */
    once_recover_t recover;
    once__statuses_t record;
    once__statuses_t release;
};

/* The defaults. */
void once__policy_init(once_policy_t *policy);

#endif
