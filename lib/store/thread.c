#include "store/thread.h"

#include <signal.h>

int once__spawn(pthread_t *thread, void *(*run)(void *), void *data)
{
    sigset_t all, old;
    int code;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    code = pthread_create(thread, NULL, run, data);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code;
}
