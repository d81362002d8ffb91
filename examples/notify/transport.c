#include "transport.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mail.h"

/* Passwords, tokens and texts of users go over the wire in the clear only to this machine. */
static int on_this_machine(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "[::1]") == 0;
}

static int scheme_is(const char *url, const char *scheme)
{
    return strncmp(url, scheme, strlen(scheme)) == 0;
}

static int local(const char *url)
{
    CURLU *parts = curl_url();
    char *host = NULL;
    int found = parts != NULL && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK && on_this_machine(host);

    curl_free(host);
    curl_url_cleanup(parts);
    return found;
}

int route_check(channel_t channel, const char *url)
{
    int mail = channel == CHANNEL_MAIL;
    const char *name = channel_name(channel);

    if (!scheme_is(url, mail ? "smtp://" : "http://") &&
        !scheme_is(url, mail ? "smtps://" : "https://")) {
        fprintf(stderr, "notify: --%s-url wants %s\n", name,
                mail ? "smtp://HOST:PORT or smtps://HOST:PORT"
                     : "http://HOST:PORT/PATH or https://...");
        return -1;
    }
    if (!mail && scheme_is(url, "http://") && !local(url)) {
        fprintf(stderr,
                "notify: --%s-url: http:// only to this machine; others are reached by https://\n",
                name);
        return -1;
    }
    return 0;
}

static size_t read_text(char *out, size_t size, size_t count, void *data)
{
    parcel_t *parcel = data;
    size_t left = parcel->len - parcel->sent, n = size * count < left ? size * count : left;

    memcpy(out, parcel->text + parcel->sent, n);
    parcel->sent += n;
    parcel->handed_over = parcel->sent == parcel->len;
    return n;
}

static size_t ignore(char *bytes, size_t size, size_t count, void *data)
{
    (void)bytes;
    (void)data;
    return size * count;
}

static void pack_mail(parcel_t *parcel, const transport_t *transport, const char *to)
{
    const route_t *route = &transport->routes[CHANNEL_MAIL];

    parcel->list = curl_slist_append(NULL, to);
    curl_easy_setopt(parcel->easy, CURLOPT_MAIL_FROM, transport->from);
    curl_easy_setopt(parcel->easy, CURLOPT_MAIL_RCPT, parcel->list);
    curl_easy_setopt(parcel->easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(parcel->easy, CURLOPT_READFUNCTION, read_text);
    curl_easy_setopt(parcel->easy, CURLOPT_READDATA, parcel);
    curl_easy_setopt(parcel->easy, CURLOPT_USE_SSL,
                     (long)(local(route->url) ? CURLUSESSL_TRY : CURLUSESSL_ALL));
    if (route->auth != NULL) {
        curl_easy_setopt(parcel->easy, CURLOPT_USERPWD, route->auth);
    }
}

/* The key for the provider is derived from ours: the same whenever this message is sent, and another for every channel. */
static int pack_post(parcel_t *parcel, const route_t *route, const label_t *label)
{
    const char *step = channel_name(parcel->channel);
    char header[64 + ONCE_KEY_MAX];
    once_key_t derived;

    if (once_key_derive(label->key, (once_slice_t){step, strlen(step)}, &derived, NULL) !=
        ONCE_OK) {
        return -1;
    }
    snprintf(header, sizeof(header), "Idempotency-Key: \"%s\"", derived.text);
    parcel->list = curl_slist_append(NULL, header);
    parcel->list = curl_slist_append(parcel->list, "Content-Type: application/json");
    if (label->traceparent[0] != '\0') {
        snprintf(header, sizeof(header), "traceparent: %s", label->traceparent);
        parcel->list = curl_slist_append(parcel->list, header);
    }
    if (route->auth != NULL) {
        curl_easy_setopt(parcel->easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(parcel->easy, CURLOPT_XOAUTH2_BEARER, route->auth);
    }
    curl_easy_setopt(parcel->easy, CURLOPT_HTTPHEADER, parcel->list);
    curl_easy_setopt(parcel->easy, CURLOPT_POSTFIELDSIZE, (long)parcel->len);
    curl_easy_setopt(parcel->easy, CURLOPT_POSTFIELDS, parcel->text);
    return 0;
}

static char *compose(const transport_t *transport, channel_t channel, const char *address,
                     const char *text, once_slice_t key)
{
    mail_t mail = {.from = transport->from, .to = address, .text = text, .key = key};
    json_t *post;
    char *result;

    if (channel == CHANNEL_MAIL) {
        return mail_compose(&mail);
    }
    post = json_pack("{s:s, s:s}", "to", address, "text", text);
    result = json_dumps(post, JSON_COMPACT);
    json_decref(post);
    return result;
}

int parcel_pack(parcel_t *parcel, const transport_t *transport, channel_t channel,
                const char *address, const char *text, const label_t *label)
{
    const route_t *route = &transport->routes[channel];

    *parcel = (parcel_t){.channel = channel, .easy = curl_easy_init()};
    parcel->text = compose(transport, channel, address, text, label->key);
    if (parcel->easy == NULL || parcel->text == NULL) {
        return -1;
    }
    parcel->len = strlen(parcel->text);
    curl_easy_setopt(parcel->easy, CURLOPT_URL, route->url);
    curl_easy_setopt(parcel->easy, CURLOPT_PRIVATE, parcel);
    curl_easy_setopt(parcel->easy, CURLOPT_ERRORBUFFER, parcel->error);
    curl_easy_setopt(parcel->easy, CURLOPT_NOSIGNAL, 1L);
    if (local(route->url)) {
        curl_easy_setopt(parcel->easy, CURLOPT_NOPROXY, "*");
    }
    curl_easy_setopt(parcel->easy, CURLOPT_TIMEOUT_MS, transport->timeout_ms);
    curl_easy_setopt(parcel->easy, CURLOPT_WRITEFUNCTION, ignore);
    if (transport->ca != NULL) {
        curl_easy_setopt(parcel->easy, CURLOPT_CAINFO, transport->ca);
    }
    if (channel == CHANNEL_MAIL) {
        pack_mail(parcel, transport, address);
        return parcel->list != NULL ? 0 : -1;
    }
    return pack_post(parcel, route, label);
}

void parcel_free(parcel_t *parcel)
{
    curl_easy_cleanup(parcel->easy);
    curl_slist_free_all(parcel->list);
    free(parcel->text);
}

/* A mail server that has the whole text and did not say no may have taken it. */
static fate_t fate_of_mail(const parcel_t *parcel, CURLcode code, long status)
{
    if (code == CURLE_OK) {
        return FATE_SENT;
    }
    if (status >= 400) {
        return status >= 500 && code != CURLE_LOGIN_DENIED ? FATE_REFUSED : FATE_FAILED;
    }
    return parcel->handed_over ? FATE_DOUBT : FATE_FAILED;
}

/* A provider deduplicates by the key: whatever happened, sending it once more is no second message. */
static fate_t fate_of_post(CURLcode code, long status)
{
    if (code != CURLE_OK || status >= 500 || status == 401 || status == 403 || status == 408 ||
        status == 409 || status == 425 || status == 429) {
        return FATE_FAILED;
    }
    return status >= 200 && status < 300 ? FATE_SENT : FATE_REFUSED;
}

fate_t parcel_fate(const parcel_t *parcel, CURLcode code, long *status)
{
    *status = 0;
    curl_easy_getinfo(parcel->easy, CURLINFO_RESPONSE_CODE, status);
    return parcel->channel == CHANNEL_MAIL ? fate_of_mail(parcel, code, *status)
                                           : fate_of_post(code, *status);
}
