/*
 * Schedules that broke earlier versions of the rules, by the names they have in docs/decisions/record-rules.md.
 *
 * Each is played twice: with the rules, where the step that once did the harm is now answered differently, and with the
 * rule that prevents it taken away, where the harm must come back; otherwise the schedule would prove nothing. A few do no
 * harm that was promised away; for those the test says exactly what is promised.
 */
#ifndef TESTS_MODEL_TRACES_H
#define TESTS_MODEL_TRACES_H

#include "support/testing.h"

void trace_l3(void **state);
void trace_m3(void **state);
void trace_m4(void **state);
void trace_m1(void **state);
void trace_m2(void **state);
void trace_l17(void **state);
void trace_l5(void **state);
void trace_l6(void **state);
void trace_l7(void **state);
void trace_l8(void **state);
void trace_f4a(void **state);
void trace_l9(void **state);
void trace_l10(void **state);
void trace_f7a(void **state);
void trace_m7(void **state);
void trace_l13(void **state);
void trace_l15(void **state);
void trace_b1(void **state);
void trace_b2(void **state);
void trace_b3(void **state);
void trace_b4(void **state);
void trace_b5(void **state);
void trace_l4_i6(void **state);
void trace_l12(void **state);
void trace_f4b(void **state);
void trace_l4_i7(void **state);
void trace_l4_i7b(void **state);

#endif
