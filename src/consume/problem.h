/* What a handler says about its refusal (RFC 9457, application/problem+json). */
#ifndef ONCE_CONSUME_PROBLEM_H
#define ONCE_CONSUME_PROBLEM_H

#include <stddef.h>

#define ONCE__CONSUME_PROBLEM_MAX 4096 /* bytes of an answer that are looked at */

/* The member `detail`, else `title`, as one line of printable ASCII, cut to `size` with the terminator; "" when there is none. */
void once__consume_problem_words(const char *body, size_t len, char *out, size_t size);

#endif
