#include "core/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

#define TTL_DEFAULT_MS   (24ull * 3600 * 1000)
#define LEASE_DEFAULT_MS (30ull * 1000)
#define VALUE_SIZE       512 /* of one part in a text of several */
#define SHOWN            60  /* bytes of a wrong item that an error repeats */

typedef enum list {
    RECORD_LIST,  /* `all` is an item; `4xx` does not put 408 in: so a 408 in the set was meant */
    RELEASE_LIST, /* `none` is the empty list */
} list_t;

/* ------------------------------------------------------------------------------------------------ sets of statuses */

int once__statuses_has(const once__statuses_t *set, int status)
{
    unsigned bit = (unsigned)(status - ONCE__STATUS_MIN);

    if (status < ONCE__STATUS_MIN || status > ONCE__STATUS_MAX) {
        return 0;
    }
    return (set->bits[bit / 64] >> bit % 64 & 1) != 0;
}

/* Puts the statuses from `first` to `last` in (add 1) or takes them out (0). */
static void change_statuses(once__statuses_t *set, int first, int last, int add)
{
    for (int status = first; status <= last; status++) {
        unsigned bit = (unsigned)(status - ONCE__STATUS_MIN);
        uint64_t mask = UINT64_C(1) << bit % 64;
        set->bits[bit / 64] = add ? set->bits[bit / 64] | mask : set->bits[bit / 64] & ~mask;
    }
}

/* NNN as a number, or 0. */
static int read_status(const char *text)
{
    uint64_t status;

    if (once__number_parse(text, 3, &status) != 0 || status < ONCE__STATUS_MIN) {
        return 0;
    }
    return (int)status;
}

/* NNN, NNN-NNN or Nxx. Returns 0, or -1 if it is none of them. */
static int read_range(const char *text, size_t len, int *first, int *last)
{
    if (len == 3 && text[0] >= '1' && text[0] <= '9' && memcmp(text + 1, "xx", 2) == 0) {
        *first = (text[0] - '0') * 100;
        *last = *first + 99;
        return 0;
    }
    if (len == 3) {
        *first = *last = read_status(text);
        return *first != 0 ? 0 : -1;
    }
    if (len == 7 && text[3] == '-') {
        *first = read_status(text);
        *last = read_status(text + 4);
        return *first != 0 && *first <= *last ? 0 : -1;
    }
    return -1;
}

/* Adds or removes one item. Returns 0, or -1 if it is not a valid item. */
static int read_item(once__statuses_t *set, const char *text, size_t len, list_t list)
{
    int add = text[0] != '!';
    int had_408 = once__statuses_has(set, 408);
    int first, last;

    text += add ? 0 : 1;
    len -= add ? 0 : 1;
    if (list == RECORD_LIST && len == 3 && memcmp(text, "all", 3) == 0) {
        first = ONCE__STATUS_MIN;
        last = ONCE__STATUS_MAX;
    } else if (read_range(text, len, &first, &last) != 0) {
        return -1;
    }
    change_statuses(set, first, last, add);
    if (list == RECORD_LIST && add && memcmp(text, "4xx", 3) == 0) {
        change_statuses(set, 408, 408, had_408);
    }
    return 0;
}

/* Reads a list as once/policy.h describes it. ONCE_E_CONFIG names the item that is wrong; the set is unchanged then. */
static int parse_statuses(once__statuses_t *set, const char *text, list_t list, once_error_t *err)
{
    const char *name = list == RECORD_LIST ? "record" : "release";
    const char *also = list == RECORD_LIST ? "all" : "none";
    once__statuses_t result = {{0}};

    if (list == RELEASE_LIST && strcmp(text, "none") == 0) {
        *set = result;
        return ONCE_OK;
    }
    if (text[0] == '!') {
        return once__fail(err, ONCE_E_CONFIG,
                          "%s: \"%.*s\" takes out of nothing; begin with what is in: 4xx,!404",
                          name, SHOWN, text);
    }
    for (const char *item = text;; item += strcspn(item, ",") + 1) {
        size_t len = strcspn(item, ",");
        if (read_item(&result, item, len, list) != 0) {
            return once__fail(err, ONCE_E_CONFIG,
                              "%s: \"%.*s\" is not a status; use NNN, NNN-NNN, Nxx or %s", name,
                              len < SHOWN ? (int)len : SHOWN, item, also);
        }
        if (item[len] == '\0') {
            break;
        }
    }
    *set = result;
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------- the parts */

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
    return parse_statuses(&policy->record, value, RECORD_LIST, err);
}

static int set_release(once_policy_t *policy, const char *value, once_error_t *err)
{
    return parse_statuses(&policy->release, value, RELEASE_LIST, err);
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
    change_statuses(&policy->record, 200, 499, 1);
    change_statuses(&policy->record, 408, 408, 0);
    for (size_t i = 0; i < sizeof(released) / sizeof(released[0]); i++) {
        change_statuses(&policy->release, released[i], released[i], 1);
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

/* --------------------------------------------------------------------------------------------- what a status means */

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Is the text this lower-case word, in any case? Locales have no say in it. */
static int is_word(const char *text, size_t len, const char *word)
{
    size_t i = 0;

    while (i < len && word[i] != '\0' && (text[i] | 0x20) == word[i]) {
        i++;
    }
    return i == len && word[i] == '\0';
}

once_verdict_t once_verdict_parse(const char *text, size_t len)
{
    while (len > 0 && is_blank(text[0])) {
        text++;
        len--;
    }
    while (len > 0 && is_blank(text[len - 1])) {
        len--;
    }
    if (is_word(text, len, "final")) {
        return ONCE_VERDICT_FINAL;
    }
    if (is_word(text, len, "retry")) {
        return ONCE_VERDICT_RETRY;
    }
    return is_word(text, len, "unknown") ? ONCE_VERDICT_UNKNOWN : ONCE_VERDICT_NONE;
}

/* Proxies in between send these while the application may still run. */
static int is_doubtful(int status)
{
    return status == 408 || status == 502 || status == 503 || status == 504;
}

/* An answer, if a client could be given it. */
static once_judgement_t record(int status)
{
    return status >= ONCE__ANSWER_MIN && status <= ONCE__ANSWER_MAX ? ONCE_JUDGEMENT_RECORD
                                                                    : ONCE_JUDGEMENT_DOUBT;
}

/* The table at once_policy_judge (once/policy.h), row by row. */
once_judgement_t once_policy_judge(const once_policy_t *policy, int status, once_verdict_t said)
{
    switch (said) {
    case ONCE_VERDICT_FINAL:
        return record(status);
    case ONCE_VERDICT_RETRY:
        return ONCE_JUDGEMENT_RELEASE;
    case ONCE_VERDICT_UNKNOWN:
        return ONCE_JUDGEMENT_DOUBT;
    case ONCE_VERDICT_NONE:
        break;
    }
    if (once__statuses_has(&policy->release, status)) {
        return ONCE_JUDGEMENT_EARLY;
    }
    if (once__statuses_has(&policy->record, status)) {
        return record(status);
    }
    if (is_doubtful(status) || status < ONCE__STATUS_MIN || status > ONCE__STATUS_MAX) {
        return ONCE_JUDGEMENT_DOUBT;
    }
    return policy->recover == ONCE_RECOVER_HOLD ? ONCE_JUDGEMENT_DOUBT : ONCE_JUDGEMENT_RELEASE;
}
