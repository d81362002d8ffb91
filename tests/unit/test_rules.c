#include "support/testing.h"

#include <string.h>

#include "core/rules.h"

static void every_event_in_every_state_has_a_row(void **state)
{
    for (int kind = 0; kind < ONCE__EVENT_COUNT; kind++) {
        for (int from = 0; from <= ONCE_STATE_UNKNOWN; from++) {
            once__event_t event = {.kind = (once__event_kind_t)kind};
            once__head_t head = {.state = (uint8_t)from, .schema = ONCE__SCHEMA};
            once__step_t step;
            once__step(&once__rules, &head, &event, 1000, &step);
            assert_non_null(step.rule);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_has_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
