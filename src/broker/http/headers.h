/*
 * The headers of a webhook.
 */
#ifndef ONCE_BROKER_HTTP_HEADERS_H
#define ONCE_BROKER_HTTP_HEADERS_H

#include <curl/curl.h>

#include "broker/publish.h"
#include "broker/http/signature.h"

/* With a signature where `signer` is not NULL. Free with curl_slist_free_all. NULL: out of memory. */
struct curl_slist *once__http_headers(const once__broker_message_t *message,
                                      const once__http_signer_t *signer);

#endif
