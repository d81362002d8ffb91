#include "support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/crc32c.h"
#include "store/local/frame.h"

#define WORD   0x1122334455667788u
#define OFFSET 4096u

static uint8_t id[ONCE_ID_SIZE];
static const uint8_t text[] = "what a record is packed to";

/* ---------------------------------------------------------------------------------------------------------- segments */

static once__segment_header_t header_of(uint32_t dictionary_len)
{
    once__segment_header_t header = {.number = 0x123456789abcdef0,
                                     .word = WORD,
                                     .size = 1 << 20,
                                     .created = 1700000000123,
                                     .clock_offset = -77,
                                     .dictionary_len = dictionary_len};

    memset(header.boot_id, 0xb0, sizeof(header.boot_id));
    memset(header.store_id, 0x50, sizeof(header.store_id));
    return header;
}

static void test_header_comes_back(void **state)
{
    static const uint32_t lens[] = {0, 1, 7, 8, 333, ONCE__DICTIONARY_MAX};
    static uint8_t dictionary[ONCE__DICTIONARY_MAX], bytes[ONCE__DICTIONARY_MAX + 256];

    memset(dictionary, 'd', sizeof(dictionary));
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        once__segment_header_t header = header_of(lens[i]), back;
        uint64_t start = once__segment_start(lens[i]);
        assert_true(start % 8 == 0 && start >= ONCE__SEGMENT_HEADER + lens[i]);
        once__segment_header_write(&header, dictionary, bytes);
        assert_int_equal(once__segment_header_read(&back, bytes, start), ONCE_OK);
        /* Up to the last member: there is padding behind it. */
        assert_memory_equal(&back, &header,
                            offsetof(once__segment_header_t, dictionary_len) + sizeof(uint32_t));
        assert_memory_equal(bytes + ONCE__SEGMENT_HEADER, dictionary, lens[i]);
        assert_int_equal(once__segment_header_read(&back, bytes, ONCE__SEGMENT_HEADER), ONCE_OK);
        assert_int_equal(once__segment_header_read(&back, bytes, ONCE__SEGMENT_HEADER - 1),
                         ONCE_E_CORRUPT);
        assert_ptr_equal(once__segment_dictionary(bytes, start),
                         lens[i] > 0 ? bytes + ONCE__SEGMENT_HEADER : NULL);
        assert_null(once__segment_dictionary(bytes, start - 1));
    }
}

static void test_every_bit_of_a_header_counts(void **state)
{
    uint8_t bytes[ONCE__SEGMENT_HEADER + 16];
    once__segment_header_t header = header_of(16), back;

    once__segment_header_write(&header, (const uint8_t *)"0123456789abcdef", bytes);
    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        int code, in_dictionary = bit / 8 >= ONCE__SEGMENT_HEADER;
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        code = once__segment_header_read(&back, bytes, sizeof(bytes));
        assert_true(code == (in_dictionary ? ONCE_OK : ONCE_E_CORRUPT) ||
                    (code == ONCE_E_NEWER && bit / 8 == 7));
        assert_true(!in_dictionary || once__segment_dictionary(bytes, sizeof(bytes)) == NULL);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    bytes[7] = '4';
    assert_int_equal(once__segment_header_read(&back, bytes, sizeof(bytes)), ONCE_E_NEWER);
    bytes[7] = '2';
    assert_int_equal(once__segment_header_read(&back, bytes, sizeof(bytes)), ONCE_E_CORRUPT);
}

/* ------------------------------------------------------------------------------------------------------------ frames */

static once__frame_t frame_of(uint8_t kind, uint64_t since)
{
    once__frame_t frame = {.kind = kind, .version = (uint64_t)77 << 20, .since = since};

    frame.watermark = OFFSET - 8;
    if (kind == ONCE__FRAME_RECORD) {
        frame.state = ONCE_STATE_COMPLETED;
        frame.flags = ONCE__FRAME_COMPRESSED;
        frame.body = text;
        frame.len = sizeof(text);
    }
    if (kind == ONCE__FRAME_RECORD || kind == ONCE__FRAME_REMOVED) {
        frame.id = id;
    }
    return frame;
}

static void test_frames_come_back(void **state)
{
    for (uint8_t kind = ONCE__FRAME_RECORD; kind <= ONCE__FRAME_SEALED; kind++) {
        for (uint64_t since = 0; since < (kind == ONCE__FRAME_SEALED ? 1 : 2); since++) {
            once__frame_t frame = frame_of(kind, since * 12345), back, head;
            uint8_t bytes[256];
            uint32_t size;
            memset(bytes, 0xee, sizeof(bytes));
            size = once__frame_write(bytes, WORD, OFFSET, &frame);
            assert_int_equal(size, once__frame_size(frame.len, since != 0));
            assert_int_equal(size % 8, 0);
            assert_int_equal(bytes[size], 0xee);
            assert_int_equal(once__frame_read(&back, WORD, OFFSET, bytes, size), ONCE__FRAME_OK);
            assert_int_equal(back.kind, kind);
            assert_int_equal(back.state, frame.state);
            assert_int_equal(back.flags, frame.flags | (since != 0 ? ONCE__FRAME_SINCE : 0));
            assert_int_equal(back.version, frame.version);
            assert_int_equal(back.since, frame.since);
            assert_int_equal(back.watermark, frame.watermark);
            assert_int_equal(back.size, size);
            assert_int_equal(back.len, frame.len);
            assert_memory_equal(back.body, text, frame.len);
            if (frame.id != NULL) {
                assert_memory_equal(back.id, id, ONCE_ID_SIZE);
            }
            assert_true(once__frame_read_head(&head, WORD, OFFSET, bytes));
            assert_true(head.size == size && head.len == frame.len && head.body == NULL);
            assert_int_equal(head.version, frame.version);
        }
    }
}

static void test_body_in_place_is_not_copied(void **state)
{
    once__frame_t frame = frame_of(ONCE__FRAME_RECORD, 5), back;
    uint8_t one[256], two[256];
    uint32_t size = once__frame_write(one, WORD, OFFSET, &frame);

    memset(two, 0xaa, sizeof(two));
    memcpy(once__frame_body(two, 1), text, sizeof(text));
    frame.body = once__frame_body(two, 1);
    assert_int_equal(once__frame_write(two, WORD, OFFSET, &frame), size);
    assert_memory_equal(one, two, size);
    assert_int_equal(once__frame_read(&back, WORD, OFFSET, two, size), ONCE__FRAME_OK);
}

static void test_every_bit_of_a_frame_counts(void **state)
{
    once__frame_t frame = frame_of(ONCE__FRAME_RECORD, 5), back;
    uint8_t bytes[256];
    uint32_t size = once__frame_write(bytes, WORD, OFFSET, &frame);
    size_t len = ONCE__FRAME_HEADER + 8 + sizeof(text);

    for (size_t bit = 0; bit < len * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(once__frame_read(&back, WORD, OFFSET, bytes, size),
                         bit / 8 < ONCE__FRAME_HEADER ? ONCE__FRAME_NONE : ONCE__FRAME_DAMAGED);
        if (bit / 8 >= ONCE__FRAME_HEADER) {
            assert_int_equal(back.version, frame.version);
            assert_int_equal(back.size, size);
            assert_memory_equal(back.id, id, ONCE_ID_SIZE);
        }
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t room = 0; room < len; room++) {
        uint8_t *part = malloc(room + 1); /* so that a sanitizer sees what is read behind it */
        assert_non_null(part);
        memcpy(part, bytes, room);
        assert_int_equal(once__frame_read(&back, WORD, OFFSET, part, room), ONCE__FRAME_NONE);
        free(part);
    }
}

/* The same bytes in another segment or at another place of the same one are not a frame. */
static void test_place_and_word_count(void **state)
{
    once__frame_t frame = frame_of(ONCE__FRAME_RECORD, 0), back;
    uint8_t bytes[256];
    uint32_t size = once__frame_write(bytes, WORD, OFFSET, &frame);

    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t word = WORD ^ (uint64_t)1 << bit;
        assert_int_equal(once__frame_read(&back, word, OFFSET, bytes, size), ONCE__FRAME_NONE);
    }
    for (uint64_t offset = 0; offset < 2 * OFFSET; offset += 8) {
        assert_int_equal(once__frame_read(&back, WORD, offset, bytes, size),
                         offset == OFFSET ? ONCE__FRAME_OK : ONCE__FRAME_NONE);
    }
}

/* With right checksums, but not what a frame can be. */
static void test_impossible_frames_are_none(void **state)
{
    static const once__frame_t wrong[] = {
        {.kind = 0, .state = 0},
        {.kind = 5, .state = 0},
        {.kind = ONCE__FRAME_RECORD, .state = 0, .body = text, .len = 9},
        {.kind = ONCE__FRAME_RECORD, .state = 5, .body = text, .len = 9},
        {.kind = ONCE__FRAME_RECORD, .state = 1, .len = 0},
        {.kind = ONCE__FRAME_RECORD, .state = 1, .flags = 8, .body = text, .len = 9},
        {.kind = ONCE__FRAME_REMOVED, .state = 1},
        {.kind = ONCE__FRAME_REMOVED, .body = text, .len = 1},
        {.kind = ONCE__FRAME_REMOVED, .flags = ONCE__FRAME_COMPRESSED},
        {.kind = ONCE__FRAME_SEALED, .since = 3},
        {.kind = ONCE__FRAME_SEALED, .id = id},
        {.kind = ONCE__FRAME_SEALED, .body = text, .len = 1},
        {.kind = ONCE__FRAME_FILLER, .since = 3},
    };
    uint8_t bytes[256];
    once__frame_t back;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        (void)once__frame_write(bytes, WORD, OFFSET, &wrong[i]);
        assert_int_equal(once__frame_read(&back, WORD, OFFSET, bytes, sizeof(bytes)),
                         ONCE__FRAME_NONE);
    }
}

/* Stored numbers never change: a frame byte by byte. */
static void test_layout(void **state)
{
    static const uint8_t expected[] = {
        0x47, 0x00, 0x00, 0x00, 0xb3, 0xb7, 0xde, 0xc9, 0x95, 0x37, 0x65, 0x9c, /* length, sums */
        0x01, 0x02, 0x03, 0x00, 0x00, 0x00, 0xd0, 0x04, 0x00, 0x00, 0x00, 0x00, /* kind .. version */
        0xff, 0x01, 0x00, 0x00,                                                 /* watermark */
        0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, /* id */
        0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x1d,
        0x1d, 0x1d, 0x1d, 0x1d, 0x1d, 0x39, 0x30, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* since */
        'a',  'b',  'c',  0x00, /* body, padding */
    };
    once__frame_t frame = frame_of(ONCE__FRAME_RECORD, 12345);
    uint8_t bytes[72];

    frame.body = (const uint8_t *)"abc";
    frame.len = 3;
    assert_int_equal(once__frame_write(bytes, WORD, OFFSET, &frame), sizeof(bytes));
    assert_memory_equal(bytes, expected, sizeof(bytes));
}

/* A frame that says that more was synced than what stands before it. */
static void test_watermark_of_the_future(void **state)
{
    once__frame_t frame = frame_of(ONCE__FRAME_RECORD, 0), back;
    uint8_t bytes[256], covered[72];

    (void)once__frame_write(bytes, WORD, OFFSET, &frame);
    for (uint32_t watermark = OFFSET / 8; watermark <= OFFSET / 8 + 1; watermark++) {
        once__put32(bytes + 24, watermark);
        once__put64(covered, WORD);
        once__put64(covered + 8, OFFSET);
        memcpy(covered + 16, bytes, 4);
        memcpy(covered + 20, bytes + 8, 52);
        once__put32(bytes + 4, once__crc32c(0, covered, sizeof(covered)));
        assert_int_equal(once__frame_read_head(&back, WORD, OFFSET, bytes),
                         watermark == OFFSET / 8);
    }
}

static void test_filler_covers(void **state)
{
    static const uint64_t lens[] = {64,
                                    72,
                                    4096,
                                    ONCE__FILLER_MAX,
                                    ONCE__FILLER_MAX + 8,
                                    ONCE__FILLER_MAX + 64,
                                    3 * ONCE__FILLER_MAX};
    uint8_t *bytes = malloc(3 * ONCE__FILLER_MAX + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        uint64_t at = 0;
        bytes[lens[i]] = 0xcc;
        once__frame_write_filler(bytes, WORD, OFFSET, lens[i], OFFSET);
        while (at < lens[i]) {
            once__frame_t frame;
            assert_int_equal(once__frame_read(&frame, WORD, OFFSET + at, bytes + at, lens[i] - at),
                             ONCE__FRAME_OK);
            assert_int_equal(frame.kind, ONCE__FRAME_FILLER);
            at += frame.size;
        }
        assert_int_equal(at, lens[i]);
        assert_int_equal(bytes[lens[i]], 0xcc);
    }
    free(bytes);
}

/* A response that holds whole frames: of another segment, or of another place of this one. */
static void test_find_passes_over_imitations(void **state)
{
    static uint8_t file[8192];
    once__frame_t frame = frame_of(ONCE__FRAME_RECORD, 0), found;

    for (uint64_t at = 0; at + 256 < OFFSET; at += 256) {
        (void)once__frame_write(file + at, WORD + 1, OFFSET - 8, &frame);
        (void)once__frame_write(file + at + 128, WORD, OFFSET, &frame);
    }
    assert_int_equal(once__frame_find(&found, WORD, 0, file, sizeof(file)), sizeof(file));
    (void)once__frame_write(file + OFFSET, WORD, OFFSET, &frame);
    assert_int_equal(once__frame_find(&found, WORD, 0, file, sizeof(file)), OFFSET);
    assert_int_equal(found.version, frame.version);
    assert_int_equal(once__frame_find(&found, WORD, OFFSET, file, sizeof(file)), OFFSET);
    assert_int_equal(once__frame_find(&found, WORD, OFFSET + 8, file, sizeof(file)), sizeof(file));
    /* a head is enough, also if the body is behind the end */
    assert_int_equal(once__frame_find(&found, WORD, 0, file, OFFSET + ONCE__FRAME_HEADER), OFFSET);
    assert_int_equal(once__frame_find(&found, WORD, 0, file, OFFSET + ONCE__FRAME_HEADER - 1),
                     OFFSET + ONCE__FRAME_HEADER - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_comes_back),
        cmocka_unit_test(test_every_bit_of_a_header_counts),
        cmocka_unit_test(test_frames_come_back),
        cmocka_unit_test(test_body_in_place_is_not_copied),
        cmocka_unit_test(test_every_bit_of_a_frame_counts),
        cmocka_unit_test(test_place_and_word_count),
        cmocka_unit_test(test_impossible_frames_are_none),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_watermark_of_the_future),
        cmocka_unit_test(test_filler_covers),
        cmocka_unit_test(test_find_passes_over_imitations),
    };
    memset(id, 0x1d, sizeof(id));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
