#include "broker/url.h"

#include <stdio.h>

/* A parameter may be repeated: librdkafka takes the last value, which lets a URL override what is written before it. */
int once__broker_url_read(once__url_t *url, const char *text, char *error, size_t size)
{
    once_error_t err = {0};
    int code = once__url_parse(url, "the URL", text, ONCE__URL_REPEAT, &err);

    if (code == ONCE_OK) {
        code = once__url_authority(url, &err);
    }
    if (code != ONCE_OK) {
        once__url_free(url);
        snprintf(error, size, "%s", err.text);
    }
    return code == ONCE_OK ? 0 : -1;
}
