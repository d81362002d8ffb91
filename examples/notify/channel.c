#include "channel.h"

const char *channel_name(channel_t channel)
{
    static const char *const names[CHANNELS] = {"mail", "sms", "push"};

    return names[channel];
}
