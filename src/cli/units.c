#include "cli/units.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct unit {
    const char *name;
    uint64_t factor;
} unit_t;

static const unit_t durations[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0},
};
static const unit_t sizes[] = {
    {"", 1}, {"k", 1024}, {"m", 1024 * 1024}, {"g", 1024 * 1024 * 1024}, {NULL, 0},
};

/* Reads digits and then one of the units. */
static int read_unit(const char *text, const unit_t *units, uint64_t *result)
{
    const char *at = text;
    uint64_t value = 0;

    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return -1;
        }
        value = value * 10 + digit;
    }
    if (at == text) {
        return -1;
    }
    for (const unit_t *unit = units; unit->name != NULL; unit++) {
        if (strcmp(at, unit->name) == 0) {
            if (value > UINT64_MAX / unit->factor) {
                return -1;
            }
            *result = value * unit->factor;
            return 0;
        }
    }
    return -1;
}

int once__cli_read_number(const char *text, uint64_t *number)
{
    static const unit_t none[] = {{"", 1}, {NULL, 0}};

    return read_unit(text, none, number);
}

int once__cli_read_duration(const char *text, uint64_t *ms)
{
    return read_unit(text, durations, ms);
}

int once__cli_read_size(const char *text, uint64_t *bytes)
{
    return read_unit(text, sizes, bytes);
}

int once__cli_read_time(const char *text, uint64_t *unix_ms)
{
    struct tm parts = {0};
    const char *end;
    uint64_t seconds;
    time_t when;

    if (once__cli_read_number(text, &seconds) == 0 && seconds <= UINT64_MAX / 1000) {
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
