/* Multipart: the first line is the content type, the rest the body. However it is cut, the answer is the same; with another
   boundary in place of the first, too. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int digest(const char *boundary, size_t boundary_len, const uint8_t *body, size_t len,
                  uint64_t seed, uint8_t sum[32])
{
    once__multipart_t multipart;

    once__multipart_init(&multipart, boundary, boundary_len);
    for (size_t at = 0; at < len;) {
        size_t piece = len - at;
        if (seed != 0) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t most = seed >> 60 == 0 ? 5000 : 40;
            size_t random = (size_t)(seed >> 33) % most + 1;
            piece = random < piece ? random : piece;
        }
        once__multipart_add(&multipart, body + at, piece);
        at += piece;
    }
    return once__multipart_end(&multipart, sum);
}

/* The body with each "--" boundary replaced; NULL when the new one occurs in it already. */
static uint8_t *replace(const uint8_t *body, size_t len, once_slice_t from, once_slice_t to,
                        size_t *out_len)
{
    if (memmem(body, len, to.data, to.len) != NULL) {
        return NULL;
    }
    uint8_t *out = malloc(len * (to.len + 1) + 1);
    size_t at = 0;

    for (size_t i = 0; i < len;) {
        if (len - i >= from.len && memcmp(body + i, from.data, from.len) == 0) {
            memcpy(out + at, to.data, to.len);
            at += to.len;
            i += from.len;
        } else {
            out[at++] = body[i++];
        }
    }
    *out_len = at;
    return out;
}

static void check_other_boundary(const char *boundary, size_t boundary_len, const uint8_t *body,
                                 size_t len, const uint8_t sum[32])
{
    static const char other[] = "--0other1";
    char dashes[2 + ONCE__BOUNDARY_MAX] = "--";
    uint8_t other_sum[32];
    size_t other_len;

    memcpy(dashes + 2, boundary, boundary_len);
    uint8_t *changed = replace(body, len, once__slice(dashes, boundary_len + 2),
                               once__slice(other, sizeof(other) - 1), &other_len);
    if (changed == NULL) {
        return;
    }
    int rc = digest(other + 2, sizeof(other) - 3, changed, other_len, 0, other_sum);
    assert(rc == 0 && memcmp(sum, other_sum, 32) == 0);
    free(changed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    char boundary[ONCE__BOUNDARY_MAX];
    uint8_t sum[32], cut_sum[32];
    size_t len;

    if (line == NULL ||
        once__multipart_boundary(once__slice(data, (size_t)(line - data)), boundary, &len) != 0) {
        return 0;
    }
    assert(len >= 1 && len <= ONCE__BOUNDARY_MAX && boundary[len - 1] != ' ');
    const uint8_t *body = line + 1;
    size_t body_len = size - (size_t)(body - data);
    int rc = digest(boundary, len, body, body_len, 0, sum);
    for (uint64_t seed = 1; seed < 4; seed++) {
        int cut = digest(boundary, len, body, body_len, seed + size, cut_sum);
        assert(cut == rc && (rc != 0 || memcmp(sum, cut_sum, 32) == 0));
    }
    if (rc == 0) {
        check_other_boundary(boundary, len, body, body_len, sum);
    }
    return 0;
}
