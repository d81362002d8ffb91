#include "store/local/summariser.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/local/thread.h"

#define NICE 10 /* a segment is read for each, and nobody waits for it */

static void *make_all(void *data)
{
    once__summariser_t *summariser = data;

    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    once__summaries_make(summariser->segments_fd, summariser->index, &summariser->from,
                         &summariser->stop);
    atomic_store(&summariser->done, 1);
    return NULL;
}

void once__summariser_go(once__summariser_t *summariser)
{
    if (summariser->threadless) {
        once__summaries_make(summariser->segments_fd, summariser->index, &summariser->from,
                             &summariser->stop);
        return;
    }
    if (summariser->started && !atomic_load(&summariser->done)) {
        return;
    }
    if (summariser->started) {
        (void)pthread_join(summariser->thread, NULL);
        summariser->started = 0;
    }
    if (once__summaries_wanted(summariser->segments_fd, summariser->index, summariser->from)) {
        atomic_store(&summariser->done, 0);
        summariser->started =
            once__local_thread_start(&summariser->thread, make_all, summariser) == 0;
    }
}

void once__summariser_stop(once__summariser_t *summariser)
{
    atomic_store(&summariser->stop, 1);
    if (summariser->started) {
        (void)pthread_join(summariser->thread, NULL);
        summariser->started = 0;
    }
}
