/*
 * The transactional door: the effect and the completion of its record commit together, or not at all.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/response.h"
#include "core/token.h"
#include "job.h"
#include "server.h"

typedef struct transaction {
    job_t *job;
    int responds;
    int repeated;
} transaction_t;

/* once.complete() in the caller's transaction. Returns its outcome. */
static uint8_t complete_record(job_t *job)
{
    static const sender_t sender = {NULL, 0};
    once__packing_t packing = {.compress_from = UINT64_MAX};
    once_response_t response = ONCE_RESPONSE_INIT;
    uint8_t *packed = NULL;
    once__op_t op;

    memset(&op, 0, sizeof(op));
    response.status = job->response.status;
    response.body.data = job->response.body;
    response.body.len = strlen(job->response.body);
    op.kind = ONCE__OP_EVENT;
    op.event.kind = ONCE__COMPLETE;
    if (once__token_read(job->token, op.id, &op.event.claim) != 0 ||
        once__response_pack(&response, op.id, &packing, &packed, &op.payload.len) != ONCE_OK) {
        world_violate(job->world, job->key->number, "token", "the claim passed on is not readable");
        return ONCE_OUTCOME_LOST;
    }
    op.payload.kind = ONCE__PAYLOAD_RESPONSE;
    op.payload.status = (uint16_t)job->response.status;
    op.payload.data = packed;
    server_apply(job->world, &op, &sender);
    server_drop(&op);
    free(packed);
    return op.error == ONCE_OK ? op.outcome : ONCE_OUTCOME_LOST;
}

static void transact(void *data);

static void roll_back(transaction_t *transaction, uint8_t outcome)
{
    job_t *job = transaction->job;

    job_close(job);
    world_say(job->world, job->key->number, "backend: %s, rolls back",
              once_outcome_name((once_outcome_t)outcome));
    world_count(job->world,
                outcome == ONCE_OUTCOME_ALREADY ? COUNT_ROLLBACKS_ALREADY : COUNT_ROLLBACKS_LOST);
    if (transaction->responds) {
        job->says = job_response(job, job_coin(job->world) ? 409 : 500, ONCE_VERDICT_NONE);
        world_after(job->world, job_soon(job->world), job_respond, job);
    }
}

static void commit(transaction_t *transaction)
{
    job_t *job = transaction->job;
    world_t *world = job->world;

    world_count(world, COUNT_COMMITS);
    check_effect(world, job->key, job->grant, job->variant, &job->response);
    if (!transaction->repeated && world->script == NULL && world_chance(world, 150)) {
        transaction->repeated = 1;
        world_say(world, job->key->number, "backend: the reply to its commit is lost, repeats");
        world_count(world, COUNT_COMMITS_REPEATED);
        world_after(world, job_coin(world) ? job_soon(world) : job_whenever(world), transact,
                    transaction);
        return;
    }
    job_close(job);
    if (transaction->responds) {
        world_after(world, job_soon(world), job_respond, job);
    }
}

static void transact(void *data)
{
    transaction_t *transaction = data;
    world_t *world = transaction->job->world;
    uint8_t outcome;

    if (world_is_broken(world, BROKEN_SQL_SEPARATE)) {
        commit(transaction);
        (void)complete_record(transaction->job);
        return;
    }
    outcome = complete_record(transaction->job);
    if (outcome == ONCE_OUTCOME_DONE ||
        (outcome == ONCE_OUTCOME_ALREADY && world_is_broken(world, BROKEN_SQL_IDEMPOTENT))) {
        commit(transaction);
    } else {
        roll_back(transaction, outcome);
    }
}

void transaction_start(job_t *job, uint64_t ms, int responds)
{
    transaction_t *transaction = world_alloc(job->world, sizeof(*transaction));

    transaction->job = job;
    transaction->responds = responds;
    world_after(job->world, ms, transact, transaction);
}
