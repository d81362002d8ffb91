#include "conformance/suite.h"

#include <string.h>

static uint64_t hash(uint64_t seed, once_slice_t bytes)
{
    const unsigned char *data = bytes.data;

    for (size_t i = 0; i < bytes.len; i++) {
        seed = (seed ^ data[i]) * 0x100000001b3u;
    }
    return seed;
}

static uint64_t response_hash(const once_record_t *record)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    uint64_t sum = 0xcbf29ce484222325u;

    if (once_record_response(record, &response) != ONCE_OK) {
        return 0;
    }
    for (size_t i = 0; i < response.header_count; i++) {
        sum = hash(hash(sum, response.headers[i].name), response.headers[i].value);
    }
    return hash(sum, response.body) + (uint64_t)response.status;
}

once__facts_t once__peer_facts(once__peer_t *peer, const once__asked_t *asked)
{
    once__facts_t facts;
    const once_record_t *record;
    int code = once__peer_get(peer, asked);

    memset(&facts, 0, sizeof(facts));
    if (code == ONCE_E_NOT_FOUND) {
        return facts;
    }
    once__test_expect(peer->test, __FILE__, __LINE__, "once_record_get_sync", ONCE_OK, code);
    record = once__peer_record(peer);
    facts.state = once_record_state(record);
    facts.recover = once_record_recover(record);
    facts.epoch = once_record_epoch(record);
    once_record_token(record, facts.token);
    facts.status = once_record_status(record);
    facts.note = hash(1, once_record_note(record));
    facts.response = response_hash(record);
    facts.lease_ms = once_record_lease_ms(record);
    facts.expires_ms = once_record_expires_ms(record);
    facts.idle_ms = once_record_idle_ms(record);
    facts.age_ms = once_record_age_ms(record);
    return facts;
}

/* Both reach to the same moment: what time took from one, it gave to the other. Stores may round each to milliseconds. */
static int same_moment(uint64_t left, uint64_t age, uint64_t other_left, uint64_t other_age)
{
    uint64_t one = left + age, two = other_left + other_age;

    return one <= two + 3 && two <= one + 3;
}

static const char *what_changed(const once__facts_t *before, const once__facts_t *after)
{
    if (before->state != after->state) {
        return "state";
    }
    if (before->state == ONCE_STATE_NONE) {
        return NULL;
    }
    if (strcmp(before->token, after->token) != 0 || before->epoch != after->epoch) {
        return "claim";
    }
    if (before->recover != after->recover) {
        return "policy";
    }
    if (before->status != after->status || before->note != after->note) {
        return "status or note";
    }
    if (before->response != after->response) {
        return "response";
    }
    if (before->age_ms > after->age_ms + 3 ||
        !same_moment(before->idle_ms, after->age_ms, after->idle_ms, before->age_ms)) {
        return "last change";
    }
    if ((before->expires_ms == 0) != (after->expires_ms == 0) ||
        (before->expires_ms != 0 &&
         !same_moment(before->expires_ms, before->age_ms, after->expires_ms, after->age_ms))) {
        return "expiry";
    }
    /* A lease may run out meanwhile. */
    if (after->lease_ms > 0 || before->lease_ms > after->age_ms - before->age_ms + 3) {
        return same_moment(before->lease_ms, before->age_ms, after->lease_ms, after->age_ms)
                   ? NULL
                   : "lease";
    }
    return NULL;
}

void once__test_unchanged(once__test_t *t, const char *file, int line, const char *call,
                          const once__facts_t *before, once__peer_t *peer,
                          const once__asked_t *asked)
{
    once__facts_t after = once__peer_facts(peer, asked);
    const char *what = what_changed(before, &after);

    if (what != NULL) {
        once__test_fail(t, file, line, "%s changed the record: its %s", call, what);
    }
}
