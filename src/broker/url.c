#include "broker/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define MESSAGE_MAX (64 * 1024 * 1024)

/* A parameter may be repeated: librdkafka takes the last value, which lets a URL override what is written before it. */
int once__broker_url_read(once__url_t *url, const char *text, char *error, size_t size)
{
    once_error_t err = {0};
    int code;

    if (strstr(text, "://") == NULL) {
        *url = (once__url_t){.memory = NULL};
        snprintf(error, size,
                 "the URL must be SCHEME://[USER:PASSWORD@]HOST[:PORT]/...[?NAME=VALUE&...]");
        return -1;
    }
    code = once__url_parse(url, "the URL", text, ONCE__URL_REPEAT, &err);
    if (code == ONCE_OK) {
        code = once__url_authority(url, &err);
    }
    if (code != ONCE_OK) {
        once__url_free(url);
        snprintf(error, size, "%s", err.text);
    }
    return code == ONCE_OK ? 0 : -1;
}

static void encode(FILE *out, const char *text)
{
    char form[3];

    for (; *text != '\0'; text++) {
        fwrite(form, 1, once__percent_encode(form, *text), out);
    }
}

static void write_url(FILE *out, const once__url_t *url, int amqp)
{
    fprintf(out, "%s://", url->scheme);
    if (url->user != NULL) {
        encode(out, url->user);
        fputc(':', out);
        encode(out, url->password != NULL ? url->password : "");
        fputc('@', out);
    }
    fprintf(out, "%s/", url->hosts);
    if (amqp) { /* the default exchange leads to the queue that the routing key names */
        fprintf(out, "%.*s/?routing_key=%%7Btopic%%7D", (int)strcspn(url->raw_path, "/"),
                url->raw_path);
    } else { /* a message from there must fit, perhaps compressed: the broker's limit decides. The user's values come later */
        fprintf(out, "?message.max.bytes=%d&compression.codec=gzip", MESSAGE_MAX);
    }
    for (size_t i = 0; i < url->param_count; i++) {
        const char *name = url->params[i].name;
        if (strcmp(name, "group") == 0 || strcmp(name, "auto.offset.reset") == 0 ||
            strcmp(name, "heartbeat") == 0) {
            continue;
        }
        fputc('&', out);
        encode(out, name);
        fputc('=', out);
        encode(out, url->params[i].value);
    }
}

char *once__broker_publish_url(const once__url_t *url)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) {
        return NULL;
    }
    write_url(out, url, strncmp(url->scheme, "amqp", 4) == 0);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
