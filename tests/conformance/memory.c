/* The suite on the memory store, as ctest runs it. */
#include "conformance/conformance.h"

int main(int argc, char **argv)
{
    once_conformance_options_t options = ONCE_CONFORMANCE_INIT;

    options.out = stdout;
    options.filter = argc > 1 ? argv[1] : NULL;
    return once_conformance_run("memory:", &options) != 0;
}
