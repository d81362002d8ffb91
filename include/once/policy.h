/*
 * once/policy.h - how an operation is treated: retention, lease, recovery, and which responses are recorded. A policy is used by
 * one thread at a time while it is changed; afterwards any thread may read it.
 */
#ifndef ONCE_POLICY_H
#define ONCE_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include <once/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What happens to a record whose holder is gone or in doubt, in order of strictness. If the policies of a record and of an ask
 * differ, the stricter (greater) one decides.
 */
typedef enum once_recover {
    ONCE_RECOVER_RETRY = 0, /* runs again after doubt or when the lease is over */
    /* as retry; the backend completes it inside its own transaction */
    ONCE_RECOVER_TRANSACTIONAL = 1,
    ONCE_RECOVER_HOLD = 2, /* never runs again until it is settled */
} once_recover_t;

/* What a response of the operation means for its claim. */
typedef enum once_judgement {
    ONCE_JUDGEMENT_RECORD = 1,  /* it is the answer: complete */
    ONCE_JUDGEMENT_RELEASE = 2, /* retryable, but may have had an effect: release */
    ONCE_JUDGEMENT_DOUBT = 3,   /* not known: doubt */
    ONCE_JUDGEMENT_EARLY = 4,   /* refused before any effect: release_early */
} once_judgement_t;

/* What the backend said in `Once-Outcome`. */
typedef enum once_verdict {
    ONCE_VERDICT_NONE = 0,
    ONCE_VERDICT_FINAL = 1,
    ONCE_VERDICT_RETRY = 2,
    ONCE_VERDICT_UNKNOWN = 3,
} once_verdict_t;

typedef struct once_policy once_policy_t;

/* Create a policy with the defaults below, or a copy. NULL if out of memory. Free with once_policy_free (NULL is fine). */
ONCE_API once_policy_t *once_policy_new(void);
ONCE_API once_policy_t *once_policy_copy(const once_policy_t *policy);
ONCE_API void once_policy_free(once_policy_t *policy);

/*
 * Sets one part by name. Returns ONCE_OK, or ONCE_E_CONFIG if there is no such part or the value is wrong: `err` says what is
 * expected, and the policy is unchanged.
 *   ttl      24h                       how long an answer is kept: 1s to 3650d. Units are ms s m h d; a bare number is seconds
 *   lease    30s                       how long a silent holder is presumed alive: 10ms to 1d
 *   recover  retry                     retry | hold | transactional
 *   record   2xx,3xx,4xx               statuses that are recorded: NNN, NNN-NNN, Nxx, or `all` (also 5xx). `!` before an item
 *                                      excludes it: 4xx,!404
 *   release  401,403,407,421,425,429   statuses that are sent before any effect; `none` empties the list
 *   release_ttl  twice the lease       how long a key stays bound that was refused before any effect: 1s to 3650d, but never
 *                                      shorter than twice the lease or longer than ttl
 *
 * `release` is considered before `record`. 408, 502, 503 and 504 are doubt unless `release` or an explicit item of `record` (the
 * number itself, a range, `5xx` or `all`; not `4xx`) lists them.
 */
ONCE_API ONCE_MUST_CHECK int once_policy_set(once_policy_t *policy, const char *name,
                                             const char *value, once_error_t *err);

/* Sets several parts, separated by spaces: "ttl=48h recover=hold". On an error none of them is set. */
ONCE_API ONCE_MUST_CHECK int once_policy_parse(once_policy_t *policy, const char *text,
                                               once_error_t *err);

ONCE_API uint64_t once_policy_ttl_ms(const once_policy_t *policy);
ONCE_API uint64_t once_policy_lease_ms(const once_policy_t *policy);
ONCE_API uint64_t once_policy_release_ttl_ms(const once_policy_t *policy);
ONCE_API once_recover_t once_policy_recover(const once_policy_t *policy);

/* Reads `final`, `retry` or `unknown` in any case, ignoring spaces around it; anything else is ONCE_VERDICT_NONE. */
ONCE_API once_verdict_t once_verdict_parse(const char *text, size_t len);

/*
 * What a complete response with this status means under this policy. The first row that applies decides:
 *     the verdict is final                               record
 *     the verdict is retry                               release
 *     the verdict is unknown                             doubt
 *     the status is in `release`                         early
 *     the status is in `record`                          record
 *     408, 502, 503, 504, or no status (not 100 to 999)  doubt
 *     the rest: other 5xx, 1xx, excluded from `record`   hold: doubt; retry, transactional: release
 *
 * A status outside 200 to 599 cannot be recorded: it is doubt even if a row says record. An operation without a complete response
 * is not judged here: it is doubt, or early if no byte was sent.
 */
ONCE_API once_judgement_t once_policy_judge(const once_policy_t *policy, int status,
                                            once_verdict_t verdict);

/* "retry", "hold", "transactional". Static strings. */
ONCE_API const char *once_recover_name(once_recover_t recover);

#ifdef __cplusplus
}
#endif
#endif
