/*
 * Numbers with units, as people write them.
 */
#ifndef ONCE_BASE_UNITS_H
#define ONCE_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* "500ms", "30s", "5m", "24h", "7d"; a bare number is seconds. 0, or -1 when it is not that or overflows. */
int once__duration_parse(const char *text, uint64_t *ms);

/* "512", "64k", "16m", "1g" (powers of 1024, either case). 0 or -1. */
int once__size_parse(const char *text, uint64_t *bytes);

/* A whole decimal number without sign or spaces. 0 or -1. */
int once__number_parse(const char *text, size_t len, uint64_t *number);

/* Milliseconds of Unix time as ISO 8601 in UTC: 2026-11-16T14:03:26.123Z. Beyond the year 9999 it is that year's last. */
#define ONCE__TIME_SIZE 25
void once__time_format(char out[ONCE__TIME_SIZE], uint64_t ms);

#endif
