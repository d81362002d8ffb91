/*
 * System calls that change something, counted: a process can be killed before any of them. For programs that are linked with
 * --wrap for each (CMakeLists.txt).
 */
#ifndef TESTS_CLI_STEPS_H
#define TESTS_CLI_STEPS_H

#define STEPS_KILLED 9 /* exit code */

/* The process ends before its `steps_left`-th call; -1: never. */
extern int steps_left;

/* Called once, between giving up the exclusive lock of a directory and getting a shared one; NULL: nothing. */
extern void (*steps_between_locks)(void *data);
extern void *steps_data;

#endif
