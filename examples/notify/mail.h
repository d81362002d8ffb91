/* A mail as text: head and body (RFC 5322), from a rendered template. */
#ifndef EXAMPLES_NOTIFY_MAIL_H
#define EXAMPLES_NOTIFY_MAIL_H

#include <once/key.h>

typedef struct mail {
    const char *from;
    const char *to;
    const char *text; /* the subject, an empty line, the body */
    once_slice_t key; /* of its record: the Message-ID is made from it */
} mail_t;

/*
 * To be freed; NULL when out of memory. The Message-ID depends on the key alone: no server refuses a mail that it has seen before,
 * but a recipient of two copies can see that they are one.
 */
char *mail_compose(const mail_t *mail);

#endif
