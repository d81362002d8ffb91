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

static void put_digits(char *out, uint64_t number, int count)
{
    while (count-- > 0) {
        out[count] = (char)('0' + number % 10);
        number /= 10;
    }
}

static int is_leap(uint64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

void once__time_format(char out[ONCE__TIME_SIZE], uint64_t ms)
{
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const uint64_t last = 253402300799999; /* 9999-12-31T23:59:59.999Z */
    uint64_t time = ms < last ? ms : last, days = time / 86400000, year = 1970;
    uint64_t month = 0, length;

    for (; days >= (uint64_t)(is_leap(year) ? 366 : 365); year++) {
        days -= is_leap(year) ? 366 : 365;
    }
    for (; length = lengths[month] + (month == 1 && is_leap(year) ? 1u : 0u), days >= length;
         month++) {
        days -= length;
    }
    memcpy(out, "0000-00-00T00:00:00.000Z", ONCE__TIME_SIZE);
    put_digits(out, year, 4);
    put_digits(out + 5, month + 1, 2);
    put_digits(out + 8, days + 1, 2);
    put_digits(out + 11, time / 3600000 % 24, 2);
    put_digits(out + 14, time / 60000 % 60, 2);
    put_digits(out + 17, time / 1000 % 60, 2);
    put_digits(out + 20, time % 1000, 3);
}
