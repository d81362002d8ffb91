/* Canonical JSON: it is its own canonical form, and spaces do not change it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

/* The text with a space wherever one may stand. */
static char *spread(const char *text, size_t len, size_t *out_len)
{
    char *out = malloc(3 * len);
    size_t at = 0;
    int in_string = 0;

    for (size_t i = 0; i < len; i++) {
        int structure = !in_string && strchr("[]{}:,", text[i]) != NULL && text[i] != '\0';
        if (structure) {
            out[at++] = ' ';
        }
        out[at++] = text[i];
        if (structure) {
            out[at++] = '\n';
        }
        if (in_string && text[i] == '\\') {
            out[at++] = text[++i];
        } else if (text[i] == '"') {
            in_string = !in_string;
        }
    }
    *out_len = at;
    return out;
}

static void check_equal_form(const char *document, size_t len, const char *text, size_t text_len)
{
    char *again;
    size_t again_len;
    once__json_fault_t fault = once__json_canonical(once__slice(document, len), &again, &again_len);

    assert(fault == ONCE__JSON_FINE);
    assert(same(text, text_len, again, again_len));
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;
    size_t len;

    if (once__json_canonical(once__slice(data, size), &text, &len) != ONCE__JSON_FINE) {
        assert(text == NULL && len == 0);
        return 0;
    }
    assert(len > 0);
    if (3 * len < 1000000) {
        size_t wide_len;
        char *wide = spread(text, len, &wide_len);
        check_equal_form(text, len, text, len);
        check_equal_form(wide, wide_len, text, len);
        free(wide);
    }
    free(text);
    return 0;
}
