#include "core/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

#define TTL_DEFAULT_MS   (24ull * 3600 * 1000)
#define LEASE_DEFAULT_MS (30ull * 1000)
#define VALUE_SIZE       512 /* of one part in a text of several */

static int set_duration(uint64_t *ms, const char *name, const char *value, uint64_t min,
                        uint64_t max, const char *range, once_error_t *err)
{
    uint64_t result;

    if (once__duration_parse(value, &result) != 0) {
        return once__fail(err, ONCE_E_CONFIG,
                          "%s: \"%.60s\" is not a duration; use 500ms, 30s, 5m, 24h or 7d", name,
                          value);
    }
    if (result < min || result > max) {
        return once__fail(err, ONCE_E_CONFIG, "%s: \"%.60s\" is out of range; use %s", name, value,
                          range);
    }
    *ms = result;
    return ONCE_OK;
}

static int set_ttl(once_policy_t *policy, const char *value, once_error_t *err)
{
    return set_duration(&policy->ttl_ms, "ttl", value, ONCE__TTL_MIN_MS, ONCE__TTL_MAX_MS,
                        "1s to 3650d", err);
}

static int set_lease(once_policy_t *policy, const char *value, once_error_t *err)
{
    return set_duration(&policy->lease_ms, "lease", value, ONCE__LEASE_MIN_MS, ONCE__LEASE_MAX_MS,
                        "10ms to 1d", err);
}

static int set_recover(once_policy_t *policy, const char *value, once_error_t *err)
{
    for (int i = ONCE_RECOVER_RETRY; i <= ONCE_RECOVER_HOLD; i++) {
        if (strcmp(value, once_recover_name((once_recover_t)i)) == 0) {
            policy->recover = (once_recover_t)i;
            return ONCE_OK;
        }
    }
    return once__fail(err, ONCE_E_CONFIG,
                      "recover: \"%.60s\" is not one of retry, hold, transactional", value);
}

static int set_record(once_policy_t *policy, const char *value, once_error_t *err)
{
    return once__statuses_parse(&policy->record, value, ONCE__RECORD_LIST, err);
}

static int set_release(once_policy_t *policy, const char *value, once_error_t *err)
{
    return once__statuses_parse(&policy->release, value, ONCE__RELEASE_LIST, err);
}

static int set_release_ttl(once_policy_t *policy, const char *value, once_error_t *err)
{
    return set_duration(&policy->release_ttl_ms, "release_ttl", value, ONCE__TTL_MIN_MS,
                        ONCE__TTL_MAX_MS, "1s to 3650d", err);
}

static const struct part {
    const char *name;
    int (*set)(once_policy_t *policy, const char *value, once_error_t *err);
} parts[] = {
    {"ttl", set_ttl},       {"lease", set_lease},     {"recover", set_recover},
    {"record", set_record}, {"release", set_release}, {"release_ttl", set_release_ttl},
};

#define PARTS (sizeof(parts) / sizeof(parts[0]))

/* Which part this is; PARTS: none. */
static size_t find_part(const char *name, size_t len)
{
    size_t i = 0;

    while (i < PARTS && (strlen(parts[i].name) != len || memcmp(parts[i].name, name, len) != 0)) {
        i++;
    }
    return i;
}

static int no_such_part(const char *name, size_t len, once_error_t *err)
{
    return once__fail(err, ONCE_E_CONFIG,
                      "\"%.*s\" is not a part of a policy; use ttl, lease, recover, record, "
                      "release or release_ttl",
                      len < 60 ? (int)len : 60, name);
}

/* Each setter changes its part only when all of the value is right. */
int once_policy_set(once_policy_t *policy, const char *name, const char *value, once_error_t *err)
{
    size_t part = find_part(name, strlen(name));
    return part < PARTS ? parts[part].set(policy, value, err)
                        : no_such_part(name, strlen(name), err);
}

/* One `name=value` of `len` bytes. `seen` has a bit for each part that was there before. */
static int parse_word(once_policy_t *policy, const char *word, size_t len, unsigned *seen,
                      once_error_t *err)
{
    const char *equals = memchr(word, '=', len);
    size_t name_len = equals != NULL ? (size_t)(equals - word) : len;
    size_t part = find_part(word, name_len);
    char value[VALUE_SIZE];

    if (part == PARTS) {
        return no_such_part(word, name_len, err);
    }
    if (equals == NULL || len - name_len > sizeof(value)) {
        return once__fail(err, ONCE_E_CONFIG, "%s: %s", parts[part].name,
                          equals == NULL ? "a value is missing; write name=value"
                                         : "the value is too long");
    }
    if (*seen & 1u << part) {
        return once__fail(err, ONCE_E_CONFIG, "%s: set twice", parts[part].name);
    }
    *seen |= 1u << part;
    memcpy(value, equals + 1, len - name_len - 1);
    value[len - name_len - 1] = '\0';
    return parts[part].set(policy, value, err);
}

int once_policy_parse(once_policy_t *policy, const char *text, once_error_t *err)
{
    once_policy_t result = *policy;
    unsigned seen = 0;

    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        size_t len = strcspn(text, " ");
        int rc = parse_word(&result, text, len, &seen, err);
        if (rc != ONCE_OK) {
            return rc;
        }
        text += len;
    }
    *policy = result;
    return ONCE_OK;
}

void once__policy_init(once_policy_t *policy)
{
    static const int released[] = {401, 403, 407, 421, 425, 429};

    memset(policy, 0, sizeof(*policy));
    policy->ttl_ms = TTL_DEFAULT_MS;
    policy->lease_ms = LEASE_DEFAULT_MS;
    policy->recover = ONCE_RECOVER_RETRY;
    once__statuses_change(&policy->record, 200, 499, 1);
    once__statuses_change(&policy->record, 408, 408, 0);
    for (size_t i = 0; i < sizeof(released) / sizeof(released[0]); i++) {
        once__statuses_change(&policy->release, released[i], released[i], 1);
    }
}

once_policy_t *once_policy_new(void)
{
    once_policy_t *policy = malloc(sizeof(*policy));

    if (policy != NULL) {
        once__policy_init(policy);
    }
    return policy;
}

once_policy_t *once_policy_copy(const once_policy_t *policy)
{
    once_policy_t *copy = malloc(sizeof(*copy));

    if (copy != NULL) {
        *copy = *policy;
    }
    return copy;
}

void once_policy_free(once_policy_t *policy)
{
    free(policy);
}

uint64_t once_policy_ttl_ms(const once_policy_t *policy)
{
    return policy->ttl_ms;
}

uint64_t once_policy_lease_ms(const once_policy_t *policy)
{
    return policy->lease_ms;
}

uint64_t once_policy_release_ttl_ms(const once_policy_t *policy)
{
    return policy->release_ttl_ms != 0 ? policy->release_ttl_ms : 2 * policy->lease_ms;
}

once_recover_t once_policy_recover(const once_policy_t *policy)
{
    return policy->recover;
}

const char *once_recover_name(once_recover_t recover)
{
    switch (recover) {
    case ONCE_RECOVER_RETRY:
        return "retry";
    case ONCE_RECOVER_TRANSACTIONAL:
        return "transactional";
    case ONCE_RECOVER_HOLD:
        return "hold";
    }
    return "?";
}
