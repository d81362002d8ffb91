/*
 * Makes completed records as a gateway does, for measuring how many bytes a store needs for one: a key of 36 bytes, a response of
 * 400 bytes of similar JSON with one header, or without its body.
 *
 *   bench_bytes URL RECORDS [FIRST [light]]     keys number FIRST (0) and on
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local/load.h"

int main(int argc, char **argv)
{
    load_t load = {.kind = LOAD_SIMILAR};
    once_error_t err;

    if (argc < 3) {
        (void)fprintf(stderr, "usage: bench_bytes URL RECORDS [FIRST [light]]\n");
        return 2;
    }
    load.next = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    load.bodies = load.next;
    load.light = argc > 4 && strcmp(argv[4], "light") == 0;
    if (once_open(argv[1], NULL, &load.once, &err) != ONCE_OK) {
        (void)fprintf(stderr, "bench_bytes: %s\n", err.text);
        return 1;
    }
    load_run(&load, strtoull(argv[2], NULL, 10), 64);
    load_close(&load);
    return 0;
}
