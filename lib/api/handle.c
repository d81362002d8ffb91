#include "api/handle.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <once/experimental.h>

#include "api/begin.h"
#include "api/bound.h"
#include "api/claim.h"
#include "api/dispatch.h"
#include "api/job.h"
#include "api/keyring.h"
#include "base/error.h"
#include "store/secret_file.h"

#define SEAL_TEXT_SIZE 8192
#define POOL_STEP      256
#define POOL_KEEP      512 /* blocks of a class */

const char *once_version(void)
{
    return ONCE_VERSION;
}

unsigned once_version_number(void)
{
    return ONCE_VERSION_NUMBER;
}

int once_store_is_built_in(const char *scheme)
{
    return scheme != NULL && once__store_find(scheme, strlen(scheme)) != NULL;
}

/*
 * Notices that we are in a child of fork(): the child's copy of the process increments a counter. Cheaper than asking for the
 * process id at every call.
 */
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

static void assert_handle_state(const once_t *once)
{
    assert(once->job_count == 0 || once->jobs != NULL);     /* I-1 */
    assert(!once->secrets_foreign || once->secrets_ready);  /* I-2 */
    assert(!once->asks_to_close || once->closing);          /* I-3 */
    assert(once->random_left <= sizeof(once->random_pool)); /* I-4 */
    assert(once->depth >= 0);                               /* I-5 */
}

int once__enter(once_t *once)
{
    if (once->generation != once__generation()) {
        return ONCE_E_FORKED;
    }
    if (once->threaded) {
        (void)pthread_mutex_lock(&once->lock);
    }
    assert_handle_state(once);
    return ONCE_OK;
}

void once__leave(once_t *once)
{
    assert_handle_state(once);
    if (once->threaded) {
        (void)pthread_mutex_unlock(&once->lock);
    }
}

int once__random(once_t *once, void *out, size_t len)
{
    const once__env_t *env = once__loop_env(once->loop);
    uint8_t *from;

    if (len > ONCE__RANDOM_POOL / 4) {
        return env->random(env->data, out, len);
    }
    if (once->random_left < len) {
        once->random_left = 0;
        if (env->random(env->data, once->random_pool, ONCE__RANDOM_POOL) != 0) {
            return -1;
        }
        once->random_left = ONCE__RANDOM_POOL;
    }
    from = once->random_pool + ONCE__RANDOM_POOL - once->random_left;
    memcpy(out, from, len);
    OPENSSL_cleanse(from, len); /* never given out twice */
    once->random_left -= len;
    return 0;
}

int once_fd(const once_t *once)
{
    return once__loop_fd(once->loop);
}

/* ---------------------------------------------------------------------------------------------------------- memory */

/* In front of what the caller has. */
typedef union head {
    size_t class;
    max_align_t aligned;
} head_t;

struct once__pool_block {
    head_t head;
    struct once__pool_block *next;
};

void *once__handle_alloc(once_t *once, size_t size)
{
    once__pool_t *pool = &once->pool;
    size_t class = (size - 1) / POOL_STEP;
    struct once__pool_block *block;

    if (class < ONCE__POOL_CLASSES && pool->blocks[class] != NULL) {
        block = pool->blocks[class];
        pool->blocks[class] = block->next;
        pool->counts[class]--;
    } else {
        block = malloc(sizeof(head_t) + (class + 1) * POOL_STEP);
        if (block == NULL) {
            return NULL;
        }
        block->head.class = class;
    }
    return memset((char *)block + sizeof(head_t), 0, size);
}

void once__handle_free(once_t *once, void *memory)
{
    once__pool_t *pool = &once->pool;
    struct once__pool_block *block = (void *)((char *)memory - sizeof(head_t));
    size_t class = block->head.class;

    if (class < ONCE__POOL_CLASSES && pool->counts[class] < POOL_KEEP) {
        block->next = pool->blocks[class];
        pool->blocks[class] = block;
        pool->counts[class]++;
    } else {
        free(block);
    }
}

static void free_pool(once__pool_t *pool)
{
    for (size_t class = 0; class < ONCE__POOL_CLASSES; class ++) {
        while (pool->blocks[class] != NULL) {
            struct once__pool_block *block = pool->blocks[class];
            pool->blocks[class] = block->next;
            free(block);
        }
    }
}

/* -------------------------------------------------------------------------------------------------------- messages */

/* What is wrong with the store or its secrets, for people; empty: nothing. */
static const char *trouble_of(const once_t *once)
{
    const char *trouble = "";

    if (once->store->vt->trouble != NULL) {
        trouble = once->store->vt->trouble(once->store);
    }
    return trouble[0] != '\0' ? trouble : once__keyring_trouble(once);
}

static size_t copy_text(char *text, size_t size, const char *from)
{
    size_t len = strlen(from) < size ? strlen(from) : size - 1;

    memcpy(text, from, len);
    text[len] = '\0';
    return len;
}

size_t once_store_trouble(once_t *once, char *text, size_t size)
{
    size_t len;

    if (size == 0 || once__enter(once) != ONCE_OK) {
        return 0;
    }
    len = copy_text(text, size, trouble_of(once));
    once__leave(once);
    return len;
}

size_t once_store_server(once_t *once, char *text, size_t size)
{
    size_t len;

    if (size == 0 || once__enter(once) != ONCE_OK) {
        return 0;
    }
    len = copy_text(text, size,
                    once->store->vt->server != NULL ? once->store->vt->server(once->store) : "");
    once__leave(once);
    return len;
}

void once__log(const once_t *once, once_log_level_t level, const char *format, ...)
{
    const once_options_t *options = &once->options;
    char message[300];
    va_list args;

    if (options->log == NULL || level > options->log_level) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    for (char *c = message; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' ? ' ' : *c; /* servers answer in several lines */
    }
    options->log(level, message, options->log_data);
}

/*
 * The store says in words what is wrong with it. If it says nothing and yet does not answer, that is all there is to report. The
 * text is compared with what was reported last, so that a store which is away for an hour is reported once.
 */
void once__log_store(once_t *once)
{
    const char *trouble;

    if (once->options.log == NULL) {
        return;
    }
    trouble = trouble_of(once);
    if (trouble[0] == '\0' && once->store_is_silent) {
        trouble = once_error_text(ONCE_E_UNAVAILABLE);
    }
    if (strncmp(trouble, once->trouble_logged, sizeof(once->trouble_logged) - 1) == 0) {
        return;
    }
    (void)snprintf(once->trouble_logged, sizeof(once->trouble_logged), "%s", trouble);
    if (trouble[0] != '\0') {
        once__log(once, ONCE_LOG_WARNING, "store: %s", trouble);
    } else {
        once__log(once, ONCE_LOG_NOTICE, "store: it can be used again");
    }
}

/* ---------------------------------------------------------------------------------------------------------- opening */

static int read_seal_keys(once_options_t *options, once_error_t *err)
{
    char text[SEAL_TEXT_SIZE];
    int code;

    if (options->encrypt_file[0] == '\0') {
        return ONCE_OK;
    }
    code = once__secret_file_read(options->encrypt_file, text, sizeof(text), err);
    if (code == ONCE_E_NOT_FOUND) {
        code = once__fail(err, ONCE_E_SECRET,
                          "encrypt: the key file does not exist; write a line "
                          "`1 HEX64` into it and chmod 600 it");
    }
    if (code == ONCE_OK) {
        code = once__seal_keys_parse(&options->seal, text, strlen(text), err);
        options->seal.plain_too = !options->encrypt_require;
    }
    OPENSSL_cleanse(text, sizeof(text));
    return code;
}

static void free_handle(once_t *once)
{
    if (once->store != NULL) {
        once->store->vt->close(once->store);
    }
    once__loop_free(once->loop);
    once__zstd_end(&once->zstd);
    free_pool(&once->pool);
    once__secrets_wipe(&once->secrets);
    once__seal_keys_wipe(&once->options.seal);
    OPENSSL_cleanse(once->secrets_text, sizeof(once->secrets_text));
    (void)pthread_rwlock_destroy(&once->secrets_lock);
    free(once);
}

static void kill_jobs(once_t *once)
{
    once__job_t *job = once->jobs;

    once->ended = 1;
    while (job != NULL) {
        if (job->submitted) {
            job = job->next; /* the store will answer it with ONCE_E_CLOSED */
        } else {
            once__job_kill(job);
            job = once->jobs;
        }
    }
}

/* The host is cut, so that the process always shows. */
static void name_holder(once_t *once)
{
    char host[ONCE__HOLDER_MAX - 11] = "";

    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(once->holder, sizeof(once->holder), "%s:%ld", host, (long)getpid());
}

int once__open_over(once__loop_t *loop, once__store_t *store, const once_options_t *options,
                    once_t **handle, once_error_t *err)
{
    once_t *once = calloc(1, sizeof(*once));
    int code;

    *handle = NULL;
    if (once == NULL) {
        store->vt->close(store);
        once__loop_free(loop);
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    once->generation = once__generation();
    once->loop = loop;
    once->store = store;
    once->options = *options;
    name_holder(once);
    (void)pthread_rwlock_init(&once->secrets_lock, NULL);
    code = read_seal_keys(&once->options, err);
    if (code == ONCE_OK) {
        code = once__keyring_open(once, err);
    }
    if (code == ONCE_OK) {
        code = once__bound_reap_start(once, err);
    }
    if (code == ONCE_OK && once->options.thread) {
        once__log_store(once); /* what it reads is the thread's from then on */
        code = once__dispatch_thread_start(once, err);
    }
    if (code != ONCE_OK) {
        kill_jobs(once);
        once__bound_reap_stop(once);
        once__keyring_close(once);
        free_handle(once);
        return code;
    }
    if (!once->options.thread) {
        once__log_store(once);
    }
    *handle = once;
    return ONCE_OK;
}

/* Finds the store of a URL, and checks everything that is written in it; `loop` is left for the caller. */
static int check_url(once__url_t *url, once_options_t *options, once__store_config_t *config,
                     const once__store_vt_t **vt, once_error_t *err)
{
    int code = once__options_from_url(options, url, err);

    if (code != ONCE_OK) {
        return code;
    }
    *vt = once__store_find(url->scheme, strlen(url->scheme));
    if (*vt == NULL) {
        return once__fail(err, ONCE_E_UNSUPPORTED,
                          "there is no \"%.20s\" store in this build; there are %s", url->scheme,
                          once__store_schemes());
    }
    *config = (once__store_config_t){
        .path = url->path, .timeout_ms = options->store_timeout_ms, .url = url};
    code = (*vt)->check(config, err);
    if (code == ONCE_OK && once__url_untaken(url) != NULL) {
        code = once__fail(err, ONCE_E_CONFIG, "store URL: the %s store has no parameter \"%s\"",
                          url->scheme, once__url_untaken(url));
    }
    return code;
}

static void log_progress(void *data, const char *message)
{
    const once_options_t *options = data;

    if (options->log != NULL && options->log_level >= ONCE_LOG_NOTICE) {
        options->log(ONCE_LOG_NOTICE, message, options->log_data);
    }
}

static int open_url(once__url_t *url, once_options_t *options, once_t **handle, once_error_t *err)
{
    once__store_config_t config;
    const once__store_vt_t *vt;
    once__store_t *store = NULL;
    int code = check_url(url, options, &config, &vt, err);

    if (code != ONCE_OK) {
        return code;
    }
    config.progress = log_progress;
    config.data = options;
    config.loop = once__loop_new(&once__real_env, &code);
    if (config.loop == NULL) {
        return once__fail(err, code, "cannot make an event loop: %s", once_error_text(code));
    }
    code = vt->open(&config, &store, err);
    if (code != ONCE_OK) {
        once__loop_free(config.loop);
        return code;
    }
    return once__open_over(config.loop, store, options, handle, err);
}

int once_store_check(const char *text, once_error_t *err)
{
    once__store_config_t config;
    const once__store_vt_t *vt;
    once_options_t options;
    once__url_t url;
    int code;

    if (text == NULL) {
        return once__fail(err, ONCE_E_INVALID, "%s", once_error_text(ONCE_E_INVALID));
    }
    if (err != NULL) {
        memset(err, 0, sizeof(*err));
    }
    once__options_init(&options);
    code = once__url_parse(&url, "store URL", text, 0, err);
    if (code != ONCE_OK) {
        return code;
    }
    code = check_url(&url, &options, &config, &vt, err);
    once__url_free(&url);
    return code;
}

int once_store_option(const char *text, const char *name, char *value, size_t size)
{
    const char *found;
    once__url_t url;
    int code = text == NULL || name == NULL ? ONCE_E_INVALID
                                            : once__url_parse(&url, "store URL", text, 0, NULL);

    if (code != ONCE_OK) {
        return code;
    }
    found = once__url_take(&url, name);
    if (found == NULL) {
        code = ONCE_E_NOT_FOUND;
    } else if (value != NULL && strlen(found) >= size) {
        code = ONCE_E_TOO_BIG;
    } else if (value != NULL) {
        memcpy(value, found, strlen(found) + 1);
    }
    once__url_free(&url);
    return code;
}

int once_open(const char *text, const once_options_t *given, once_t **handle, once_error_t *err)
{
    once_options_t options;
    once__url_t url;
    int code;

    if (handle == NULL || text == NULL) {
        return once__fail(err, ONCE_E_INVALID, "%s", once_error_text(ONCE_E_INVALID));
    }
    *handle = NULL;
    if (err != NULL) {
        memset(err, 0, sizeof(*err));
    }
    if (given != NULL) {
        options = *given;
    } else {
        once__options_init(&options);
    }
    code = once__url_parse(&url, "store URL", text, 0, err);
    if (code != ONCE_OK) {
        return code;
    }
    code = open_url(&url, &options, handle, err);
    once__url_free(&url);
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- closing */

/* Callbacks are called by dispatch only: it fails the asks under way. */
static void begin_shutdown(once_t *once)
{
    if (!once->closing) {
        once->closing = 1;
        once->asks_to_close = 1;
    }
    once__loop_wake(once->loop);
}

int once_shutdown(once_t *once, once_shutdown_cb cb, void *data)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    if (once->shutdown_cb != NULL) {
        code = ONCE_E_CLOSED; /* the callback of the first is outstanding */
    } else {
        once->shutdown_cb = cb;
        once->shutdown_data = data;
        begin_shutdown(once);
    }
    once__leave(once);
    return code;
}

static int is_drained(const once_t *once, const void *data)
{
    return once->job_count == 0;
}

static void drain(once_t *once, int timeout_ms)
{
    uint64_t until =
        timeout_ms < 0 ? UINT64_MAX : once__loop_now(once->loop) + (uint64_t)timeout_ms;

    once__dispatch_until(once, is_drained, NULL, until);
}

static unsigned count_writes(const once_t *once)
{
    unsigned count = 0;

    for (const once__job_t *job = once->jobs; job != NULL; job = job->next) {
        count += job->is_write ? 1 : 0;
    }
    return count;
}

static void drop_claims(once_t *once)
{
    once_claim_t *claim = once->claims;

    while (claim != NULL) {
        once_claim_t *next = claim->next;
        once__claim_stop(claim);
        /* The store has answered everything: only the reference of the caller is left. */
        claim->refs = 1;
        once__claim_unref(claim);
        claim = next;
    }
}

/* In a child of fork(): frees memory, and leaves everything else to the parent. */
static void abandon(once_t *once)
{
    once__job_t *job = once->jobs;
    once_claim_t *claim = once->claims;

    while (job != NULL) {
        once__job_t *next = job->next;
        free(job->op.record);
        free(job->payload);
        free(job->answer.owned);
        once__handle_free(once, job);
        job = next;
    }
    while (claim != NULL) {
        once_claim_t *next = claim->next;
        once__handle_free(once, claim);
        claim = next;
    }
    once->store->vt->abandon(once->store);
    once->store = NULL;
    free_handle(once);
}

int once_close(once_t *once, int timeout_ms)
{
    unsigned abandoned;

    if (once == NULL) {
        return ONCE_OK;
    }
    if (once__enter(once) != ONCE_OK) {
        abandon(once);
        return ONCE_OK;
    }
    if (once->depth > 0) {
        once__leave(once);
        return ONCE_E_REENTRANT;
    }
    begin_shutdown(once);
    if (!once__loop_env(once->loop)->simulated) {
        drain(once, timeout_ms);
    }
    if (once->threaded) {
        once__dispatch_thread_end(once);
    }
    abandoned = count_writes(once);
    if (abandoned > 0) {
        once__log(once, ONCE_LOG_ERROR,
                  "closed with %u writes that the store has not confirmed: their records stay as "
                  "they are until their leases end",
                  abandoned);
    }
    kill_jobs(once);
    once->store->vt->close(once->store);
    once->store = NULL;
    kill_jobs(once);
    drop_claims(once);
    once__bound_reap_stop(once);
    once__keyring_close(once);
    if (once->threaded) {
        (void)pthread_mutex_unlock(&once->lock);
        (void)pthread_cond_destroy(&once->changed);
        (void)pthread_mutex_destroy(&once->lock);
    }
    free_handle(once);
    return abandoned > 0 ? ONCE_E_UNAVAILABLE : ONCE_OK;
}
