#include "job.h"

#include <string.h>

uint64_t job_soon(world_t *world)
{
    return prng_between(&world->prng, 1, 40);
}

uint64_t job_whenever(world_t *world)
{
    return prng_between(&world->prng, 1, 4 * world->plan.lease);
}

int job_coin(world_t *world)
{
    return prng_chance(&world->prng, 500);
}

/* Every response is distinguished by its body. */
response_t job_response(job_t *job, int status, once_verdict_t said)
{
    world_t *world = job->world;
    response_t response;

    memset(&response, 0, sizeof(response));
    response.status = status;
    response.said = said;
    if (world->plan.short_ttl && world_chance(world, 100)) {
        response.retain_ms = prng_between(&world->prng, 1000, 2 * world->plan.ttl);
    }
    (void)snprintf(response.body, sizeof(response.body), "key %d, payment %016llx",
                   job->key->number, (unsigned long long)prng_next(&world->prng));
    return response;
}

/* ---------------------------------------------------------------------------------------------------------- answers */

void job_respond(void *data)
{
    job_t *job = data;

    if (!job->has_answered) {
        job->has_answered = 1;
        world_say(job->world, job->key->number, "backend: answers %d", job->says.status);
        job->answered(job->data, &job->says);
    }
}

void job_break(void *data)
{
    job_t *job = data;

    if (!job->has_answered) {
        job->has_answered = 1;
        world_say(job->world, job->key->number, "backend: the connection breaks");
        job->answered(job->data, NULL);
    }
}

void job_close(job_t *job)
{
    if (job->grant != NULL) {
        job->grant->open--;
    }
}
