/*
 * What takes as long as it takes: counting the records of a store, and asking gates, relays and consumers for their numbers. Each
 * has a thread, which works only while somebody looks; requests get what was found last.
 */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <once/experimental.h>

#include "base/buf.h"
#include "cli/stats.h"
#include "cli/store.h"
#include "cli/text.h"
#include "ui/ui.h"

#define COUNT_MS    2000 /* between two counts, at least */
#define COUNT_SHARE 20   /* counting takes this part of the time at most: 1/20 */
#define SCRAPE_MS   2000
#define TIMEOUT_MS  2000L /* of one peer */
#define LOOKING_MS  30000 /* after the last request nobody looks any more */
#define TEXT_MAX    (2 * 1024 * 1024)

typedef struct job {
    once__ui_watch_t *watch;
    pthread_t thread;
    int is_started;
    uint64_t asked_ms; /* when somebody looked last; 0: never */
    uint64_t next_ms;
    json_t *found; /* NULL: nothing yet */
} job_t;

struct once__ui_watch {
    once__ui_t *ui;
    once_t *once;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ends;
    job_t count, scrape;
};

/* ------------------------------------------------------------------------------------------------------------- jobs */

/* Waits until there is something to do. Returns 0 at the end. */
static int wait_for_work(job_t *job)
{
    once__ui_watch_t *watch = job->watch;
    int goes_on;

    (void)pthread_mutex_lock(&watch->lock);
    for (;;) {
        uint64_t now = once__ui_now();
        int looked_at = job->asked_ms != 0 && now - job->asked_ms < LOOKING_MS;
        struct timespec until;

        if (watch->ends || (looked_at && now >= job->next_ms)) {
            break;
        }
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        now = looked_at ? job->next_ms - now : 1000;
        until.tv_sec += (time_t)(now / 1000);
        until.tv_nsec += (long)(now % 1000) * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    }
    goes_on = !watch->ends;
    (void)pthread_mutex_unlock(&watch->lock);
    return goes_on;
}

/* Takes `found` over. */
static void keep(job_t *job, json_t *found, uint64_t pause_ms)
{
    (void)pthread_mutex_lock(&job->watch->lock);
    json_decref(job->found);
    job->found = found;
    job->next_ms = once__ui_now() + pause_ms;
    (void)pthread_mutex_unlock(&job->watch->lock);
}

/* What was found last; null: nothing yet. */
static json_t *ask(job_t *job)
{
    json_t *found;

    (void)pthread_mutex_lock(&job->watch->lock);
    job->asked_ms = once__ui_now();
    found = job->found != NULL ? json_deep_copy(job->found) : json_null();
    (void)pthread_cond_broadcast(&job->watch->changed);
    (void)pthread_mutex_unlock(&job->watch->lock);
    return found;
}

static json_t *now_json(void)
{
    return json_integer((json_int_t)time(NULL) * 1000);
}

/* --------------------------------------------------------------------------------------------------------- counting */

static json_t *count(const once__ui_watch_t *watch)
{
    once_answer_t *answer = NULL;
    once__cli_json_t json;
    char said[600], server[80];
    int error = once_store_stats_sync(watch->once, &answer);

    if (error == ONCE_OK) {
        once__cli_stats_json(once_answer_stats(answer), &json);
        once__cli_json_bool(&json, "up", 1);
    } else {
        once__cli_hear(said, sizeof(said));
        (void)once__cli_store_failed("count the records", error);
        once__cli_hear(NULL, 0);
        once__cli_json_start(&json);
        once__cli_json_bool(&json, "up", 0);
        once__cli_json_text(&json, "error", said);
    }
    if (once_store_server(watch->once, server, sizeof(server)) > 0) {
        once__cli_json_text(&json, "server", server);
    }
    once__cli_json_put(&json, "at", now_json());
    once_answer_free(answer);
    return json.object;
}

static void *run_count(void *data)
{
    job_t *job = data;

    while (wait_for_work(job)) {
        uint64_t begun = once__ui_now(), took;
        json_t *found = count(job->watch);

        took = once__ui_now() - begun;
        keep(job, found, took * COUNT_SHARE > COUNT_MS ? took * COUNT_SHARE : COUNT_MS);
    }
    return NULL;
}

json_t *once__ui_stats(once__ui_request_t *request)
{
    return json_pack("{s:o, s:o}", "stats", ask(&request->ui->watch->count), "now", now_json());
}

void once__ui_watch_stale(once__ui_watch_t *watch)
{
    (void)pthread_mutex_lock(&watch->lock);
    watch->count.next_ms = 0;
    (void)pthread_cond_broadcast(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
}

/* --------------------------------------------------------------------------------------------------------- scraping */

static size_t take(char *bytes, size_t size, size_t count, void *data)
{
    return once__buf_add(data, bytes, size * count) == ONCE_OK ? size * count : 0;
}

/* A peer that is silent must not keep the end waiting. */
static int has_ended(void *data, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    once__ui_watch_t *watch = data;
    int ends;

    (void)a, (void)b, (void)c, (void)d;
    (void)pthread_mutex_lock(&watch->lock);
    ends = watch->ends;
    (void)pthread_mutex_unlock(&watch->lock);
    return ends;
}

static int fetch(CURL *easy, once__ui_watch_t *watch, const char *url, once__buf_t *text,
                 char trouble[CURL_ERROR_SIZE])
{
    long status = 0;

    curl_easy_reset(easy);
    trouble[0] = '\0';
    if (curl_easy_setopt(easy, CURLOPT_URL, url) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK) {
        return -1;
    }
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, text);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, has_ended);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, watch);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, trouble);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "once/" ONCE_VERSION);
    if (curl_easy_perform(easy) != CURLE_OK) {
        return -1;
    }
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        snprintf(trouble, CURL_ERROR_SIZE, "answered %ld", status);
        return -1;
    }
    return 0;
}

static json_t *scrape_one(CURL *easy, once__ui_watch_t *watch, const char *kind, const char *url)
{
    char trouble[CURL_ERROR_SIZE] = "out of memory";
    once__buf_t text = ONCE__BUF(TEXT_MAX);
    int good = easy != NULL && fetch(easy, watch, url, &text, trouble) == 0;
    json_t *found =
        json_pack("{s:s, s:s, s:b, s:o, s:o}", "kind", kind, "url", once__cli_shown_url(url).text,
                  "up", good, "at", now_json(), "samples",
                  good && text.data != NULL ? once__ui_samples(text.data) : json_array());

    if (!good) {
        (void)json_object_set_new(found, "error",
                                  json_string(trouble[0] != '\0' ? trouble : "no answer"));
    }
    once__buf_free(&text);
    return found;
}

static void *run_scrape(void *data)
{
    job_t *job = data;
    const once__ui_settings_t *set = job->watch->ui->set;
    const struct {
        const char *kind;
        const once__cli_list_t *urls;
    } peers[] = {{"gate", &set->gates}, {"relay", &set->relays}, {"consume", &set->consumers}};
    CURL *easy = curl_easy_init();

    while (wait_for_work(job)) {
        json_t *found = json_array();

        for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++) {
            for (size_t k = 0; k < peers[i].urls->count; k++) {
                (void)json_array_append_new(
                    found, scrape_one(easy, job->watch, peers[i].kind, peers[i].urls->items[k]));
            }
        }
        keep(job, found, SCRAPE_MS);
    }
    curl_easy_cleanup(easy);
    return NULL;
}

json_t *once__ui_metrics(once__ui_request_t *request)
{
    return json_pack("{s:o, s:o}", "peers", ask(&request->ui->watch->scrape), "now", now_json());
}

/* ---------------------------------------------------------------------------------------------------- start and end */

static int start(once__ui_watch_t *watch, job_t *job, void *(*run)(void *))
{
    job->watch = watch;
    job->is_started = pthread_create(&job->thread, NULL, run, job) == 0;
    return job->is_started ? 0 : -1;
}

static void end(job_t *job)
{
    if (job->is_started) {
        (void)pthread_join(job->thread, NULL);
    }
    json_decref(job->found);
}

once__ui_watch_t *once__ui_watch_start(once__ui_t *ui, once_t *once)
{
    once__ui_watch_t *watch = calloc(1, sizeof(*watch));
    pthread_condattr_t clock;

    if (watch == NULL) {
        return NULL;
    }
    watch->ui = ui;
    watch->once = once;
    (void)pthread_mutex_init(&watch->lock, NULL);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&watch->changed, &clock);
    (void)pthread_condattr_destroy(&clock);
    if (start(watch, &watch->count, run_count) != 0 ||
        start(watch, &watch->scrape, run_scrape) != 0) {
        once__ui_watch_stop(watch);
        return NULL;
    }
    return watch;
}

void once__ui_watch_stop(once__ui_watch_t *watch)
{
    if (watch == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&watch->lock);
    watch->ends = 1;
    (void)pthread_cond_broadcast(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
    end(&watch->count);
    end(&watch->scrape);
    (void)pthread_cond_destroy(&watch->changed);
    (void)pthread_mutex_destroy(&watch->lock);
    free(watch);
}
