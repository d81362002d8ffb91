/*
 * once/body.h - the request body as part of the fingerprint, digested while it streams. A body is used by one thread at a time.
 */
#ifndef ONCE_BODY_H
#define ONCE_BODY_H

#include <stddef.h>
#include <stdint.h>

#include <once/error.h>
#include <once/key.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When two bodies count as the same. The numbers are stored in records and never change. */
typedef enum once_body_mode {
    ONCE_BODY_MODE_NONE = 0,      /* always: the body is ignored */
    ONCE_BODY_MODE_EXACT = 1,     /* byte for byte */
    ONCE_BODY_MODE_JSON = 2,      /* the same RFC 8785 canonical form */
    ONCE_BODY_MODE_MULTIPART = 3, /* the same parts in the same order, whatever the boundary */
} once_body_mode_t;

/*
 * JSON and multipart fall back to exact for a body that is not valid in its mode, and for JSON that is longer than
 * ONCE_BODY_JSON_MAX bytes, nested more than 64 deep, or contains duplicate names, lone surrogates or a number that a double cannot
 * hold exactly (so that 9007199254740993 and 9007199254740992 never count as the same). The same body always falls back.
 */
#define ONCE_BODY_JSON_MAX (1024 * 1024)

typedef struct once_body once_body_t;

/*
 * Creates an empty body. `content_type` is the value of the header; only multipart needs it, for the boundary, and it may be
 * empty. NULL if out of memory or for an unknown mode. Free it with once_body_free (NULL is fine).
 */
ONCE_API once_body_t *once_body_new(once_body_mode_t mode, once_slice_t content_type);
ONCE_API void once_body_free(once_body_t *body);

/* Adds the next bytes, in pieces of any size. After ONCE_E_NOMEM every use of the body fails with it. */
ONCE_API ONCE_MUST_CHECK int once_body_add(once_body_t *body, const void *data, size_t len);

/* "none", "exact", "json", "multipart", and back to the mode; -1 for any other text. */
ONCE_API const char *once_body_mode_name(once_body_mode_t mode);
ONCE_API int once_body_mode_parse(const char *text);

#ifdef __cplusplus
}
#endif
#endif
