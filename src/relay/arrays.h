/*
 * Arrays as parameters of statements: binary ones for what is many, text for what is few.
 */
#ifndef ONCE_RELAY_ARRAYS_H
#define ONCE_RELAY_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

/* Oids of PostgreSQL's types; they never change. */
enum {
    ONCE__OID_INT2 = 21,
    ONCE__OID_INT8 = 20,
    ONCE__OID_TID = 27,
    ONCE__OID_UUID = 2950,
    ONCE__OID_INT2_ARRAY = 1005,
    ONCE__OID_INT8_ARRAY = 1016,
    ONCE__OID_TID_ARRAY = 1010,
    ONCE__OID_UUID_ARRAY = 2951,
};

typedef struct once__array {
    char *data;
    size_t len, room;
    uint32_t count;
    int failed; /* out of memory */
} once__array_t;

/* Begins a one-dimensional binary array of this type; the memory of an earlier use is used again. */
void once__array_start(once__array_t *array, uint32_t oid);
void once__array_put(once__array_t *array, const void *bytes, uint32_t len);
void once__array_put_int2(once__array_t *array, int16_t number);
void once__array_put_int8(once__array_t *array, int64_t number);

/* A text array "{1,2,3}"; begin, put each, end. */
void once__array_text(once__array_t *array);
void once__array_text_number(once__array_t *array, int64_t number);
void once__array_text_string(once__array_t *array, const char *text, size_t len);
const char *once__array_text_end(once__array_t *array);

void once__array_free(once__array_t *array);

/* Big-endian integers, as results have them. */
int16_t once__get_int2(const char *bytes);
int64_t once__get_int8(const char *bytes);

#endif
