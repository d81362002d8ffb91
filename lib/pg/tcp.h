/*
 * How long a host may be silent before TCP ends its connections, unless the URL says otherwise.
 *
 * A connection that waits for a commit is kept until the server answers. If the host is gone without a word (a power cut, an
 * address that moved to another machine), nobody but TCP can tell: within about 10 seconds. Sockets in the file system ignore
 * these.
 */
#ifndef ONCE_PG_TCP_H
#define ONCE_PG_TCP_H

/* libpq's parameters: X(keyword, value). Put them before the URL's, which then take precedence. */
#define ONCE__PG_TCP(X)                                                                            \
    X("keepalives_idle", "5")                                                                      \
    X("keepalives_interval", "2")                                                                  \
    X("keepalives_count", "3")                                                                     \
    X("tcp_user_timeout", "10000")

#define ONCE__PG_TCP_COUNT 4

#endif
