/*
 * One message on its way: an SMTP dialogue or an HTTP request by libcurl. What is certain about its end matters more than whether
 * it succeeded.
 */
#ifndef EXAMPLES_NOTIFY_TRANSPORT_H
#define EXAMPLES_NOTIFY_TRANSPORT_H

#include <curl/curl.h>
#include <once/key.h>
#include <stddef.h>

#include "channel.h"

typedef struct route {
    char *url;  /* smtp:// smtps:// for mail, http:// https:// for the others */
    char *auth; /* USER:PASSWORD for mail, a bearer token for the others; NULL: none */
} route_t;

typedef struct transport {
    route_t routes[CHANNELS]; /* url NULL: the channel is off */
    const char *from;         /* of mails */
    const char *ca;           /* certificates to trust; NULL: those of the system */
    long timeout_ms;          /* of one message */
} transport_t;

typedef enum fate {
    FATE_SENT,   /* accepted by the other side */
    FATE_FAILED, /* certainly not sent, or the other side deduplicates: may be tried again at once */
    FATE_REFUSED, /* the same, and trying again will not help */
    FATE_DOUBT,   /* all of it was sent, and the answer is missing */
} fate_t;

/* A message. It stays where it is until it is freed. */
typedef struct parcel {
    channel_t channel;
    CURL *easy;
    struct curl_slist *list; /* recipients, or headers */
    char *text;              /* what goes out */
    size_t len, sent;
    int handed_over; /* libcurl has been given all of it */
    char error[CURL_ERROR_SIZE];
} parcel_t;

/* What goes with it: the key of the record, and the trace that it belongs to, "" if there is none. */
typedef struct label {
    once_slice_t key;
    const char *traceparent;
} label_t;

/* `text` is the rendered template. 0, or -1: out of memory. To be freed in both cases. */
int parcel_pack(parcel_t *parcel, const transport_t *transport, channel_t channel,
                const char *address, const char *text, const label_t *label);
void parcel_free(parcel_t *parcel);

/* What became of it; `status` is the last that the other side said, 0: nothing. */
fate_t parcel_fate(const parcel_t *parcel, CURLcode code, long *status);

/* 0: the URL can be used for the channel. Else -1 after saying on standard error what is wrong. */
int route_check(channel_t channel, const char *url);

#endif
