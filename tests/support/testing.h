/* cmocka with the headers that it needs before it. */
#ifndef TESTS_SUPPORT_TESTING_H
#define TESTS_SUPPORT_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/*
 * Skips the test because the machine lacks something. In CI (CI=true) it fails instead: ctest reports a program with skipped
 * tests as passed. Use this, never skip().
 */
#define skip_without(what)                                                                         \
    do {                                                                                           \
        const char *ci_ = getenv("CI");                                                            \
                                                                                                   \
        if (ci_ != NULL && strcmp(ci_, "true") == 0) {                                             \
            fail_msg("%s is missing; in CI no test is skipped", what);                             \
        }                                                                                          \
        print_message("skipped: %s is missing\n", what);                                           \
        skip();                                                                                    \
    } while (0)

#endif
