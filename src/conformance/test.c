#include "conformance/test.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Thread_local jmp_buf *once__test_exit;

/* ----------------------------------------------------------------------------------------------------------- checks */

void once__test_note(once__test_t *t, once_conformance_result_t result, const char *reason)
{
    (void)pthread_mutex_lock(&t->lock);
    if (t->result == ONCE_CONFORMANCE_PASSED) {
        t->result = result;
        (void)snprintf(t->reason, sizeof(t->reason), "%s", reason);
    }
    (void)pthread_mutex_unlock(&t->lock);
}

int once__test_is_over(once__test_t *t)
{
    int over;

    (void)pthread_mutex_lock(&t->lock);
    over = t->result != ONCE_CONFORMANCE_PASSED;
    (void)pthread_mutex_unlock(&t->lock);
    return over;
}

void once__test_leave(void)
{
    longjmp(*once__test_exit, 1);
}

void once__test_fail(once__test_t *t, const char *file, int line, const char *format, ...)
{
    const char *slash = strrchr(file, '/');
    char reason[ONCE__REASON_SIZE];
    va_list args;
    int len = snprintf(reason, sizeof(reason), "%s:%d: ", slash != NULL ? slash + 1 : file, line);

    va_start(args, format);
    (void)vsnprintf(reason + len, sizeof(reason) - (size_t)len, format, args);
    va_end(args);
    once__test_note(t, ONCE_CONFORMANCE_FAILED, reason);
    once__test_leave();
}

void once__test_not_applicable(once__test_t *t, const char *format, ...)
{
    char reason[ONCE__REASON_SIZE];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    once__test_note(t, ONCE_CONFORMANCE_NOT_APPLICABLE, reason);
    once__test_leave();
}

static const char *answer_name(int answer)
{
    return answer > 0 ? once_outcome_name((once_outcome_t)answer) : once_error_name(answer);
}

void once__test_expect(once__test_t *t, const char *file, int line, const char *call, int want,
                       int got)
{
    if (got != want) {
        once__test_fail(t, file, line, "%s answered %s, not %s", call, answer_name(got),
                        answer_name(want));
    }
}

/* --------------------------------------------------------------------------------------------------------- the run */

unsigned once__test_threads(const once__test_t *t)
{
    return t->run->options.threads;
}

unsigned once__test_processes(const once__test_t *t)
{
    return t->run->options.processes;
}

int once__test_exclusive(const once__test_t *t)
{
    return t->run->options.exclusive;
}

int once__test_counts_expired(const once__test_t *t)
{
    return t->run->options.exclusive && !t->run->expires_by_itself;
}

int once__test_real_time(const once__test_t *t)
{
    return t->run->options.wait == NULL;
}

void once__test_wait(once__test_t *t, uint64_t ms)
{
    const once_conformance_options_t *options = &t->run->options;
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

    if (options->wait != NULL) {
        options->wait(ms, options->data);
        return;
    }
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* splitmix64: a few lines, and the same sequence everywhere. */
uint64_t once__test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t once__test_seed(const once__test_t *t, unsigned number)
{
    uint64_t state = t->run->seed + number;

    for (const char *c = t->which->name; *c != '\0'; c++) {
        state = once__test_random(&state) ^ (unsigned char)*c;
    }
    return once__test_random(&state);
}

/* ------------------------------------------------------------------------------------------------------ a test's life */

void *once__test_alloc(once__test_t *t, size_t size)
{
    struct once__memory *memory = calloc(1, sizeof(*memory) + size);

    if (memory == NULL) {
        FAIL("out of memory");
    }
    (void)pthread_mutex_lock(&t->lock);
    memory->next = t->memory;
    t->memory = memory;
    (void)pthread_mutex_unlock(&t->lock);
    return memory->bytes;
}

void once__test_made(once__test_t *t, const uint8_t id[ONCE_ID_SIZE])
{
    (void)pthread_mutex_lock(&t->lock);
    if (t->made_count ==
        t->made_room) { /* not once__grow(): the suite uses nothing of the library but its public headers */
        size_t room = t->made_room == 0 ? 16 : 2 * t->made_room;
        uint8_t(*made)[ONCE_ID_SIZE] = realloc(t->made, room * ONCE_ID_SIZE);
        if (made != NULL) {
            t->made = made;
            t->made_room = room;
        }
    }
    if (t->made_count < t->made_room) {
        memcpy(t->made[t->made_count++], id, ONCE_ID_SIZE);
    }
    (void)pthread_mutex_unlock(&t->lock);
}

/* What is left behind is no failure: a store that cannot remove is found by the tests of removal. */
static void remove_records(const once__test_t *t)
{
    once_t *once = NULL;

    if (t->made_count == 0 || once__run_open(t->run, "", &once, NULL) != ONCE_OK) {
        return;
    }
    for (size_t i = 0; i < t->made_count; i++) {
        once_answer_t *answer = NULL;
        char token[ONCE_TOKEN_SIZE];
        if (once_record_get_sync(once, t->made[i], &answer) != ONCE_OK) {
            continue;
        }
        once_record_token(once_answer_record(answer), token);
        once_answer_free(answer);
        if (once_record_purge_sync(once, token, 1, NULL) != ONCE_OK) {
            break;
        }
    }
    (void)once_close(once, 1000);
}

static int start_test(once__test_t *t, const once__run_t *run, const once__case_t *which)
{
    memset(t, 0, sizeof(*t));
    t->run = run;
    t->which = which;
    if (once_key_uuid4(t->scope) != ONCE_OK) {
        return ONCE_E_IO;
    }
    return pthread_mutex_init(&t->lock, NULL) == 0 ? ONCE_OK : ONCE_E_NOMEM;
}

static void end_test(once__test_t *t)
{
    once__process_kill_all(t);
    while (t->peers != NULL) {
        once__peer_close(t->peers);
    }
    remove_records(t);
    while (t->memory != NULL) {
        struct once__memory *next = t->memory->next;
        free(t->memory);
        t->memory = next;
    }
    free(t->made);
    (void)pthread_mutex_destroy(&t->lock);
}

static void run_body(once__test_t *t)
{
    jmp_buf place;

    once__test_exit = &place;
    if (setjmp(place) == 0) {
        t->which->body(t);
    }
    once__test_exit = NULL;
}

int once__test_run(const once__run_t *run, const once__case_t *which,
                   once_conformance_result_t *result, char reason[ONCE__REASON_SIZE], int *late)
{
    once__test_t t;
    int code = start_test(&t, run, which);

    if (code != ONCE_OK) {
        return code;
    }
    run_body(&t);
    *result = t.result;
    *late = t.late;
    memcpy(reason, t.reason, ONCE__REASON_SIZE);
    end_test(&t);
    return ONCE_OK;
}
