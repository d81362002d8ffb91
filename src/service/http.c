#include "service/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum MHD_Result once__service_http_answer(struct MHD_Connection *connection, unsigned status,
                                          const char *type, char *text)
{
    struct MHD_Response *response =
        text != NULL ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE)
                     : NULL;
    enum MHD_Result result;

    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

int once__service_http_address(const char *text, struct sockaddr_storage *address)
{
    const char *colon = strrchr(text, ':');
    const char *port_text = colon != NULL ? colon + 1 : text;
    char host[64] = "127.0.0.1", *end;
    size_t len = colon != NULL ? (size_t)(colon - text) : 0;
    unsigned long port = strtoul(port_text, &end, 10);
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

    memset(address, 0, sizeof(*address));
    if (*port_text < '0' || *port_text > '9' || *end != '\0' || port > 65535 ||
        len >= sizeof(host)) {
        return -1;
    }
    if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
        memcpy(host, text + 1, len - 2);
        host[len - 2] = '\0';
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 ? 0 : -1;
    }
    if (colon != NULL) {
        memcpy(host, text, len);
        host[len] = '\0';
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? 0 : -1;
}
