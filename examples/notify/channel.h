/*
 * The ways by which a user is notified. Each has a scope of its own in the store, so that one that fails does not repeat the
 * others.
 */
#ifndef EXAMPLES_NOTIFY_CHANNEL_H
#define EXAMPLES_NOTIFY_CHANNEL_H

typedef enum channel {
    CHANNEL_MAIL,
    CHANNEL_SMS,
    CHANNEL_PUSH,
    CHANNELS,
} channel_t;

/* "mail", "sms", "push": the scope of the channel's records, the file of its template, the member of a user's data. */
const char *channel_name(channel_t channel);

#endif
