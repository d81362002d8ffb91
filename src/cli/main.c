#include "cli/cli.h"

int main(int argc, char **argv)
{
    return once_cli_main(argc, argv);
}
