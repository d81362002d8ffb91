#include "api/keyring.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "api/begin.h"
#include "api/job.h"
#include "store/secret_file.h"
#include "base/bytes.h"
#include "base/error.h"

#define REFRESH_MS 60000 /* how long a rotation by another process may go unnoticed */

/* A job with three secrets texts: what we propose, what we replace, what the store has. */
typedef struct keyring_job {
    once__job_t job;
    uint32_t new_id; /* rotation */
    char proposed[ONCE__SECRETS_TEXT_SIZE];
    char replaced[ONCE__SECRETS_TEXT_SIZE];
    char answer[ONCE__SECRETS_TEXT_SIZE];
    uint8_t mark[ONCE__MARK_SIZE]; /* of what we propose */
} keyring_job_t;

static void keyring_job_ended(once__job_t *job)
{
    keyring_job_t *keyring = (keyring_job_t *)job;

    OPENSSL_cleanse(keyring->proposed, 3 * sizeof(keyring->proposed));
}

static keyring_job_t *keyring_job_new(once_t *once, once__op_kind_t kind, once_cb cb, void *data)
{
    keyring_job_t *keyring = (keyring_job_t *)once__job_new(once, sizeof(*keyring), cb, data);

    if (keyring != NULL) {
        keyring->job.ended = keyring_job_ended;
        keyring->job.op.kind = kind;
        keyring->job.op.secrets_new = keyring->proposed;
        keyring->job.op.secrets_old = keyring->replaced;
        keyring->job.op.secrets = keyring->answer;
        keyring->job.op.mark = keyring->mark;
    }
    return keyring;
}

static uint32_t newest_id(const once__secrets_t *secrets)
{
    assert(secrets->count > 0 && secrets->count <= ONCE__FINGERPRINTS_MAX);
    return secrets->fingerprints[secrets->count - 1].id;
}

/* Makes `text` the handle's secrets. */
static int adopt(once_t *once, const char *text, once_error_t *err)
{
    once__secrets_t secrets;
    int code = once__secrets_parse(&secrets, text, strlen(text), err);

    /* Another record secret is another installation: every record would have another id, and its work would be done again. */
    if (code == ONCE_OK && once->secrets_ready &&
        !once__equal(secrets.record_bytes, once->secrets.record_bytes, ONCE__SECRET_SIZE)) {
        code = once__fail(err, ONCE_E_SECRET, "the secrets were replaced by others; restore them");
        once->secrets_foreign = 1;
    }
    if (code == ONCE_OK && once->secrets_ready &&
        newest_id(&secrets) != newest_id(&once->secrets)) {
        once__log(once, ONCE_LOG_NOTICE, "secrets: new fingerprints are made with secret %u",
                  newest_id(&secrets));
    }
    if (code == ONCE_OK) {
        (void)pthread_rwlock_wrlock(&once->secrets_lock);
        once->secrets = secrets;
        once__secrets_mark(&secrets, once->secrets_mark);
        once->secrets_ready = 1;
        once->secrets_foreign = 0;
        (void)pthread_rwlock_unlock(&once->secrets_lock);
        memcpy(once->secrets_text, text, strlen(text) + 1);
    }
    once->secrets_error = code;
    once__secrets_wipe(&secrets);
    return code;
}

const char *once__keyring_trouble(const once_t *once)
{
    if (once->secrets_error != ONCE_E_SECRET) {
        return "";
    }
    return once->secrets_foreign
               ? "the store has other secrets than this program, or none: nothing is run. Restore "
                 "those it had, or restart this program if its records are gone"
               : "the store has no secrets that can be used: restore them";
}

static int propose(once_t *once, char text[ONCE__SECRETS_TEXT_SIZE], uint8_t *mark)
{
    const once__env_t *env = once__loop_env(once->loop);
    uint8_t random[2 * ONCE__SECRET_SIZE];
    once__secrets_t fresh;

    if (once__random(once, random, sizeof(random)) != 0) {
        return ONCE_E_IO;
    }
    once__secrets_make(&fresh, random, env->wall_ms(env->data));
    (void)once__secrets_format(&fresh, text);
    once__secrets_mark(&fresh, mark);
    once__secrets_wipe(&fresh);
    OPENSSL_cleanse(random, sizeof(random));
    return ONCE_OK;
}

/* ---------------------------------------------------------------------------------------------------------- loading */

static void load_reply(once__job_t *job)
{
    keyring_job_t *keyring = (keyring_job_t *)job;
    once_t *once = job->once;
    int code = job->op.error;

    if (code != ONCE_OK && (once__is_transient(code) || code == ONCE_E_FULL)) {
        (void)once__job_pause(job);
        return;
    }
    assert(once->secrets_loading); /* one load at a time */
    once->secrets_loading = 0;
    once->secrets_error = code;
    if (code == ONCE_OK) {
        code = adopt(once, keyring->answer, NULL);
    } else if (code == ONCE_E_SECRET) {
        /* it would have accepted ours if it had none */
        once->secrets_foreign = once->secrets_ready;
    }
    once__job_end(job);
    if (code == ONCE_OK) {
        once__begin_secrets_ready(once);
    } else {
        once__begin_secrets_failed(once, code);
    }
}

static int load_from_store(once_t *once)
{
    keyring_job_t *keyring = keyring_job_new(once, ONCE__OP_SECRETS_LOAD, NULL, NULL);
    int code = ONCE_OK;

    if (keyring == NULL) {
        return once__no_job(once);
    }
    /* A store that has lost its secrets gets ours back, unless it has others by now. */
    if (once->secrets_ready) {
        memcpy(keyring->proposed, once->secrets_text, sizeof(keyring->proposed));
        memcpy(keyring->mark, once->secrets_mark, sizeof(keyring->mark));
    } else {
        code = propose(once, keyring->proposed, keyring->mark);
    }
    /* No caller waits for it, and neither does a graceful end. */
    keyring->job.counted = 0;
    keyring->job.delivered = 1;
    once->job_count--;
    if (code != ONCE_OK) {
        once__job_end(&keyring->job);
        return code;
    }
    keyring->job.reply = load_reply;
    assert(!once->secrets_loading);
    once->secrets_loading = 1;
    once__job_submit(&keyring->job);
    return ONCE_OK;
}

/* Creates the file if there is none, but only when the handle is opened: if it vanishes later, that is an accident. */
static int load_from_file(once_t *once, once_error_t *err)
{
    const char *path = once->options.secrets_file;
    char text[ONCE__SECRETS_TEXT_SIZE];
    uint8_t mark[ONCE__MARK_SIZE];
    int code = once__secret_file_read(path, text, sizeof(text), err);

    if (code == ONCE_E_NOT_FOUND && !once->secrets_ready) {
        code = propose(once, text, mark);
        if (code == ONCE_OK) {
            code = once__secret_file_create(path, text, err);
        }
        if (code == ONCE_OK) {
            code = once__secret_file_read(path, text, sizeof(text), err);
        }
    } else if (code == ONCE_OK && !once->secrets_ready) {
        code = once__secret_file_keep(path, err);
    }
    if (code == ONCE_E_NOT_FOUND) {
        code = once__fail(err, ONCE_E_SECRET, "the secrets file does not exist: %.120s", path);
    }
    if (code == ONCE_OK) {
        code = adopt(once, text, err);
    }
    once->secrets_error = code;
    OPENSSL_cleanse(text, sizeof(text));
    return code;
}

/* A handle that meets only its own records would not notice a rotation, and go on with a secret that is then forgotten. */
static void refresh(once__timer_t *timer)
{
    once_t *once = (once_t *)(void *)((char *)timer - offsetof(once_t, keyring_timer));

    (void)once__keyring_reload(once);
    once__timer_set(once->loop, timer, once__loop_now(once->loop) + REFRESH_MS);
}

int once__keyring_open(once_t *once, once_error_t *err)
{
    int code;

    if (once__timers_reserve(once->loop) != 0) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    once->keyring_timer.fire = refresh;
    once__timer_set(once->loop, &once->keyring_timer, once__loop_now(once->loop) + REFRESH_MS);
    if (once->options.secrets_file[0] != '\0') {
        return load_from_file(once, err);
    }
    code = load_from_store(once);
    return code == ONCE_OK ? code : once__fail(err, code, "%s", once_error_text(code));
}

void once__keyring_close(once_t *once)
{
    if (once->keyring_timer.fire != NULL) {
        once__timer_stop(once->loop, &once->keyring_timer);
        once__timers_release(once->loop);
        once->keyring_timer.fire = NULL;
    }
}

int once__keyring_reload(once_t *once)
{
    once_error_t err = {0};
    int code;

    if (once->secrets_loading) {
        return ONCE_OK;
    }
    if (once->options.secrets_file[0] == '\0') {
        return load_from_store(once);
    }
    code = load_from_file(once, &err);
    if (code == ONCE_OK) {
        once__begin_secrets_ready(once);
    } else {
        once__log(once, ONCE_LOG_WARNING, "secrets: %s", err.text);
    }
    return code;
}

/* --------------------------------------------------------------------------------------------------------- rotating */

static void rotated(keyring_job_t *keyring, int code)
{
    once__job_t *job = &keyring->job;

    if (code == ONCE_OK) {
        code = adopt(job->once, keyring->proposed, NULL);
    } else if (code == ONCE_E_CONFLICT) {
        (void)once__keyring_reload(job->once);
    }
    job->answer.count = keyring->new_id;
    once__job_deliver(job, code, ONCE_OUTCOME_DONE);
    once__job_end(job);
}

static void rotate_reply(once__job_t *job)
{
    if (once__is_transient(job->op.error)) {
        if (job->delivered) {
            once__job_end(job);
        } else {
            (void)once__job_pause(job);
        }
        return;
    }
    rotated((keyring_job_t *)job, job->op.error);
}

/* With a file nothing is submitted: the next dispatch does the work. */
static void rotate_file(once__timer_t *timer)
{
    keyring_job_t *keyring =
        (keyring_job_t *)(void *)((char *)timer - offsetof(once__job_t, pause_timer));

    int code = once__secret_file_swap(keyring->job.once->options.secrets_file, keyring->replaced,
                                      keyring->proposed, NULL);

    if (code == ONCE_E_UNAVAILABLE) {
        (void)once__job_pause(&keyring->job); /* another process has it locked */
    } else {
        rotated(keyring, code);
    }
}

/* If there are as many secrets as there can be, whether the oldest may go. */
static int has_room(const once__secrets_t *secrets, uint64_t now_ms, uint64_t keep_ms)
{
    const once__secret_t *oldest = &secrets->fingerprints[0];

    return secrets->count < ONCE__FINGERPRINTS_MAX ||
           (now_ms > oldest->retired_ms && now_ms - oldest->retired_ms > keep_ms);
}

static int rotate_locked(once_t *once, uint64_t keep_ms, once_cb cb, void *data)
{
    const once__env_t *env = once__loop_env(once->loop);
    once__secrets_t next = once->secrets;
    uint8_t random[ONCE__SECRET_SIZE];
    keyring_job_t *keyring;

    if (!once->secrets_ready) {
        once__secrets_wipe(&next);
        return once->secrets_error != ONCE_OK ? once->secrets_error : ONCE_E_UNAVAILABLE;
    }
    if (!has_room(&next, env->wall_ms(env->data), keep_ms)) {
        once__secrets_wipe(&next);
        return ONCE_E_FULL;
    }
    keyring = keyring_job_new(once, ONCE__OP_SECRETS_SWAP, cb, data);
    if (keyring == NULL || once__random(once, random, sizeof(random)) != 0) {
        if (keyring != NULL) {
            once__job_end(&keyring->job);
        }
        once__secrets_wipe(&next);
        return keyring == NULL ? once__no_job(once) : ONCE_E_IO;
    }
    keyring->new_id = once__secrets_rotate(&next, random, env->wall_ms(env->data), keep_ms);
    (void)once__secrets_format(&next, keyring->proposed); /* unchanged if all ids are used up */
    once__secrets_mark(&next, keyring->mark);
    memcpy(keyring->replaced, once->secrets_text, sizeof(keyring->replaced));
    once__secrets_wipe(&next);
    OPENSSL_cleanse(random, sizeof(random));
    keyring->job.reply = rotate_reply;
    if (once->options.secrets_file[0] != '\0') {
        keyring->job.pause_timer.fire = rotate_file;
        once__timer_set(once->loop, &keyring->job.pause_timer, 0);
    } else {
        once__job_submit(&keyring->job);
    }
    return ONCE_OK;
}

int once_secret_rotate(once_t *once, uint64_t keep_ms, once_cb cb, void *data)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = once->closing ? ONCE_E_CLOSED : rotate_locked(once, keep_ms, cb, data);
    once__leave(once);
    return code;
}
