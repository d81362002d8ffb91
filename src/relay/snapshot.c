#include "relay/snapshot.h"

#include <stdlib.h>
#include <string.h>

uint64_t once__relay_snapshot_xmax(const char *text)
{
    const char *colon = strchr(text, ':');

    return colon != NULL ? strtoull(colon + 1, NULL, 10) : 0;
}

uint64_t once__relay_snapshot_next(const char *text, const char **at)
{
    uint64_t xid;
    char *end;

    if (*at == NULL) {
        const char *colon = strchr(text, ':');
        colon = colon != NULL ? strchr(colon + 1, ':') : NULL;
        if (colon == NULL) {
            return 0;
        }
        *at = colon + 1;
    }
    xid = strtoull(*at, &end, 10);
    if (end == *at) {
        return 0;
    }
    *at = *end == ',' ? end + 1 : end;
    return xid;
}
