/* JSON pointers (RFC 6901): how templates name parts of a payload. */
#ifndef EXAMPLES_NOTIFY_POINTER_H
#define EXAMPLES_NOTIFY_POINTER_H

#include <jansson.h>

/* 1: begins with a slash, and each ~ is followed by 0 or 1. */
int pointer_valid(const char *pointer);

/* What it points to, borrowed from `document`; NULL when there is no such thing. */
json_t *pointer_find(json_t *document, const char *pointer);

#endif
