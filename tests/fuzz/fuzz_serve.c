/* Requests of `once serve`: whatever is sent is read within its bytes or refused in words, and what is read keeps its limits. */
#include <assert.h>
#include <string.h>

#include "serve/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_input(const once__serve_input_t *input, unsigned needed)
{
    uint8_t id[ONCE_ID_SIZE], claim_id[ONCE_CLAIM_ID_SIZE];

    assert((input->given & needed) == needed);
    if (input->given & ONCE__SERVE_KEY) {
        assert(input->key.len >= 1 && input->key.len <= ONCE_KEY_MAX);
    }
    if (input->given & ONCE__SERVE_LEASE) {
        assert(input->lease_ms >= 10 && input->lease_ms <= 86400000);
    }
    assert(input->wait_ms <= ONCE__SERVE_WAIT_MAX);
    assert(input->recover == ONCE_RECOVER_HOLD || input->recover == ONCE_RECOVER_RETRY);
    assert(input->verdict <= ONCE_VERDICT_UNKNOWN);
    assert(input->response.header_count <= ONCE_HEADER_COUNT_MAX);
    assert(json_array_size(input->claims) <= ONCE__SERVE_CLAIMS_MAX);
    if (input->claim != NULL) {
        assert(once__serve_claim_read(input->claim, id, claim_id) == 0);
    }
}

/* The first byte says what is needed; every member is allowed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once__serve_input_t input;
    once__serve_wrong_t wrong = {0};
    unsigned needed;

    if (size == 0) {
        return 0;
    }
    needed = data[0] & 1 ? ONCE__SERVE_KEY : data[0] & 2 ? ONCE__SERVE_CLAIM : 0;
    if (once__serve_read(&input, (const char *)data + 1, size - 1, ~0u, needed, &wrong) == 0) {
        check_input(&input, needed);
    } else {
        assert(wrong.code < 0 && wrong.text[0] != '\0');
        assert(memchr(wrong.text, '\0', sizeof(wrong.text)) != NULL);
    }
    once__serve_input_free(&input);
    return 0;
}
