/*
 * Any bytes as a record that Redis had: unpacking never reads past them, what is unpacked is a valid record that packs to one of
 * the same content, and dictionaries are read without trust. Bytes that begin with 0 are a list of dictionaries, others a record.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/attempts.h"
#include "core/codec.h"
#include "store/crc32c.h"
#include "store/redis/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static int same(const void *a, size_t a_len, const void *b, size_t b_len)
{
    return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

/* Whatever stands there: what is read lies within it, and another attempt fits. */
static void check_attempts(const once__record_t *record)
{
    uint8_t out[ONCE__WHY_MAX];
    once__record_t next = *record;
    once_attempt_t attempt;
    unsigned n = 0;

    while (once__attempts_read(&attempt, record, n)) {
        check(attempt.epoch + n + 1 == record->head.claim.epoch);
        check(attempt.holder.len <= 63 && attempt.cause.len <= UINT8_MAX);
        n++;
    }
    check(n <= ONCE__ATTEMPTS_MAX && n < record->head.claim.epoch);
    next.cause = once__attempts_after(out, record, 1, once__slice_of(""));
    check(next.cause.len <= ONCE__WHY_MAX);
    next.head.claim.epoch = 2;
    check(once__attempts_read(&attempt, &next, 0) == 1);
}

/* The same record comes back from its own bytes. */
static void check_again(const once__record_t *record, once__redis_dictionaries_t *dictionaries)
{
    once__record_t *copy = once__record_clone(record), again = {.key = NULL};
    uint8_t *bytes = malloc(once__redis_pack_bound(record));
    size_t len;

    check(copy != NULL && bytes != NULL);
    check_attempts(copy);
    if (copy->head.ttl_ms <= ONCE__REDIS_MS_MAX) {
        len = once__redis_pack(bytes, copy, dictionaries);
        check(len <= once__redis_pack_bound(copy));
        check(once__redis_unpack(&again, dictionaries, bytes, len) == ONCE_OK);
        check(again.head.ttl_ms == copy->head.ttl_ms && again.head.state == copy->head.state &&
              again.head.expires == copy->head.expires);
        check(same(again.key, again.key_len, copy->key, copy->key_len));
        check(same(again.about.data, again.about.len, copy->about.data, copy->about.len));
        check(same(again.cause.data, again.cause.len, copy->cause.data, copy->cause.len));
        check(again.payload.kind == copy->payload.kind &&
              again.payload.status == copy->payload.status &&
              same(again.payload.data, again.payload.len, copy->payload.data, copy->payload.len));
    }
    free(bytes);
    free(copy);
}

/* Gives every entry of a list the id of its content, which no chance would. */
static void set_ids(uint8_t *list, size_t len)
{
    size_t size;

    for (size_t at = 0; at + ONCE__REDIS_ENTRY_SIZE < len; at += ONCE__REDIS_ENTRY_SIZE + size) {
        size = once__get16(list + at);
        if (size > len - at - ONCE__REDIS_ENTRY_SIZE) {
            return;
        }
        once__put32(list + at + 2, once__crc32c(0, list + at + ONCE__REDIS_ENTRY_SIZE, size));
    }
}

static void read_list(const uint8_t *data, size_t size)
{
    once__redis_dictionaries_t *dictionaries = calloc(1, sizeof(*dictionaries));
    uint8_t *list = malloc(size + 1);

    check(dictionaries != NULL && list != NULL);
    (void)once__redis_dictionaries_read(dictionaries, data, size);
    memcpy(list, data, size);
    set_ids(list, size);
    (void)once__redis_dictionaries_read(dictionaries, list, size);
    check(dictionaries->count <= ONCE__REDIS_DICTIONARIES_MAX);
    once__redis_dictionaries_free(dictionaries);
    free(dictionaries);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t list[] =
        "\x34\0????{\"id\":\"ch_\0\0\0\0\",\"object\":\"charge\",\"content-type\":1}\0\0";
    static once__redis_dictionaries_t dictionaries;
    once__record_t record = {.id = {1}};
    int rc;

    if (dictionaries.count == 0) {
        size_t len = ONCE__REDIS_ENTRY_SIZE + (size_t)list[0];
        check(len <= sizeof(list));
        set_ids(list, len);
        check(once__redis_dictionaries_read(&dictionaries, list, len) == 0);
        dictionaries.current = 1;
    }
    if (size > 0 && data[0] == 0) {
        read_list(data + 1, size - 1);
        return 0;
    }
    rc = once__redis_unpack(&record, &dictionaries, data, size);
    check(record.id[0] == 1);
    if (rc == ONCE_OK) {
        check(once__record_is_valid(&record));
        check_again(&record, &dictionaries);
    } else {
        check(rc == ONCE_E_NEWER || rc == ONCE_E_CORRUPT || rc == ONCE_E_NOT_FOUND);
    }
    (void)once__redis_unpack_head(&record, data, size);
    return 0;
}
