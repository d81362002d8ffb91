#include "times.h"

#include <stdlib.h>

#include "wire.h"

void times_add(times_t *times, double value)
{
    if (times->count == times->room) {
        times->room = times->room == 0 ? 65536 : times->room * 2;
        times->values = realloc(times->values, times->room * sizeof(*times->values));
        if (times->values == NULL) {
            wire_die("times");
        }
    }
    times->values[times->count++] = (float)value;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

double times_percentile(times_t *times, double percent)
{
    if (times->count == 0) {
        return 0;
    }
    qsort(times->values, times->count, sizeof(*times->values), ascending);
    return (double)times->values[(size_t)((double)(times->count - 1) * percent / 100)];
}

void times_free(times_t *times)
{
    free(times->values);
    *times = (times_t){0};
}
