/*
 * Allocation failures on demand. Programs that use it are linked with --wrap for malloc, calloc, realloc and strdup.
 */
#ifndef TESTS_SUPPORT_MEMORY_H
#define TESTS_SUPPORT_MEMORY_H

/* The n-th allocation from now on fails, and only that one; 0: none. */
void memory_fail_at(unsigned n);

/* Did it come to that? */
int memory_failed(void);

#endif
