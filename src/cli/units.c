#include "cli/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/units.h"

int once__cli_read_time(const char *text, uint64_t *unix_ms)
{
    struct tm parts = {0};
    const char *end;
    uint64_t seconds;
    time_t when;

    if (once__number_parse(text, strlen(text), &seconds) == 0 && seconds <= UINT64_MAX / 1000) {
        *unix_ms = seconds * 1000;
        return 0;
    }
    end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    if (end == NULL || *end != '\0') {
        return -1;
    }
    when = timegm(&parts);
    if (when < 0) {
        return -1;
    }
    *unix_ms = (uint64_t)when * 1000;
    return 0;
}

/* A number of the greater unit and the rest in the smaller one, which is left out when there is none. */
static once__cli_unit_text_t two_units(uint64_t s, uint64_t factor, char great, uint64_t part,
                                       char small)
{
    once__cli_unit_text_t out;
    uint64_t rest = s % factor / part;

    if (rest == 0) {
        snprintf(out.text, sizeof(out.text), "%" PRIu64 "%c", s / factor, great);
    } else {
        snprintf(out.text, sizeof(out.text), "%" PRIu64 "%c %" PRIu64 "%c", s / factor, great, rest,
                 small);
    }
    return out;
}

once__cli_unit_text_t once__cli_duration(uint64_t ms)
{
    once__cli_unit_text_t out;
    uint64_t s = ms / 1000;

    if (s >= 86400) {
        return two_units(s, 86400, 'd', 3600, 'h');
    }
    if (s >= 3600) {
        return two_units(s, 3600, 'h', 60, 'm');
    }
    if (s >= 60) {
        return two_units(s, 60, 'm', 1, 's');
    }
    if (s >= 1) {
        snprintf(out.text, sizeof(out.text), "%" PRIu64 "s", s);
    } else {
        snprintf(out.text, sizeof(out.text), "%" PRIu64 "ms", ms);
    }
    return out;
}

once__cli_unit_text_t once__cli_size(uint64_t bytes)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    once__cli_unit_text_t out;
    double value = (double)bytes / 1024;
    size_t i = 0;

    if (bytes < 1024) {
        snprintf(out.text, sizeof(out.text), "%" PRIu64 " B", bytes);
        return out;
    }
    while (value >= 1024 && i + 1 < sizeof(names) / sizeof(names[0])) {
        value /= 1024;
        i++;
    }
    snprintf(out.text, sizeof(out.text), "%.1f %s", value, names[i]);
    return out;
}
