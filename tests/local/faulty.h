/*
 * A store on a disk that fails when told to.
 */
#ifndef TESTS_LOCAL_FAULTY_H
#define TESTS_LOCAL_FAULTY_H

#include "disk.h"

#define QUERY "segment=64k&renew=off&reap=off&store_timeout=300ms"

typedef struct faulty {
    char base[PLACE_SIZE], store[PLACE_SIZE];
    disk_t disk;
    once_t *once; /* over the disk */
} faulty_t;

extern faulty_t the;

/* For cmocka: before and after each test. */
int faulty_start(void **state);
int faulty_end(void **state);

#endif
