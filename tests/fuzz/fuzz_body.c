/* Bodies: the first byte is the mode, then a line with the content type, then the body. However it is cut and whenever a
   digest is taken, it is the same; a body that falls back has the digest of its bytes. */
#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "core/digest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void digest_cut(once_body_mode_t mode, once_slice_t type, const uint8_t *data, size_t size,
                       uint64_t seed, once__digest_t *digest)
{
    once_body_t *body = once_body_new(mode, type);
    int rc = ONCE_OK;

    assert(body != NULL);
    for (size_t at = 0; at < size;) {
        size_t piece = size - at;
        if (seed != 0) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t random = (size_t)(seed >> 33) % 100 + 1;
            piece = random < piece ? random : piece;
        }
        if (seed % 16 == 1) {
            rc |= once__body_digest(body, digest);
        }
        rc |= once_body_add(body, data + at, piece);
        at += piece;
    }
    rc |= once__body_digest(body, digest);
    assert(rc == ONCE_OK);
    once_body_free(body);
}

static int same(const once__digest_t *a, const once__digest_t *b)
{
    return a->mode == b->mode && memcmp(a->sum, b->sum, sizeof(a->sum)) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once__digest_t whole, cut, exact;

    if (size < 1) {
        return 0;
    }
    once_body_mode_t mode = (once_body_mode_t)(data[0] % 4);
    const uint8_t *line = memchr(data + 1, '\n', size - 1);
    const uint8_t *body = line != NULL ? line + 1 : data + 1;
    once_slice_t type = once__slice(data + 1, line != NULL ? (size_t)(line - data) - 1 : 0);
    size_t len = size - (size_t)(body - data);

    digest_cut(mode, type, body, len, 0, &whole);
    digest_cut(mode, type, body, len, size + 7, &cut);
    assert(same(&whole, &cut));
    once__bytes_digest(once__slice(body, len), &exact);
    assert(whole.mode == mode || whole.mode == ONCE_BODY_MODE_EXACT);
    assert(whole.mode != ONCE_BODY_MODE_EXACT || same(&whole, &exact));
    return 0;
}
