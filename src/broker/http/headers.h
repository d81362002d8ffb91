/*
 * The headers of a webhook.
 */
#ifndef ONCE_BROKER_HTTP_HEADERS_H
#define ONCE_BROKER_HTTP_HEADERS_H

#include <curl/curl.h>

#include "broker/publish.h"
#include "broker/http/signature.h"

/* With a signature if `signer` is not NULL. To be freed with curl_slist_free_all. NULL if memory is short. */
struct curl_slist *once__http_headers(const once__broker_message_t *message,
                                      const once__http_signer_t *signer);

#endif
