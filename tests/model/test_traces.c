#include "traces.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_l3),     cmocka_unit_test(trace_m3),  cmocka_unit_test(trace_m4),
        cmocka_unit_test(trace_m1),     cmocka_unit_test(trace_m2),  cmocka_unit_test(trace_l17),
        cmocka_unit_test(trace_l5),     cmocka_unit_test(trace_l6),  cmocka_unit_test(trace_l7),
        cmocka_unit_test(trace_l8),     cmocka_unit_test(trace_f4a), cmocka_unit_test(trace_l9),
        cmocka_unit_test(trace_l10),    cmocka_unit_test(trace_f7a), cmocka_unit_test(trace_m7),
        cmocka_unit_test(trace_l13),    cmocka_unit_test(trace_l15), cmocka_unit_test(trace_l4_i6),
        cmocka_unit_test(trace_l12),    cmocka_unit_test(trace_f4b), cmocka_unit_test(trace_l4_i7),
        cmocka_unit_test(trace_l4_i7b), cmocka_unit_test(trace_b1),  cmocka_unit_test(trace_b2),
        cmocka_unit_test(trace_b3),     cmocka_unit_test(trace_b4),  cmocka_unit_test(trace_b5),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
