#include "broker/dead_letter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const names[ONCE__BROKER_DEAD_LETTER_HEADERS] = {
    ONCE__BROKER_DEAD_LETTER_REASON,  ONCE__BROKER_DEAD_LETTER_STATUS,
    ONCE__BROKER_DEAD_LETTER_DETAIL,  ONCE__BROKER_DEAD_LETTER_ID,
    ONCE__BROKER_DEAD_LETTER_TRIES,   ONCE__BROKER_DEAD_LETTER_SOURCE,
    ONCE__BROKER_DEAD_LETTER_TIME,    ONCE__BROKER_DEAD_LETTER_BYTES,
    ONCE__BROKER_DEAD_LETTER_OMITTED, ONCE__BROKER_DEAD_LETTER_SUBSCRIBER,
};

int once__broker_dead_letter_owns(once_slice_t name)
{
    for (size_t i = 0; i < ONCE__BROKER_DEAD_LETTER_HEADERS; i++) {
        if (strlen(names[i]) == name.len && strncasecmp(names[i], name.data, name.len) == 0) {
            return 1;
        }
    }
    return 0;
}

void once__broker_dead_letter_write_source(char *text, const char *topic, int32_t partition,
                                           int64_t offset)
{
    snprintf(text, ONCE__BROKER_DEAD_LETTER_SOURCE_SIZE, "%.*s/%" PRId32 "@%" PRId64,
             ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE - 1, topic, partition, offset);
}

int once__broker_dead_letter_read_source(once_slice_t source, char *topic, int32_t *partition,
                                         int64_t *offset)
{
    char text[ONCE__BROKER_DEAD_LETTER_SOURCE_SIZE], *slash, *at;

    if (source.data == NULL || source.len >= sizeof(text)) {
        return -1;
    }
    memcpy(text, source.data, source.len);
    text[source.len] = '\0';
    slash = strrchr(text, '/');
    at = slash != NULL ? strchr(slash, '@') : NULL;
    if (at == NULL || slash == text || slash - text >= ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE) {
        return -1;
    }
    *slash = '\0';
    memcpy(topic, text, (size_t)(slash - text) + 1);
    *partition = (int32_t)strtol(slash + 1, NULL, 10);
    *offset = strtoll(at + 1, NULL, 10);
    return 0;
}
