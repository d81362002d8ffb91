#include <once/body.h>

#include <stdlib.h>
#include <string.h>

#include <once/experimental.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "core/digest.h"
#include "core/json.h"
#include "core/multipart.h"
#include "core/sha256_many.h"

/*
 * How each mode works:
 *     none       nothing
 *     exact      a running hash
 *     json       the bytes are kept; over the limit they go into the running hash and the rest follows them
 *     multipart  a running hash beside the parts', because only the end decides which of the two counts
 */
struct once_body {
    once_body_mode_t mode;
    int broken;                   /* out of memory: what was lost cannot be added again */
    once__sha256_t exact;         /* not of json while it is kept */
    once__buf_t json;             /* json, kept */
    int json_over;                /* json, over the limit */
    once__multipart_t *multipart; /* multipart; NULL when there is no usable boundary */
};

static int is_mode(once_body_mode_t mode)
{
    return mode == ONCE_BODY_MODE_NONE || mode == ONCE_BODY_MODE_EXACT ||
           mode == ONCE_BODY_MODE_JSON || mode == ONCE_BODY_MODE_MULTIPART;
}

once_body_t *once_body_new(once_body_mode_t mode, once_slice_t content_type)
{
    char boundary[ONCE__BOUNDARY_MAX];
    size_t len;
    once_body_t *body = is_mode(mode) ? calloc(1, sizeof(*body)) : NULL;

    if (body == NULL) {
        return NULL;
    }
    body->mode = mode;
    body->json.max = ONCE_BODY_JSON_MAX;
    once__sha256_init(&body->exact);
    if (mode == ONCE_BODY_MODE_MULTIPART &&
        once__multipart_boundary(content_type, boundary, &len) == 0) {
        body->multipart = malloc(sizeof(*body->multipart));
        if (body->multipart == NULL) {
            free(body);
            return NULL;
        }
        once__multipart_init(body->multipart, boundary, len);
    }
    return body;
}

void once_body_free(once_body_t *body)
{
    if (body != NULL) {
        once__buf_free(&body->json);
        free(body->multipart);
        free(body);
    }
}

static int json_add(once_body_t *body, const void *data, size_t len)
{
    if (!body->json_over && len <= ONCE_BODY_JSON_MAX - body->json.len) {
        body->broken = once__buf_add(&body->json, data, len) != ONCE_OK;
        return body->broken ? ONCE_E_NOMEM : ONCE_OK;
    }
    if (!body->json_over) {
        body->json_over = 1;
        once__sha256_add(&body->exact, body->json.data, body->json.len);
        once__buf_free(&body->json);
    }
    once__sha256_add(&body->exact, data, len);
    return ONCE_OK;
}

int once_body_add(once_body_t *body, const void *data, size_t len)
{
    if (body == NULL || (data == NULL && len > 0)) {
        return ONCE_E_INVALID;
    }
    if (body->broken) {
        return ONCE_E_NOMEM;
    }
    if (len == 0 || body->mode == ONCE_BODY_MODE_NONE) {
        return ONCE_OK;
    }
    if (body->mode == ONCE_BODY_MODE_JSON) {
        return json_add(body, data, len);
    }
    once__sha256_add(&body->exact, data, len);
    if (body->multipart != NULL) {
        once__multipart_add(body->multipart, data, len);
    }
    return ONCE_OK;
}

void once__bytes_digest(once_slice_t bytes, once__digest_t *digest)
{
    once__sha256_t ctx;

    digest->mode = ONCE_BODY_MODE_EXACT;
    once__sha256_init(&ctx);
    once__sha256_add(&ctx, bytes.data, bytes.len);
    once__sha256_end(&ctx, digest->sum);
}

/* Only the document decides between canonical and exact. Running out of memory must not: another time it would not. */
static int json_digest(once_slice_t document, once__digest_t *digest)
{
    char *text;
    size_t len;
    once__json_fault_t fault = once__json_canonical(document, &text, &len);

    if (fault == ONCE__JSON_MEMORY) {
        return ONCE_E_NOMEM;
    }
    if (fault != ONCE__JSON_FINE) {
        once__bytes_digest(document, digest);
        return ONCE_OK;
    }
    once__bytes_digest(once__slice(text, len), digest);
    digest->mode = ONCE_BODY_MODE_JSON;
    free(text);
    return ONCE_OK;
}

int once__body_digest(const once_body_t *body, once__digest_t *digest)
{
    if (body->broken) {
        return ONCE_E_NOMEM;
    }
    if (body->mode == ONCE_BODY_MODE_NONE) {
        memset(digest, 0, sizeof(*digest));
        digest->mode = ONCE_BODY_MODE_NONE;
        return ONCE_OK;
    }
    if (body->mode == ONCE_BODY_MODE_JSON && !body->json_over) {
        return json_digest(once__slice(body->json.data, body->json.len), digest);
    }
    if (body->multipart != NULL && once__multipart_end(body->multipart, digest->sum) == 0) {
        digest->mode = ONCE_BODY_MODE_MULTIPART;
        return ONCE_OK;
    }
    once__sha256_t exact = body->exact;
    digest->mode = ONCE_BODY_MODE_EXACT;
    once__sha256_end(&exact, digest->sum);
    return ONCE_OK;
}

int once__ask_digest(const once_ask_t *ask, const uint8_t *known, once__digest_t *digest)
{
    if (ask->body != NULL) {
        return once__body_digest(ask->body, digest);
    }
    if (known != NULL) {
        digest->mode = ONCE_BODY_MODE_EXACT;
        memcpy(digest->sum, known, sizeof(digest->sum));
    } else {
        once__bytes_digest(ask->bytes, digest);
    }
    return ONCE_OK;
}

int once_body_digest(const once_body_t *body, uint8_t digest[ONCE_DIGEST_SIZE])
{
    once__digest_t whole;
    int code = once__body_digest(body, &whole);

    if (code == ONCE_OK) {
        memcpy(digest, whole.sum, sizeof(whole.sum));
    }
    return code;
}

void once_digest(const once_slice_t *bodies, size_t count, uint8_t (*digests)[ONCE_DIGEST_SIZE])
{
    once__sha256_many(bodies, count, digests);
}

static const char *const mode_names[] = {
    [ONCE_BODY_MODE_NONE] = "none",
    [ONCE_BODY_MODE_EXACT] = "exact",
    [ONCE_BODY_MODE_JSON] = "json",
    [ONCE_BODY_MODE_MULTIPART] = "multipart",
};

const char *once_body_mode_name(once_body_mode_t mode)
{
    return is_mode(mode) ? mode_names[mode] : "?";
}

int once_body_mode_parse(const char *text)
{
    for (int i = 0; i < (int)(sizeof(mode_names) / sizeof(mode_names[0])); i++) {
        if (strcmp(text, mode_names[i]) == 0) {
            return i;
        }
    }
    return -1;
}
