/*
 * once/body.h - the request body's part of the fingerprint, computed while the body streams.
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

/* When two bodies count as the same. The numbers are stored in records: never renumber. */
typedef enum once_body_mode {
    ONCE_BODY_MODE_NONE = 0,      /* always: the body is not looked at */
    ONCE_BODY_MODE_EXACT = 1,     /* byte for byte */
    ONCE_BODY_MODE_JSON = 2,      /* the same RFC 8785 canonical form */
    ONCE_BODY_MODE_MULTIPART = 3, /* the same parts in the same order, whatever the boundary */
} once_body_mode_t;

/*
 * JSON and multipart fall back to exact, always for the same bodies: a body that is not valid for its mode, JSON over
 * ONCE_BODY_JSON_MAX bytes or nested deeper than 64, a JSON document with duplicate names, lone surrogates, or a number that
 * a double cannot hold without loss (so that 9007199254740993 and 9007199254740992 never count as the same).
 */
#define ONCE_BODY_JSON_MAX (1024 * 1024)

typedef struct once_body once_body_t;

/*
 * A new, empty body. `content_type` is the header's value, needed for the multipart boundary only; may be empty. NULL when
 * out of memory, or for a mode that is none of these. Owned by the caller; free with once_body_free (NULL is fine).
 */
ONCE_API once_body_t *once_body_new(once_body_mode_t mode, once_slice_t content_type);
ONCE_API void once_body_free(once_body_t *body);

/* The next bytes; the pieces may be cut anywhere. ONCE_E_NOMEM: the body is unusable from then on and says so at every use. */
ONCE_API ONCE_MUST_CHECK int once_body_add(once_body_t *body, const void *data, size_t len);

/* "none", "exact", "json", "multipart" and back; -1 for anything else. */
ONCE_API const char *once_body_mode_name(once_body_mode_t mode);
ONCE_API int once_body_mode_parse(const char *text);

#ifdef __cplusplus
}
#endif
#endif
