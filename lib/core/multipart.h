/*
 * A digest of a multipart body that does not depend on its boundary.
 *
 * The boundary is the one thing that differs between two sendings of the same form: clients make a new one each time. So the
 * body is cut at its delimiters, and the digest is
 *     SHA-256 (SHA-256 of part 1 | SHA-256 of part 2 | ... | number of parts, 8 bytes little-endian)
 * where a part is every byte between two delimiters: its header lines, the empty line, its content. Nothing inside a part is
 * interpreted; the boundary of a multipart within it is part of its bytes.
 *
 * Only bodies that every reader splits the same way are digested like this (body = *part close, bytes may be anything else):
 *     part  = "--" boundary CRLF bytes CRLF      and then the next "--" boundary
 *     close = "--" boundary "--" [CRLF]
 * A preamble, an epilogue, spaces after a boundary, lines that end in LF alone, and "--" boundary anywhere else (readers differ
 * on whether such a line is a delimiter) rule this out; the body is then digested byte for byte.
 */
#ifndef ONCE_CORE_MULTIPART_H
#define ONCE_CORE_MULTIPART_H

#include "core/hmac.h"

#define ONCE__BOUNDARY_MAX     70 /* RFC 2046 */
#define ONCE__MULTIPART_BUFFER 4096

typedef struct once__multipart {
    uint8_t state;
    uint8_t dash_len; /* of "--" boundary */
    char dash_boundary[2 + ONCE__BOUNDARY_MAX];
    uint64_t parts;
    once__sha256_t total;
    once__sha256_t part;
    size_t buffered; /* bytes in the buffer: not yet known whether they are a delimiter */
    uint8_t buffer[ONCE__MULTIPART_BUFFER];
} once__multipart_t;

/*
 * Finds the boundary in a content type. Returns 0, or -1 if the type is not multipart, if it has no boundary or several, or if the
 * boundary is not 1 to ONCE__BOUNDARY_MAX characters of RFC 2046. A backslash in a quoted one is refused: readers differ on it.
 */
int once__multipart_boundary(once_slice_t content_type, char boundary[ONCE__BOUNDARY_MAX],
                             size_t *len);

void once__multipart_init(once__multipart_t *multipart, const char *boundary, size_t len);

/* Adds the next bytes; the body may be split anywhere. */
void once__multipart_add(once__multipart_t *multipart, const void *data, size_t len);

/* Returns 0 and the digest, or -1 if the bytes so far are not a whole body of the form above. More can be added afterwards. */
int once__multipart_end(const once__multipart_t *multipart, uint8_t sum[ONCE__SHA256_SIZE]);

#endif
