/*
 * Earlier attempts of an operation. They follow the cause of a record, in the same field, which is empty for most records
 * (docs/format.md):
 *     cause | 0 | attempts, the newest first
 * Each grant of a record that is there puts one more in front: what became of the attempt before. Its epoch is not stored: that of
 * the first one is the record's less one, and so on. What does not fit is dropped from the end. SQL and Lua do the same.
 */
#ifndef ONCE_CORE_ATTEMPTS_H
#define ONCE_CORE_ATTEMPTS_H

#include "core/record.h"

#define ONCE__WHY_MAX            255 /* bytes of the field */
#define ONCE__ATTEMPTS_MAX       8
#define ONCE__ATTEMPT_TEXT_MAX   40 /* bytes of a cause that are kept */
#define ONCE__ATTEMPT_HOLDER_MAX 40 /* a longer holder is not kept */

/*
 * The field after a change of the record `old` that brings this cause; `granted`: to another attempt. It is `cause`, or in `out`,
 * whichever it takes.
 */
once_slice_t once__attempts_after(uint8_t out[ONCE__WHY_MAX], const once__record_t *old,
                                  int granted, once_slice_t cause);

/* The part of the field before the attempts. */
once_slice_t once__attempts_cause(once_slice_t why);

/* The attempt number `n` of the record, the newest is 0. 1, or 0: there is none, or it is malformed. Trusts nothing. */
int once__attempts_read(once_attempt_t *attempt, const once__record_t *record, unsigned n);

#endif
