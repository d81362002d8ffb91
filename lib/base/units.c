#include "base/units.h"

#include <string.h>

typedef struct unit {
    const char *name;
    uint64_t factor;
} unit_t;

int once__number_parse(const char *text, size_t len, uint64_t *number)
{
    uint64_t value = 0;

    if (len == 0) {
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (text[i] < '0' || text[i] > '9' || value > (UINT64_MAX - digit) / 10) {
            return -1;
        }
        value = value * 10 + digit;
    }
    *number = value;
    return 0;
}

static int parse(const char *text, const unit_t *units, size_t count, uint64_t *result)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t number;

    if (once__number_parse(text, digits, &number) != 0) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text + digits, units[i].name) == 0) {
            if (number > UINT64_MAX / units[i].factor) {
                return -1;
            }
            *result = number * units[i].factor;
            return 0;
        }
    }
    return -1;
}

int once__duration_parse(const char *text, uint64_t *ms)
{
    static const unit_t units[] = {
        {"", 1000},       {"ms", 1},          {"s", 1000},
        {"m", 60 * 1000}, {"h", 3600 * 1000}, {"d", 24 * 3600 * 1000},
    };
    return parse(text, units, sizeof(units) / sizeof(units[0]), ms);
}

int once__size_parse(const char *text, uint64_t *bytes)
{
    static const unit_t units[] = {
        {"", 1},        {"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30},
        {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30},
    };
    return parse(text, units, sizeof(units) / sizeof(units[0]), bytes);
}
