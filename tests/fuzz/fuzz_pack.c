/*
 * Any bytes as the dictionary of a segment and the body of a frame: unpacking never leaves its memory, what it accepts is packed
 * to the same bytes again, and any payload that is compressed with that dictionary comes back.
 *
 * The first byte says where the dictionary ends, in steps of a 256th; the second one which flags the frame has.
 */
#include <stdlib.h>
#include <string.h>

#include "store/local/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_again(const once__record_t *record, const once__frame_t *frame,
                        const once__dictionary_t *dictionary)
{
    uint8_t *bytes = malloc(once__pack_bound(record));
    once__frame_t again = *frame;
    once__scratch_t scratch = {0};
    once__record_t back;

    check(bytes != NULL);
    again.body = bytes;
    again.len = once__pack(bytes, record, NULL, &again.flags);
    check(again.len <= once__pack_bound(record));
    if ((frame->flags & (ONCE__FRAME_COMPRESSED | ONCE__FRAME_SHORT_ABOUT)) == 0) {
        check(again.len == frame->len && memcmp(bytes, frame->body, frame->len) == 0);
    }
    again.len = once__pack(bytes, record, dictionary, &again.flags);
    check(again.len <= once__pack_bound(record));
    check(once__unpack(&back, &again, dictionary, &scratch) == ONCE_OK);
    check(back.key_len == record->key_len && memcmp(back.key, record->key, back.key_len) == 0);
    check(
        back.about.len == record->about.len &&
        (back.about.len == 0 || memcmp(back.about.data, record->about.data, back.about.len) == 0));
    check(
        back.cause.len == record->cause.len &&
        (back.cause.len == 0 || memcmp(back.cause.data, record->cause.data, back.cause.len) == 0));
    check(back.payload.len == record->payload.len &&
          (back.payload.len == 0 ||
           memcmp(back.payload.data, record->payload.data, back.payload.len) == 0));
    free(scratch.bytes);
    free(bytes);
}

static void unpack(const uint8_t *body, size_t len, uint8_t flags,
                   const once__dictionary_t *dictionary)
{
    static const uint8_t id[ONCE_ID_SIZE];
    once__frame_t frame = {.kind = ONCE__FRAME_RECORD,
                           .state = len > 1 ? body[1] & 7 : 1,
                           .flags = flags,
                           .id = id,
                           .body = body,
                           .len = len};
    once__scratch_t scratch = {0};
    once__record_t record;
    once__head_t head;
    int code = once__unpack(&record, &frame, dictionary, &scratch);

    check(code == ONCE_OK || code == ONCE_E_CORRUPT || code == ONCE_E_NEWER);
    check((code == ONCE_E_NEWER) == (once__unpack_head(&head, &frame) == ONCE_E_NEWER));
    if (code == ONCE_OK) {
        check(once__unpack_head(&head, &frame) == ONCE_OK && head.expires == record.head.expires);
        check_again(&record, &frame, dictionary);
    } else {
        check(record.key == NULL && record.payload.len == 0);
    }
    free(scratch.bytes);
}

static void compress(const uint8_t *data, size_t len, const once__dictionary_t *dictionary)
{
    uint8_t *packed = malloc(len + 1), *back = malloc(len + 1);
    size_t size;

    check(packed != NULL && back != NULL);
    size = once__dictionary_pack(dictionary, packed, data, len);
    check(size == 0 || size < len);
    if (size > 0) {
        check(once__dictionary_unpack(dictionary, back, len, packed, size) == 0);
        check(memcmp(back, data, len) == 0);
    }
    (void)once__dictionary_unpack(dictionary, back, len, data, len);
    free(packed);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once__dictionary_t *dictionary = NULL;
    size_t cut;

    if (size < 2) {
        return 0;
    }
    cut = (size - 2) * data[0] / 256;
    if (cut > 0 && cut <= ONCE__DICTIONARY_MAX) {
        dictionary = once__dictionary_open(data + 2, cut, 1);
        check(dictionary != NULL);
    }
    unpack(data + 2 + cut, size - 2 - cut, data[1] & ONCE__FRAME_COMPRESSED, dictionary);
    if (dictionary != NULL && size - 2 - cut <= ONCE__DICTIONARY_MOST) {
        compress(data + 2 + cut, size - 2 - cut, dictionary);
    }
    once__dictionary_close(dictionary);
    return 0;
}
