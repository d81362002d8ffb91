#include "store/local/settings.h"

#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "store/local/log.h"

#define SEGMENT_SIZE     ((uint64_t)64 << 20)
#define SEGMENT_SIZE_MIN ((uint64_t)64 << 10)
#define SEGMENT_SIZE_MAX ((uint64_t)1 << 30)

static int take_limits(once__local_settings_t *settings, once__url_t *url, once_error_t *err)
{
    once__limits_t *limits = &settings->limits;
    uint64_t least = once__log_first_size(settings->segment_size);
    int code = once__limits_take(limits, url, err);

    if (code == ONCE_OK && limits->max_bytes != 0 && limits->max_bytes < least) {
        return once__fail(err, ONCE_E_CONFIG,
                          "max_bytes: there would be no room for the first file of the log, which "
                          "takes %lluk; raise it, or make \"segment\" smaller",
                          (unsigned long long)least >> 10);
    }
    return code;
}

int once__local_settings_take(once__local_settings_t *settings, once__url_t *url, once_error_t *err)
{
    const char *size = once__url_take(url, "segment");
    const char *durability = once__url_take(url, "durability");
    const char *filesystem = once__url_take(url, "filesystem");
    uint64_t *segment_size = &settings->segment_size;

    *settings = (once__local_settings_t){.segment_size = SEGMENT_SIZE};
    if (url->path[0] == '\0') {
        return once__fail(err, ONCE_E_CONFIG, "local store: name a directory: local:PATH");
    }
    if (size != NULL &&
        (once__size_parse(size, segment_size) != 0 || *segment_size < SEGMENT_SIZE_MIN ||
         *segment_size > SEGMENT_SIZE_MAX || *segment_size % 4096 != 0)) {
        return once__fail(err, ONCE_E_CONFIG,
                          "segment: \"%.40s\" is not a size from 64k to 1g in steps of 4k", size);
    }
    if (durability != NULL && strcmp(durability, "full") != 0 &&
        strcmp(durability, "claims-relaxed") != 0) {
        return once__fail(err, ONCE_E_CONFIG,
                          "durability: \"%.40s\" is neither full nor claims-relaxed", durability);
    }
    settings->index_directory = once__url_take(url, "index");
    if (settings->index_directory != NULL && settings->index_directory[0] != '/') {
        return once__fail(err, ONCE_E_CONFIG,
                          "index: \"%.40s\" is not the absolute path of a directory",
                          settings->index_directory);
    }
    if (filesystem != NULL && strcmp(filesystem, "any") != 0) {
        return once__fail(err, ONCE_E_CONFIG, "filesystem: \"%.40s\" is not any", filesystem);
    }
    settings->any_filesystem = filesystem != NULL;
    settings->relaxed_claims = durability != NULL && strcmp(durability, "claims-relaxed") == 0;
    return take_limits(settings, url, err);
}
