/*
 * The inside of a policy (once/policy.h), for the layers that keep one by value. It holds no pointers: copy it by assignment.
 */
#ifndef ONCE_CORE_POLICY_H
#define ONCE_CORE_POLICY_H

#include <once/policy.h>

#define ONCE__STATUS_MIN 100
#define ONCE__STATUS_MAX 999

/* What a record can answer with. An interim status, or one that HTTP does not have, makes a client take the body for headers. */
#define ONCE__ANSWER_MIN 200
#define ONCE__ANSWER_MAX 599

#define ONCE__TTL_MIN_MS   1000ull
#define ONCE__TTL_MAX_MS   (3650ull * 24 * 3600 * 1000)
#define ONCE__LEASE_MIN_MS 10ull
#define ONCE__LEASE_MAX_MS (24ull * 3600 * 1000)

/* A set of HTTP statuses; bit 0 is ONCE__STATUS_MIN. */
typedef struct once__statuses {
    uint64_t bits[(ONCE__STATUS_MAX - ONCE__STATUS_MIN) / 64 + 1];
} once__statuses_t;

/* A status outside ONCE__STATUS_MIN to ONCE__STATUS_MAX is in no set. */
int once__statuses_has(const once__statuses_t *set, int status);

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
