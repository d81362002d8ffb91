/*
 * Asking to run: once_begin.
 *
 * What can go wrong between the question and the answer, and what is done about it:
 *   the reply to the claim is lost      ask again with the same claim id: the store recognises it
 *   that takes longer than the caller   the callback receives the error; the job goes on until it knows whether the claim was
 *   waits                               granted, and releases it: nothing was run, and no other caller should wait for its lease.
 *                                       Not if the id is the caller's: it may have been asked for again, and be run by now
 *   the record became unknown meanwhile `mine`: nothing was run; release it and claim again with a new id
 *   run arrives late (half the lease)   release it and claim again: the holder needs time to send, and a lease that was over may
 *                                       have been judged; renewing it would bring a judged claim back to life.
 *                                       If the id is the caller's: told, for the same reason
 *   it was released by someone else     an operator settled what looked like a dead claim: claim again
 *   a secret that we do not know        another process rotated: load the secrets again and ask again
 *   the store is at its bound           read first: only a record that exists is claimed
 *   the store's secrets are not ours    it lost them: load the secrets, which restores ours if it has none, and ask again. If it
 *                                       has other secrets now, the key has another id: refuse, or the work is done twice
 */
#include "api/begin.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <once/experimental.h>

#include "api/bound.h"
#include "api/claim.h"
#include "api/job.h"
#include "api/keyring.h"
#include "base/bytes.h"
#include "core/about.h"
#include "core/identity.h"
#include "core/sized.h"

#define REFUSALS_MAX 3 /* of a store that keeps losing its secrets */

typedef enum phase {
    PARKED,  /* waits for the secrets */
    FAILING, /* the secrets cannot be loaded: the callback is about to receive that */
    SEEKING, /* no room for another record: is there one of this key? */
    CLAIMING,
    READING,   /* gave up: reads whether it was granted; asking could take over another claim */
    RELEASING, /* releases a claim that will not be run */
} phase_t;

/*
 * What holds between calls until the job ends (assert_begin_state):
 *   I-1  what gave up has answered its caller
 *   I-2  what waits for the secrets is not submitted, and everything else has them
 *   I-3  only what gave up reads whether it was granted
 *   I-4  the claim that will be handed over was allocated in advance: granting it cannot fail
 */
typedef struct begin {
    once__job_t job;
    phase_t phase;
    int giving_up;     /* the caller has an answer: only find out and release */
    int maybe_granted; /* a reply was lost */
    int is_callers_id; /* of the claim: the caller may ask with it again, here or elsewhere */
    int reloaded;      /* the secrets, because of an id that we did not know */
    unsigned refusals; /* because the store has other secrets than ours */
    uint64_t sent_ms;  /* when this claim id was sent first, or renewed */
    once_claim_t *claim;
    once__request_t request;
    uint8_t recover;
    uint64_t lease_ms, ttl_ms, release_ttl_ms;
    uint8_t claim_id[ONCE_CLAIM_ID_SIZE];
    once_slice_t description, subject;
    uint8_t *about; /* ONCE__ABOUT_ROOM of the description */
    char text[];    /* copies: key, scope, method, target, description, subject; about */
} begin_t;

static void assert_begin_state(const begin_t *begin)
{
    int waits = begin->phase == PARKED || begin->phase == FAILING;

    assert(!begin->giving_up || begin->job.delivered);                      /* I-1 */
    assert(waits ? !begin->job.submitted : begin->job.once->secrets_ready); /* I-2 */
    assert(begin->phase != READING || begin->giving_up);                    /* I-3 */
    assert(begin->claim != NULL);                                           /* I-4 */
}

/* What the record is to say about itself. */
static void describe(begin_t *begin)
{
    const once_t *once = begin->job.once;
    once__about_t about = {.description = begin->description,
                           .holder = once__slice_of(once->holder)};
    uint8_t subject[ONCE_SUBJECT_SIZE];

    if (begin->subject.len > 0) {
        once__subject_hash(&once->secrets, begin->subject, subject);
        about.subject = subject;
    }
    begin->job.op.about = once__slice(begin->about, once__about_write(begin->about, &about));
}

/* Prepares the claim without sending it. */
static void prepare_claim(begin_t *begin)
{
    once__op_t *op = &begin->job.op;
    const once_t *once = begin->job.once;

    free(op->record); /* of a write that came back lost */
    op->record = NULL;
    memset(&op->event, 0, sizeof(op->event));
    op->kind = ONCE__OP_EVENT;
    op->event.kind = ONCE__CLAIM;
    op->event.recover = begin->recover;
    op->event.lease_ms = begin->lease_ms;
    op->event.ttl_ms = begin->ttl_ms;
    memcpy(op->event.claim.id, begin->claim_id, ONCE_CLAIM_ID_SIZE);
    op->mark = once->options.secrets_file[0] == '\0' ? once->secrets_mark : NULL;
    op->event.fingerprint_count =
        (uint8_t)once__fingerprints(&once->secrets, &begin->request, op->event.fingerprints);
    begin->phase = CLAIMING;
    begin->maybe_granted = 0;
}

static void hash_scope(once_t *once, once_slice_t scope, uint8_t hash[ONCE_SCOPE_HASH_SIZE])
{
    if (!once->last_scope_known || scope.len != once->last_scope_len ||
        (scope.len > 0 && memcmp(scope.data, once->last_scope, scope.len) != 0)) {
        once__scope_hash(&once->secrets, scope, once->last_scope_hash);
        once->last_scope_known = scope.len <= sizeof(once->last_scope);
        once->last_scope_len = scope.len;
        if (once->last_scope_known && scope.len > 0) {
            memcpy(once->last_scope, scope.data, scope.len);
        }
    }
    memcpy(hash, once->last_scope_hash, ONCE_SCOPE_HASH_SIZE);
}

static void submit_claim(begin_t *begin)
{
    int maybe_granted = begin->maybe_granted; /* asked again with the same claim id */

    prepare_claim(begin);
    begin->maybe_granted = maybe_granted;
    if (!maybe_granted) {
        begin->sent_ms = once__loop_now(begin->job.once->loop);
    }
    once__job_submit(&begin->job);
}

static void start(begin_t *begin)
{
    once__op_t *op = &begin->job.op;
    const once__secrets_t *secrets = &begin->job.once->secrets;

    once__record_id(secrets, begin->request.scope, once__slice(op->key, op->key_len), op->id);
    hash_scope(begin->job.once, begin->request.scope, op->scope_hash);
    describe(begin);
    if (begin->maybe_granted || once__bound_check(begin->job.once) == ONCE_OK) {
        submit_claim(begin);
    } else {
        op->kind = ONCE__OP_GET;
        begin->phase = SEEKING;
        once__job_submit(&begin->job);
    }
}

static void park(begin_t *begin)
{
    begin->phase = PARKED;
    once__job_watch_deadline(&begin->job);
}

static void tell_error(begin_t *begin, int error)
{
    once__job_deliver(&begin->job, error, ONCE_OUTCOME_NONE);
    once__job_end(&begin->job);
}

/* Reads whether the claim was granted: now, or when the present pause is over. */
static void prepare_read(begin_t *begin)
{
    begin->job.op.kind = ONCE__OP_GET;
    begin->phase = READING;
}

/* Releases the claim that the last reply named. */
static void submit_release(begin_t *begin)
{
    once__op_t *op = &begin->job.op;
    once__claim_ref_t claim = op->head.claim;

    free(op->record);
    op->record = NULL;
    memset(&op->event, 0, sizeof(op->event));
    op->kind = ONCE__OP_EVENT;
    op->event.kind = ONCE__RELEASE;
    op->event.claim = claim;
    op->mark = NULL;
    op->event.ttl_ms = begin->release_ttl_ms; /* nothing was run */
    begin->phase = RELEASING;
    once__job_submit(&begin->job);
}

/* The old id is used up. Claims again after a pause, because what used it up may still be going on. */
static void claim_anew(begin_t *begin)
{
    if (once__random(begin->job.once, begin->claim_id, ONCE_CLAIM_ID_SIZE) != 0) {
        tell_error(begin, ONCE_E_IO);
        return;
    }
    begin->is_callers_id = 0;
    prepare_claim(begin);
    begin->sent_ms = once__job_pause(&begin->job);
}

static void tell_run(begin_t *begin)
{
    once__job_t *job = &begin->job;

    begin->claim->release_ttl_ms = begin->release_ttl_ms;
    once__claim_granted(begin->claim, job->op.id, &job->op.head, begin->lease_ms, begin->sent_ms);
    job->answer.claim = begin->claim;
    begin->claim = NULL;
    once__job_answer_record(job);
    once__job_deliver(job, ONCE_OK, ONCE_OUTCOME_RUN);
    once__job_end(&begin->job);
}

static void granted(begin_t *begin)
{
    uint64_t passed = once__loop_now(begin->job.once->loop) - begin->sent_ms;

    if (!begin->giving_up && (begin->is_callers_id || passed * 2 < begin->lease_ms)) {
        tell_run(begin);
        return;
    }
    if (begin->is_callers_id) {
        once__job_end(&begin->job);
        return;
    }
    /* A store that is always this slow must not keep us claiming and releasing without end. */
    once__job_watch_deadline(&begin->job);
    submit_release(begin);
}

/* The secrets cannot be loaded. A claim that may have been granted before that is released. */
static void fail(begin_t *begin, int error)
{
    if (!begin->maybe_granted || begin->is_callers_id) {
        tell_error(begin, error);
        return;
    }
    once__job_deliver(&begin->job, error, ONCE_OUTCOME_NONE);
    begin->giving_up = 1;
    prepare_read(begin);
    once__job_submit(&begin->job);
}

/* After a rotation by another process, or if the store has lost its secrets: load them, then ask again. */
static void ask_again_with_new_secrets(begin_t *begin)
{
    once__job_t *job = &begin->job;
    int code;

    free(job->op.record);
    job->op.record = NULL;
    park(begin);
    code = once__keyring_reload(job->once);
    if (code != ONCE_OK) {
        fail(begin, code);
    }
}

static void claim_answered(begin_t *begin)
{
    once__job_t *job = &begin->job;

    switch (job->op.outcome) {
    case ONCE_OUTCOME_RUN:
        if (job->op.head.claim.epoch == 1) {
            once__bound_made(job->once, 1, 0);
        }
        granted(begin);
        return;
    case ONCE__MINE:
        if (begin->giving_up && begin->is_callers_id) {
            once__job_end(job);
        } else {
            submit_release(begin);
        }
        return;
    case ONCE_OUTCOME_LOST:
        if (begin->maybe_granted && !begin->giving_up) {
            claim_anew(begin);
            return;
        }
        break;
    case ONCE_OUTCOME_MISMATCH:
        if (!begin->giving_up && !begin->reloaded &&
            !once__fingerprint_known(&job->op.head, &job->op.event)) {
            begin->reloaded = 1;
            ask_again_with_new_secrets(begin);
            return;
        }
        break;
    default:
        break;
    }
    once__job_answer_record(job);
    once__job_deliver(job, ONCE_OK, (once_outcome_t)job->op.outcome);
    once__job_end(&begin->job);
}

static void claim_failed(begin_t *begin)
{
    int error = begin->job.op.error;

    /* A store that cannot compare and grant in one step may have granted it. */
    begin->maybe_granted |= error == ONCE_E_NOREPLY || error == ONCE_E_SECRET;
    if (error == ONCE_E_SECRET && !begin->giving_up && begin->refusals < REFUSALS_MAX) {
        begin->refusals++;
        ask_again_with_new_secrets(begin);
    } else if (error == ONCE_E_SECRET && !begin->giving_up) {
        fail(begin, error);
    } else if (once__is_hopeless(error) || (!once__is_transient(error) && !begin->maybe_granted)) {
        tell_error(begin, error);
    } else if (begin->giving_up && (!begin->maybe_granted || begin->is_callers_id)) {
        once__job_end(&begin->job);
    } else {
        if (begin->giving_up) {
            prepare_read(begin);
        }
        (void)once__job_pause(&begin->job);
    }
}

/* A record that disappears before it is claimed leaves room for its successor. */
static void seek_answered(begin_t *begin)
{
    int error = begin->job.op.error;

    error = error == ONCE_E_NOT_FOUND ? once__bound_check(begin->job.once) : error;
    if (begin->giving_up) {
        once__job_end(&begin->job);
    } else if (error == ONCE_OK) {
        submit_claim(begin);
    } else if (once__is_transient(error)) {
        (void)once__job_pause(&begin->job);
    } else {
        tell_error(begin, error);
    }
}

/* The record was read, or there is none. */
static void look_answered(begin_t *begin)
{
    const once__op_t *op = &begin->job.op;
    int is_open = op->head.state == ONCE_STATE_PENDING || op->head.state == ONCE_STATE_UNKNOWN;

    if (op->error != ONCE_OK && op->error != ONCE_E_NOT_FOUND && !once__is_hopeless(op->error)) {
        (void)once__job_pause(&begin->job);
    } else if (op->error == ONCE_OK && is_open &&
               once__equal(op->head.claim.id, begin->claim_id, ONCE_CLAIM_ID_SIZE)) {
        submit_release(begin);
    } else {
        once__job_end(&begin->job);
    }
}

/* The claim is known to be ours: it is not forgotten because the store is away or full. */
static void write_failed(begin_t *begin)
{
    if (once__is_hopeless(begin->job.op.error)) {
        tell_error(begin, begin->job.op.error);
    } else {
        (void)once__job_pause(&begin->job);
    }
}

static void begin_reply(once__job_t *job)
{
    begin_t *begin = (begin_t *)job;

    assert_begin_state(begin);
    if (begin->phase == CLAIMING) {
        if (job->op.error != ONCE_OK) {
            claim_failed(begin);
        } else {
            claim_answered(begin);
        }
        return;
    }
    if (begin->phase == SEEKING) {
        seek_answered(begin);
    } else if (begin->phase == READING) {
        look_answered(begin);
    } else if (job->op.error != ONCE_OK) {
        write_failed(begin);
    } else if (begin->giving_up) {
        once__job_end(&begin->job);
    } else {
        claim_anew(begin);
    }
}

/* The caller does not wait any longer, or the handle is closing. */
static void give_up(begin_t *begin, int error)
{
    assert_begin_state(begin);
    once__job_deliver(&begin->job, error, ONCE_OUTCOME_NONE);
    begin->giving_up = 1;
    if (begin->job.submitted) {
        return; /* its reply decides */
    }
    if (begin->phase == SEEKING || ((begin->phase == PARKED || begin->phase == CLAIMING) &&
                                    (!begin->maybe_granted || begin->is_callers_id))) {
        once__job_end(&begin->job);
    } else if (begin->phase == PARKED) {
        prepare_read(begin);
        once__job_submit(&begin->job);
    } else if (begin->phase == CLAIMING) {
        prepare_read(begin);
    }
}

static void begin_deadline(once__job_t *job)
{
    give_up((begin_t *)job, ONCE_E_UNAVAILABLE);
}

static int is_parked(const once__job_t *job)
{
    return job->reply == begin_reply && ((const begin_t *)job)->phase == PARKED;
}

void once__begin_secrets_ready(once_t *once)
{
    for (once__job_t *job = once->jobs; job != NULL; job = job->next) {
        if (is_parked(job)) {
            start((begin_t *)job);
        }
    }
}

/* Callbacks may create or end other jobs: these two start from the beginning after each. */

void once__begin_secrets_failed(once_t *once, int error)
{
    once__job_t *job;

    /* Only those that wait now: an ask made inside a callback waits for the next attempt. */
    for (job = once->jobs; job != NULL; job = job->next) {
        if (is_parked(job)) {
            ((begin_t *)job)->phase = FAILING;
        }
    }
    job = once->jobs;
    while (job != NULL) {
        if (job->reply == begin_reply && ((begin_t *)job)->phase == FAILING) {
            fail((begin_t *)job, error);
            job = once->jobs;
        } else {
            job = job->next;
        }
    }
}

void once__begin_close_all(once_t *once)
{
    once__job_t *job = once->jobs;

    while (job != NULL) {
        if (job->reply == begin_reply && !job->delivered) {
            give_up((begin_t *)job, ONCE_E_CLOSED);
            job = once->jobs;
        } else {
            job = job->next;
        }
    }
}

static void begin_ended(once__job_t *job)
{
    begin_t *begin = (begin_t *)job;

    if (begin->claim != NULL) {
        once__claim_unref(begin->claim);
        begin->claim = NULL;
    }
}

/* ------------------------------------------------------------------------------------------------------ public face */

static once_slice_t copy_slice(char **to, once_slice_t from)
{
    once_slice_t copy = {*to, from.len};

    if (from.len > 0) {
        memcpy(*to, from.data, from.len);
    }
    *to += from.len;
    return copy;
}

int once__ask_read(once_ask_t *ask, const once_ask_t *given, const uint8_t *digest)
{
    int code = once__sized_read(ask, sizeof(*ask), ONCE__ASK_V1, given);

    if (code != ONCE_OK) {
        return code;
    }
    if ((ask->body != NULL) + (ask->bytes.len > 0) + (digest != NULL) > 1) {
        return ONCE_E_INVALID;
    }
    if (ask->key.len == 0 || ask->key.len > ONCE_KEY_MAX) {
        return ONCE_E_KEY;
    }
    if (ask->scope.len > ONCE__PART_MAX || ask->method.len > ONCE__PART_MAX ||
        ask->target.len > ONCE__PART_MAX || ask->subject.len > ONCE__PART_MAX) {
        return ONCE_E_TOO_BIG;
    }
    if (ask->description.len > ONCE_DESCRIPTION_MAX) {
        ask->description.len = ONCE_DESCRIPTION_MAX;
    }
    return ONCE_OK;
}

static int fill(begin_t *begin, const once_ask_t *ask, const uint8_t *digest)
{
    once_t *once = begin->job.once;
    const once_policy_t *policy = ask->policy != NULL ? ask->policy : &once->options.policy;
    char *text = begin->text;
    once_slice_t key = copy_slice(&text, ask->key);

    begin->job.op.key = key.data;
    begin->job.op.key_len = key.len;
    begin->request.scope = copy_slice(&text, ask->scope);
    begin->request.method = copy_slice(&text, ask->method);
    begin->request.target = copy_slice(&text, ask->target);
    begin->description = copy_slice(&text, ask->description);
    begin->subject = copy_slice(&text, ask->subject);
    begin->about = (uint8_t *)text;
    begin->recover = (uint8_t)once_policy_recover(policy);
    begin->lease_ms = once_policy_lease_ms(policy);
    begin->ttl_ms = once_policy_ttl_ms(policy);
    begin->release_ttl_ms = once_policy_release_ttl_ms(policy);
    begin->claim = once__claim_new(once);
    if (begin->claim == NULL) {
        return ONCE_E_NOMEM;
    }
    if (ask->claim_id != NULL) {
        memcpy(begin->claim_id, ask->claim_id, ONCE_CLAIM_ID_SIZE);
        begin->is_callers_id = 1;
    } else if (once__random(once, begin->claim_id, ONCE_CLAIM_ID_SIZE) != 0) {
        return ONCE_E_IO;
    }
    return once__ask_digest(ask, digest, &begin->request.body);
}

/* Starts a begin job for an ask that was read. `digest` as in once__ask_read. */
static int begin_locked(once_t *once, const once_ask_t *ask, const uint8_t *digest, once_cb cb,
                        void *data)
{
    begin_t *begin;
    int code;

    if (once->closing) {
        return ONCE_E_CLOSED;
    }
    begin = (begin_t *)once__job_new(once,
                                     sizeof(*begin) + ask->key.len + ask->scope.len +
                                         ask->method.len + ask->target.len + ask->description.len +
                                         ask->subject.len + ONCE__ABOUT_ROOM(ask->description.len),
                                     cb, data);
    if (begin == NULL) {
        return once__no_job(once);
    }
    begin->job.reply = begin_reply;
    begin->job.deadline = begin_deadline;
    begin->job.ended = begin_ended;
    code = fill(begin, ask, digest);
    if (code != ONCE_OK) {
        once__job_end(&begin->job);
        return code;
    }
    if (once->secrets_ready && !once->secrets_foreign) {
        start(begin);
    } else {
        park(begin);
        code = once__keyring_reload(once);
        if (code != ONCE_OK) {
            once__job_end(&begin->job);
        }
    }
    return code;
}

static int begin_public(once_t *once, const once_ask_t *given, const uint8_t *digest, once_cb cb,
                        void *data)
{
    once_ask_t ask;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = cb == NULL ? ONCE_E_INVALID : once__ask_read(&ask, given, digest);
    if (code == ONCE_OK) {
        code = begin_locked(once, &ask, digest, cb, data);
    }
    once__leave(once);
    return code;
}

int once_begin(once_t *once, const once_ask_t *ask, once_cb cb, void *data)
{
    return begin_public(once, ask, NULL, cb, data);
}

int once_begin_digested(once_t *once, const once_ask_t *ask, const uint8_t *digest, once_cb cb,
                        void *data)
{
    return digest != NULL ? begin_public(once, ask, digest, cb, data) : ONCE_E_INVALID;
}
