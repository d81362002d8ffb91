#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#define ANSWER_MAX 65536

typedef struct reply {
    char *bytes;
    size_t len;
} reply_t;

int provider_init(void)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : -1;
}

static size_t receive(char *bytes, size_t size, size_t count, void *data)
{
    reply_t *reply = data;
    size_t len = size * count;
    char *more = reply->len + len <= ANSWER_MAX ? realloc(reply->bytes, reply->len + len) : NULL;

    if (more == NULL) {
        return 0;
    }
    memcpy(more + reply->len, bytes, len);
    reply->bytes = more;
    reply->len += len;
    return len;
}

/* The status, or 0: there was no whole answer. */
static long ask(const bank_t *bank, const char *key, const char *body, reply_t *reply)
{
    char header[ONCE_KEY_TEXT_SIZE + 32];
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = NULL;
    long status = 0;

    if (curl == NULL) {
        return 0;
    }
    snprintf(header, sizeof(header), "Idempotency-Key: %s", key);
    headers = curl_slist_append(headers, header);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:");
    curl_easy_setopt(curl, CURLOPT_URL, bank->provider);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)bank->provider_timeout_ms);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
    if (curl_easy_perform(curl) != CURLE_OK ||
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status) != CURLE_OK) {
        status = 0;
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

/*
 * "Never": only these words, and only in JSON, as the provider speaks. A page of some proxy, or the 404 of an address that is wrong
 * for a while, says nothing about a payment that may have been made before; the amount must not be given back for it.
 */
static int refuses(long status, const json_t *parsed)
{
    return (status == 400 || status == 402 || status == 422) && json_is_object(parsed);
}

provider_end_t provider_pay(const bank_t *bank, const char *key, const char *destination,
                            const char *amount, const char *currency, char id[FIELDS_TEXT_SIZE])
{
    json_t *wish = json_pack("{s:s, s:s, s:s}", "destination", destination, "amount", amount,
                             "currency", currency);
    char *body = json_dumps(wish, JSON_COMPACT);
    reply_t reply = {NULL, 0};
    long status = body != NULL ? ask(bank, key, body, &reply) : 0;
    json_t *parsed = json_loadb(reply.len > 0 ? reply.bytes : "", reply.len, 0, NULL);
    const char *name = json_string_value(json_object_get(parsed, "id"));
    provider_end_t end = PROVIDER_UNKNOWN;

    if (status >= 200 && status < 300 && name != NULL && strlen(name) < FIELDS_TEXT_SIZE) {
        memcpy(id, name, strlen(name) + 1);
        end = PROVIDER_PAID;
    } else if (refuses(status, parsed)) {
        end = PROVIDER_REFUSED;
    }
    json_decref(parsed);
    json_decref(wish);
    free(body);
    free(reply.bytes);
    return end;
}
