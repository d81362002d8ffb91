#include "files.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(int holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "FATAL: %s (%s)\n", what, strerror(errno));
        abort();
    }
}

void place_join(char out[PLACE_SIZE], const char *path, const char *name)
{
    must(snprintf(out, PLACE_SIZE, "%s/%s", path, name) < PLACE_SIZE, "a long name");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    return remove(path);
}

void place_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

uint64_t dice_roll(dice_t *dice, uint64_t sides)
{
    uint64_t n;

    dice->state += 0x9e3779b97f4a7c15u;
    n = dice->state;
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    n ^= n >> 31;
    return sides == 0 ? 0 : n % sides;
}

void dice_fill(dice_t *dice, void *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        ((uint8_t *)out)[i] = (uint8_t)dice_roll(dice, 256);
    }
}
