/*
 * Names, directories and dice: what the tests of the local store and the simulation have in common. Needs no test framework.
 */
#ifndef TESTS_LOCAL_FILES_H
#define TESTS_LOCAL_FILES_H

#include <stddef.h>
#include <stdint.h>

#define PLACE_SIZE 160

/* PATH/NAME */
void place_join(char out[PLACE_SIZE], const char *path, const char *name);
/* With everything in it. */
void place_remove(const char *path);

/* Ends the program with a message: for threads that are not the test's. */
void must(int holds, const char *what);

/* A number that depends on nothing but the seed. */
typedef struct dice {
    uint64_t state;
} dice_t;

uint64_t dice_roll(dice_t *dice, uint64_t sides);
void dice_fill(dice_t *dice, void *out, size_t len);

#endif
