#include "backend.h"

#include "check.h"
#include "job.h"
#include "script.h"

/* What becomes of a request. */
typedef enum course {
    DOES_IT,        /* effect, response */
    DOES_IT_SLOWLY, /* the same, perhaps long after the gateway gave up */
    RESPONSE_LOST,  /* effect, and the response never arrives */
    REQUEST_LOST,   /* neither, and the gateway cannot know */
    REJECTS,        /* 4xx: an answer, no effect */
    NOT_NOW,        /* 401, 403, 429: before any effect */
    BREAKS,         /* 500, with or without an effect */
    PROXY_SAYS, /* 408, 502, 503, 504: from something in between, while the application may still run */
    SAYS_RETRY,   /* Once-Outcome: retry */
    SAYS_UNKNOWN, /* Once-Outcome: unknown */
    SAYS_FINAL,   /* Once-Outcome: final, with a 5xx */
    CONNECTION_BREAKS,
    COURSE_COUNT
} course_t;

static const unsigned weights[COURSE_COUNT] = {0, 20, 10, 8, 8, 10, 12, 12, 6, 4, 4, 8};

static void effect(void *data)
{
    job_t *job = data;

    job_close(job);
    check_effect(job->world, job->key, job->grant, job->variant, &job->response);
}

static void effect_and_respond(void *data)
{
    job_t *job = data;

    effect(job);
    world_after(job->world, job_soon(job->world), job_respond, job);
}

/* ---------------------------------------------------------------------------------------------------------- courses */

/* The effect comes after `ms`; `responds`: and then the response. */
static void act(job_t *job, uint64_t ms, int responds)
{
    if (job->key->recover == ONCE_RECOVER_TRANSACTIONAL && job->grant != NULL) {
        transaction_start(job, ms, responds);
    } else {
        world_after(job->world, ms, responds ? effect_and_respond : effect, job);
    }
}

static void answer_without_effect(job_t *job, int status, once_verdict_t said)
{
    job_close(job);
    job->says = job_response(job, status, said);
    world_after(job->world, job_soon(job->world), job_respond, job);
}

static int one_of(world_t *world, const int *statuses, unsigned count)
{
    return statuses[prng_between(&world->prng, 0, count - 1)];
}

/* A status that says nothing certain: the effect comes before it, after it, or never. */
static void answer_uncertainly(job_t *job, int status, once_verdict_t said)
{
    world_t *world = job->world;

    job->says = job_response(job, status, said);
    world_after(world, job_soon(world), job_respond, job);
    if (job_coin(world)) {
        act(job, job_coin(world) ? 1 : job_whenever(world), 0);
    } else {
        job_close(job);
    }
}

/* A complete 5xx, or the wish to be asked again: under retry it may come after the effect. Under hold a wish is true. */
static void answer_after_all(job_t *job, int status, once_verdict_t said)
{
    job->says = job_response(job, status, said);
    if (job_coin(job->world) &&
        (said != ONCE_VERDICT_RETRY || job->grant == NULL || !job->grant->held)) {
        act(job, job_soon(job->world), 1);
    } else {
        job_close(job);
        world_after(job->world, job_soon(job->world), job_respond, job);
    }
}

static void take_course(job_t *job, course_t course)
{
    static const int good[] = {200, 201, 204, 303}, bad[] = {400, 402, 409, 422},
                     early[] = {401, 403, 429}, proxy[] = {408, 502, 503, 504};
    world_t *world = job->world;

    job->response = job->says = job_response(job, one_of(world, good, 4), ONCE_VERDICT_NONE);
    switch (course) {
    case DOES_IT:
        act(job, job_soon(world), 1);
        break;
    case DOES_IT_SLOWLY:
        act(job, job_whenever(world), 1);
        break;
    case RESPONSE_LOST:
        act(job, job_coin(world) ? job_soon(world) : job_whenever(world), 0);
        break;
    case REQUEST_LOST:
        job_close(job);
        break;
    case REJECTS:
        answer_without_effect(job, one_of(world, bad, 4), ONCE_VERDICT_NONE);
        break;
    case NOT_NOW:
        if (world_is_broken(world, BROKEN_DIRTY_401)) {
            job->says = job_response(job, 401, ONCE_VERDICT_NONE);
            act(job, job_soon(world), 1);
            break;
        }
        answer_without_effect(job, one_of(world, early, 3), ONCE_VERDICT_NONE);
        break;
    case BREAKS:
        answer_after_all(job, 500, ONCE_VERDICT_NONE);
        break;
    case PROXY_SAYS:
        answer_uncertainly(job, one_of(world, proxy, 4), ONCE_VERDICT_NONE);
        break;
    case SAYS_RETRY:
        answer_after_all(job, job_coin(world) ? 500 : 200, ONCE_VERDICT_RETRY);
        break;
    case SAYS_UNKNOWN:
        answer_uncertainly(job, 200, ONCE_VERDICT_UNKNOWN);
        break;
    case SAYS_FINAL:
        job->response = job->says = job_response(job, 500, ONCE_VERDICT_FINAL);
        act(job, job_soon(world), 1);
        break;
    case CONNECTION_BREAKS:
    case COURSE_COUNT:
        world_after(world, job_soon(world), job_break, job);
        if (job_coin(world)) {
            act(job, job_coin(world) ? job_soon(world) : job_whenever(world), 0);
        } else {
            job_close(job);
        }
        break;
    }
}

/* A proxy in between sends it again: only a transactional backend can bear that. */
static void deliver_twice(job_t *job)
{
    job_t *twin = world_alloc(job->world, sizeof(*twin));

    *twin = *job;
    twin->grant->open++;
    twin->has_answered = 1; /* one answer is enough */
    twin->response = job_response(job, 200, ONCE_VERDICT_NONE);
    world_count(job->world, COUNT_DELIVERED_TWICE);
    transaction_start(twin, job_coin(job->world) ? job_soon(job->world) : job_whenever(job->world),
                      0);
}

/* As the script says. */
static void deliver_scripted(job_t *job)
{
    const script_course_t *course = job->course;
    world_t *world = job->world;
    int dirty = course->status == 401 && world_is_broken(world, BROKEN_DIRTY_401);

    job->says = job_response(job, course->status, ONCE_VERDICT_NONE);
    job->response = course->status < 400 ? job->says : job_response(job, 201, ONCE_VERDICT_NONE);
    if (course->effect_at != SCRIPT_NEVER || dirty) {
        act(job, dirty ? 1 : course->effect_at, 0);
    } else {
        job_close(job);
    }
    if (course->again_at > 0) {
        job->grant->open++;
        transaction_start(job, course->again_at, 0);
    }
    if (course->answer_at != SCRIPT_NEVER) {
        world_after(world, course->answer_at, job_respond, job);
    }
}

void backend_deliver(job_t *job)
{
    world_t *world = job->world;

    if (job->grant != NULL) {
        job->grant->open++;
    }
    if (job->course != NULL) {
        deliver_scripted(job);
        return;
    }
    if (job->key->recover == ONCE_RECOVER_TRANSACTIONAL && job->grant != NULL &&
        world_chance(world, 100)) {
        deliver_twice(job);
    }
    if (world->plan.calm && !world->quiet) {
        take_course(job, job_coin(world) ? DOES_IT : DOES_IT_SLOWLY);
    } else if (world_chance(world, world->plan.trouble)) {
        take_course(job, (course_t)prng_pick(&world->prng, weights, COURSE_COUNT));
    } else {
        take_course(job, DOES_IT);
    }
}
