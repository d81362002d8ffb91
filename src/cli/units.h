/*
 * Times and amounts as people write and read them; base/units.h reads numbers with units.
 */
#ifndef ONCE_CLI_UNITS_H
#define ONCE_CLI_UNITS_H

#include <stdint.h>

/* Unix seconds, or UTC as 2031-05-17T08:30:00Z; gives milliseconds. 0 or -1. */
int once__cli_read_time(const char *text, uint64_t *unix_ms);

typedef struct once__cli_unit_text {
    char text[32];
} once__cli_unit_text_t;

/* "850ms", "12s", "5m 3s", "2h 5m", "3d 4h". */
once__cli_unit_text_t once__cli_duration(uint64_t ms);

/* "512 B", "1.2 KiB". */
once__cli_unit_text_t once__cli_size(uint64_t bytes);

#endif
