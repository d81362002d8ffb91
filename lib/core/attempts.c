#include "core/attempts.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "core/about.h"

/* An attempt: length of the rest | how it ended, in the upper 2 bits, and length of the holder | when (6) | holder | cause. */
enum { AT_HOW = 1, AT_TIME = 2, AT_HOLDER = 8, TIME_SIZE = 6, HOW_SHIFT = 6, HOLDER_MASK = 63 };
enum { BY_LEASE, FAILED, DOUBTED };

#define ATTEMPT_MAX (AT_HOLDER + ONCE__ATTEMPT_HOLDER_MAX + ONCE__ATTEMPT_TEXT_MAX)
#define TIME_MAX    (((uint64_t)1 << 48) - 1)

static_assert(ONCE__ATTEMPT_HOLDER_MAX <= HOLDER_MASK, "a length has six bits");
static_assert(ATTEMPT_MAX + 1 + ONCE_CAUSE_MAX <= ONCE__WHY_MAX, "one always fits");

once_slice_t once__attempts_cause(once_slice_t why)
{
    const uint8_t *end = why.len > 0 ? memchr(why.data, 0, why.len) : NULL;

    return end != NULL ? once__slice(why.data, (size_t)(end - (const uint8_t *)why.data)) : why;
}

static once_slice_t attempts_of(once_slice_t why)
{
    size_t cause = once__attempts_cause(why).len;

    return cause < why.len ? once__slice((const uint8_t *)why.data + cause + 1, why.len - cause - 1)
                           : once__slice(NULL, 0);
}

/* Bytes of the attempt at `at`; 0: none. */
static size_t size_at(once_slice_t attempts, size_t at)
{
    const uint8_t *bytes = attempts.data;
    size_t size = at < attempts.len ? (size_t)bytes[at] + 1 : 0;

    return size >= AT_HOLDER && size <= attempts.len - at &&
                   size - AT_HOLDER >= (bytes[at + AT_HOW] & HOLDER_MASK)
               ? size
               : 0;
}

/* ------------------------------------------------------------------------------------------------------------ writing */

static size_t put(uint8_t *out, once_slice_t text)
{
    if (text.len > 0) {
        memcpy(out, text.data, text.len);
    }
    return text.len;
}

/* Unchanged: whether it is text is checked when it is read. */
static once_slice_t holder_of(once_slice_t about)
{
    const uint8_t *bytes = about.data;
    size_t len = about.len >= 2 && bytes[0] == 1 ? bytes[1] & 0x7f : 0;

    return len > 0 && len <= ONCE__ATTEMPT_HOLDER_MAX && len <= about.len - 2
               ? once__slice(bytes + 2, len)
               : once__slice(NULL, 0);
}

/* What became of the last attempt, before the next one is granted. */
static size_t put_last(uint8_t *out, const once__record_t *old)
{
    const once__head_t *head = &old->head;
    int by_lease = head->state == ONCE_STATE_PENDING || (head->flags & ONCE__BY_LEASE) != 0;
    unsigned how = by_lease ? BY_LEASE : head->state == ONCE_STATE_FAILED ? FAILED : DOUBTED;
    uint64_t ended = by_lease ? head->lease_until : head->changed;
    once_slice_t holder = holder_of(old->about), text = once__attempts_cause(old->cause);
    size_t len = AT_HOLDER;

    if (text.len == 0 && old->payload.kind == ONCE__PAYLOAD_NOTE) {
        text = once__slice(old->payload.data, old->payload.len);
    }
    text.len = by_lease ? 0 : text.len;
    text.len = text.len < ONCE__ATTEMPT_TEXT_MAX ? text.len : ONCE__ATTEMPT_TEXT_MAX;
    ended = ended < TIME_MAX ? ended : TIME_MAX;
    out[AT_HOW] = (uint8_t)(how << HOW_SHIFT | holder.len);
    for (unsigned i = 0; i < TIME_SIZE; i++) {
        out[AT_TIME + i] = (uint8_t)(ended >> 8 * (TIME_SIZE - 1 - i));
    }
    len += put(out + len, holder);
    len += put(out + len, text);
    out[0] = (uint8_t)(len - 1);
    return len;
}

once_slice_t once__attempts_after(uint8_t out[ONCE__WHY_MAX], const once__record_t *old,
                                  int granted, once_slice_t cause)
{
    once_slice_t attempts = attempts_of(old->cause);
    size_t len, count = 0, size;

    if (!granted && attempts.len == 0) {
        return cause;
    }
    assert(cause.len <= ONCE_CAUSE_MAX);
    len = put(out, cause);
    out[len++] = 0;
    if (granted) {
        len += put_last(out + len, old);
        count++;
    }
    for (size_t at = 0; count < ONCE__ATTEMPTS_MAX && (size = size_at(attempts, at)) > 0 &&
                        len + size <= ONCE__WHY_MAX;
         at += size, count++) {
        memcpy(out + len, (const uint8_t *)attempts.data + at, size);
        len += size;
    }
    return count > 0 ? once__slice(out, len) : cause;
}

/* ------------------------------------------------------------------------------------------------------------ reading */

/* A text may have been cut within a character. */
static once_slice_t clean(once_slice_t text)
{
    for (size_t cut = 0; cut < 4 && cut <= text.len; cut++) {
        once_slice_t shorter = once__slice(text.data, text.len - cut);
        if (once__about_is_clean(shorter)) {
            return shorter;
        }
    }
    return once__slice(NULL, 0);
}

int once__attempts_read(once_attempt_t *attempt, const once__record_t *record, unsigned n)
{
    once_slice_t attempts = attempts_of(record->cause);
    const uint8_t *bytes;
    size_t at = 0, size = size_at(attempts, 0), holder;

    for (unsigned i = 0; i < n && size > 0; i++) {
        at += size;
        size = size_at(attempts, at);
    }
    if (n >= ONCE__ATTEMPTS_MAX || n + 1 >= record->head.claim.epoch || size == 0) {
        return 0;
    }
    bytes = (const uint8_t *)attempts.data + at;
    if (bytes[AT_HOW] >> HOW_SHIFT > DOUBTED) {
        return 0;
    }
    holder = bytes[AT_HOW] & HOLDER_MASK;
    *attempt = (once_attempt_t){
        .size = sizeof(*attempt),
        .epoch = record->head.claim.epoch - 1 - n,
        .state = bytes[AT_HOW] >> HOW_SHIFT == FAILED ? ONCE_STATE_FAILED : ONCE_STATE_UNKNOWN,
        .holder = clean(once__slice(bytes + AT_HOLDER, holder)),
        .cause = clean(once__slice(bytes + AT_HOLDER + holder, size - AT_HOLDER - holder)),
    };
    for (unsigned i = 0; i < TIME_SIZE; i++) {
        attempt->ended = attempt->ended << 8 | bytes[AT_TIME + i];
    }
    if (bytes[AT_HOW] >> HOW_SHIFT == BY_LEASE) {
        attempt->cause = once__slice_of("lease over");
    }
    return 1;
}
