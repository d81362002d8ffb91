#include "cli/nearest.h"

#include <string.h>

#define WORD_MAX 32 /* longer ones are nobody's slip of the finger */

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* How many letters must be added, left out, changed or swapped with their neighbour. Both are at most WORD_MAX long. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned cost[WORD_MAX + 1][WORD_MAX + 1];

    for (size_t i = 0; i <= a_len; i++) {
        for (size_t j = 0; j <= b_len; j++) {
            if (i == 0 || j == 0) {
                cost[i][j] = (unsigned)(i + j);
                continue;
            }
            cost[i][j] = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = least(cost[i][j], cost[i - 1][j] + 1);
            cost[i][j] = least(cost[i][j], cost[i][j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
            }
        }
    }
    return cost[a_len][b_len];
}

void once__cli_nearest_start(once__cli_nearest_t *nearest, const char *word)
{
    nearest->word = word;
    nearest->best = NULL;
    nearest->best_len = 0;
    /* A third of the letters may be wrong, at least one. */
    nearest->distance = (unsigned)(strnlen(word, WORD_MAX) / 3 + 1);
    if (nearest->distance < 2) {
        nearest->distance = 2;
    }
}

void once__cli_nearest_try(once__cli_nearest_t *nearest, const char *candidate, size_t len)
{
    size_t word_len = strlen(nearest->word);
    unsigned d;

    if (word_len > WORD_MAX || len > WORD_MAX) {
        return;
    }
    d = distance(nearest->word, word_len, candidate, len);
    if (d < nearest->distance) {
        nearest->best = candidate;
        nearest->best_len = (int)len;
        nearest->distance = d;
    }
}
