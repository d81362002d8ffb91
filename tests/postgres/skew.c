/* Preloaded: the wall clock is five minutes ahead for this process. */
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    int code;

    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    }
    code = real(clock, t);
    if (code == 0 && clock == CLOCK_REALTIME) {
        t->tv_sec += 300;
    }
    return code;
}
