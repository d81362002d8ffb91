/* The command line. */
#ifndef EXAMPLES_NOTIFY_OPTIONS_H
#define EXAMPLES_NOTIFY_OPTIONS_H

#include "transport.h"

typedef struct options {
    const char *listen, *store, *ttl, *lease, *mail;
    const char *templates, *users;
    transport_t transport; /* its texts are freed by options_free */
} options_t;

/* 0: go on. 1: --help was asked for and given. -1: wrong, and said why on standard error. To be freed in every case. */
int options_read(options_t *options, int argc, char **argv);
void options_free(options_t *options);

#endif
