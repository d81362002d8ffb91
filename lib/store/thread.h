/*
 * Threads of a store.
 */
#ifndef ONCE_STORE_THREAD_H
#define ONCE_STORE_THREAD_H

#include <pthread.h>

/* The host's signals are the host's: a thread of ours takes none. 0, or an errno. */
int once__spawn(pthread_t *thread, void *(*run)(void *), void *data);

#endif
