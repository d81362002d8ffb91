/*
 * What is answered to a request: a status, headers and a body. Also what is recorded, byte for byte, so that a repeated request
 * gets the same.
 */
#ifndef EXAMPLES_BANK_ANSWER_H
#define EXAMPLES_BANK_ANSWER_H

#include <stddef.h>

#include <jansson.h>

#define ANSWER_HEADERS_MAX 16

typedef struct answer {
    int status;
    size_t header_count;
    struct {
        char *name;
        char *value;
    } headers[ANSWER_HEADERS_MAX];
    char *body; /* terminated; NULL: none */
    size_t body_len;
} answer_t;

/* Frees what it holds: it is then as one that was zeroed. */
void answer_clear(answer_t *answer);

/* Adds a header; more than ANSWER_HEADERS_MAX are left out. */
void answer_header(answer_t *answer, const char *name, const char *value);
void answer_header_bytes(answer_t *answer, const char *name, size_t name_len, const char *value,
                         size_t value_len);

/* Clears it, and makes it these bytes. */
void answer_bytes(answer_t *answer, int status, const char *type, const char *body, size_t len);

/* Clears it, and makes it a JSON text. Takes the reference to `json`. */
void answer_json(answer_t *answer, int status, const char *type, json_t *json);

/*
 * Clears it, and makes it a problem (RFC 9457) of the type urn:bank:problem:NAME. `detail` is for people and must hold nothing that
 * changes from one try to the next.
 */
void answer_problem(answer_t *answer, int status, const char *name, const char *detail);

/*
 * The same for what a client may repeat: `outcome` tells a gateway what became of the request (`retry`: nothing happened,
 * `unknown`: nobody knows), `after_s` tells the client when to come again.
 */
void answer_later(answer_t *answer, int status, const char *name, const char *detail,
                  const char *outcome, unsigned after_s);

#endif
