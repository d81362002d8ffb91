/* What the HTTP servers of programs share: libmicrohttpd does the rest. */
#ifndef ONCE_SERVICE_HTTP_H
#define ONCE_SERVICE_HTTP_H

#include <microhttpd.h>
#include <sys/socket.h>

/* Reads PORT (of 127.0.0.1), IP:PORT or [IPV6]:PORT. Returns 0 or -1. */
int once__service_http_address(const char *text, struct sockaddr_storage *address);

/* Queues an answer that is not to be cached, and takes `text` over (malloc'd; NULL: memory was short, and the connection ends). */
enum MHD_Result once__service_http_answer(struct MHD_Connection *connection, unsigned status,
                                          const char *type, char *text);

#endif
