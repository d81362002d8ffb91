/*
 * UUIDs from given randomness and time (RFC 9562). once_key_uuid4 and once_key_uuid7 ask the system for both.
 */
#ifndef ONCE_BASE_UUID_H
#define ONCE_BASE_UUID_H

#include <once/key.h>

/* 16 bytes as text, whatever is in them. */
void once__uuid_text(char out[ONCE_UUID_SIZE], const uint8_t bytes[16]);

/* Is the text a UUID in lower case with hyphens? 1 and its bytes, or 0. once__uuid_text gives the same text again. */
int once__uuid_read(uint8_t out[16], const char *text, size_t len);

void once__uuid4(char out[ONCE_UUID_SIZE], const uint8_t random[16]);

/*
 * A stamp is the 48 bits of milliseconds that a version 7 UUID begins with and the 12 bits after its version number, which
 * count the UUIDs of one millisecond. The other 62 bits are random.
 */
void once__uuid7(char out[ONCE_UUID_SIZE], uint64_t stamp, const uint8_t random[8]);

/* The stamp to use after `last`, always a greater one: UUIDs come in order although the clock may stand still or go back. */
uint64_t once__uuid7_next(uint64_t last, uint64_t now_ms);

#endif
