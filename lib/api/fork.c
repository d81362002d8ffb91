/*
 * Notices that we are in a child of fork(): a counter that the child's copy of the process increments. Cheaper than asking for
 * the process id at every call.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "api/handle.h"

static atomic_uint generation = 1;
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    atomic_fetch_add(&generation, 1);
}

static void register_handler(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

unsigned once__generation(void)
{
    (void)pthread_once(&registered, register_handler);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}
