/*
 * The suite on the memory store, as ctest runs it: in parts, each a process, because mostly it waits for leases to end.
 *
 *   memory [FILTER]
 */
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/conformance.h"

#define PARTS 4

static int run_part(const char *filter, unsigned part)
{
    once_conformance_options_t options = ONCE_CONFORMANCE_INIT;

    options.out = stdout;
    options.filter = filter;
    options.part = part;
    options.parts = PARTS;
    return once_conformance_run("memory:", &options) != 0;
}

int main(int argc, char **argv)
{
    int failed = 0;

    for (unsigned part = 0; part < PARTS; part++) {
        if (fork() == 0) {
            _exit(run_part(argc > 1 ? argv[1] : NULL, part));
        }
    }
    for (unsigned part = 0; part < PARTS; part++) {
        int status = 1;

        failed |= wait(&status) < 0 || status != 0;
    }
    return failed;
}
