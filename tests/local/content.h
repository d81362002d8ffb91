/*
 * What files hold, and what of it a power failure would leave.
 */
#ifndef TESTS_LOCAL_CONTENT_H
#define TESTS_LOCAL_CONTENT_H

#include "files.h"

#include <once/key.h>

/* All of it; free(). */
uint8_t *content_read(int fd, size_t *size);
void content_write(const char *path, const void *bytes, size_t size);

/* What of that which was not synced survives. */
typedef enum survival { SURVIVES_NOTHING, SURVIVES_EVERYTHING, SURVIVES_SOMETHING } survival_t;

/* Makes of what a file holds `now` what the disk may have: sector by sector what it held at its last sync, this, or both. */
void content_blend(uint8_t *now, size_t size, once_slice_t synced, survival_t survival,
                   dice_t *dice);

#endif
