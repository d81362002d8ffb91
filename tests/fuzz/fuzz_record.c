/*
 * Any bytes as a record: decoding never reads past them, what is decoded is encoded to the same bytes, and the rules have an
 * answer to every head that comes out.
 */
#include <stdlib.h>
#include <string.h>

#include "core/codec.h"
#include "core/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_step(const once__head_t *head)
{
    for (int kind = 0; kind < ONCE__EVENT_COUNT; kind++) {
        for (unsigned bits = 0; bits < 8; bits++) {
            once__event_t event = {.kind = (once__event_kind_t)kind, .force = bits & 1};
            once__step_t step;
            if (bits & 2) {
                event.claim = head->claim;
            }
            if (bits & 4) {
                event.fingerprint_count = 1;
                event.fingerprints[0] = head->fingerprint;
            }
            once__step(&once__rules, head, &event, head->lease_until, &step);
            check(step.now >= head->changed);
            if (head->schema > ONCE__SCHEMA) {
                check(step.outcome != ONCE_OUTCOME_RUN && (!step.changed || kind == ONCE__PURGE));
            }
        }
    }
}

static void check_encoded(const once__record_t *record, const uint8_t *data, size_t size)
{
    uint8_t *again = malloc(size);

    check(again != NULL && once__record_size(record) == size);
    once__record_encode(record, again);
    check(memcmp(again, data, size) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const once__record_t zero;
    once__record_t record;
    int rc = once__record_decode(&record, data, size);

    if (rc == ONCE_OK) {
        once__record_t *clone = once__record_clone(&record);
        check_encoded(&record, data, size);
        check(clone != NULL);
        check_encoded(clone, data, size);
        free(clone);
        check_step(&record.head);
    } else if (rc == ONCE_E_NEWER) {
        check(record.head.schema > ONCE__SCHEMA && record.key == NULL && record.payload.len == 0);
        check_step(&record.head);
    } else {
        check(rc == ONCE_E_CORRUPT && memcmp(&record, &zero, sizeof(zero)) == 0);
    }
    return 0;
}
