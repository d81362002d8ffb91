/*
 * Requests, over libcurl. Each has a connection of its own: a reused one that turns out to be dead would make libcurl send the
 * request a second time, and the judge would be the one who repeats. HTTP/1.1, because in HTTP/2 a connection cannot be cut for one
 * request alone. Redirects are not followed, proxies of the environment are not used, certificates are verified.
 */
#include "judge/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <once/once.h>

#include "cli/text.h"

#define CONNECT_MS   10000L
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 2000
#define POLL_MS      50
#define EFFECTS_MAX  1048576
#define LINE_SIZE    4096

/* One transfer under way. */
typedef struct transfer {
    once__judge_t *judge;
    once__judge_exchange_t *exchange;
    CURL *easy;
    struct curl_slist *headers;
    size_t given; /* of the body, if the request is cut */
    int running;
} transfer_t;

static size_t take_head(const char *bytes, size_t size, size_t count, void *data)
{
    once__judge_answer_t *answer = data;
    size_t len = size * count;

    if (len >= 5 && memcmp(bytes, "HTTP/", 5) == 0) {
        once__buf_reset(&answer->head, SIZE_MAX); /* an interim response came before */
    } else if (len > 2) {
        return once__buf_add(&answer->head, bytes, len) == ONCE_OK ? len : 0;
    }
    return len;
}

static size_t take_body(const char *bytes, size_t size, size_t count, void *data)
{
    once__judge_answer_t *answer = data;

    return once__buf_add(&answer->body, bytes, size * count) == ONCE_OK ? size * count : 0;
}

/* Half of the body, and then nothing. */
static size_t give_half(char *out, size_t size, size_t count, void *data)
{
    transfer_t *transfer = data;
    once_slice_t body = transfer->exchange->request.body;
    size_t left = body.len / 2 - transfer->given;
    size_t len = left < size * count ? left : size * count;

    if (len == 0) {
        return CURL_READFUNC_PAUSE;
    }
    memcpy(out, (const char *)body.data + transfer->given, len);
    transfer->given += len;
    return len;
}

/* --------------------------------------------------------------------------------------------------------- headers */

int once__judge_line_is(const char *line, const char *name)
{
    size_t len = strlen(name);

    return strncasecmp(line, name, len) == 0 && (line[len] == ':' || line[len] == ';');
}

static int is_among(char *const *lines, const char *line)
{
    char name[256];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(line, ":;"), line);
    for (; lines != NULL && *lines != NULL; lines++) {
        if (once__judge_line_is(*lines, name)) {
            return 1;
        }
    }
    return 0;
}

static void add(once__judge_t *judge, struct curl_slist **list, const char *name, const char *value)
{
    char line[LINE_SIZE];
    struct curl_slist *longer;

    if (value == NULL) {
        snprintf(line, sizeof(line), "%s", name);
    } else {
        snprintf(line, sizeof(line), value[0] != '\0' ? "%s: %s" : "%s;", name, value);
    }
    longer = curl_slist_append(*list, line);
    if (longer == NULL) {
        judge->broken = 1;
    } else {
        *list = longer;
    }
}

/* The lines of the command line; those of the second credential replace lines of the same name. */
static void add_lines(once__judge_t *judge, struct curl_slist **list,
                      const once__judge_request_t *request)
{
    int type = request->type != NULL;

    for (char **line = judge->header_lines; line != NULL && *line != NULL; line++) {
        int replaced = request->other && is_among(judge->other_lines, *line);
        if (!replaced && !(type && once__judge_line_is(*line, "content-type"))) {
            add(judge, list, *line, NULL);
        }
    }
    for (char **line = judge->other_lines; request->other && line != NULL && *line != NULL;
         line++) {
        add(judge, list, *line, NULL);
    }
}

static struct curl_slist *make_headers(once__judge_t *judge, const once__judge_request_t *request)
{
    struct curl_slist *list = NULL;
    const char *type = request->type != NULL ? request->type : judge->type;

    add_lines(judge, &list, request);
    if (type != NULL) {
        add(judge, &list, "Content-Type", type);
    }
    if (request->key != NULL) {
        add(judge, &list, judge->key_header, request->key);
    }
    if (request->key_again != NULL) {
        add(judge, &list, judge->key_header, request->key_again);
    }
    add(judge, &list, "Expect:", NULL);
    return list;
}

/* --------------------------------------------------------------------------------------------------------- one transfer */

static void set_common(const once__judge_t *judge, CURL *easy, char *trouble)
{
    uint64_t now = once__judge_clock(judge);
    uint64_t left = judge->deadline_ms > now ? judge->deadline_ms - now : 1;

    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                     (long)(left < judge->timeout_ms ? left : judge->timeout_ms));
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, trouble);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "once/" ONCE_VERSION);
    if (judge->options->ca_file != NULL) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, judge->options->ca_file);
    }
}

static int start(transfer_t *transfer, once__judge_t *judge, once__judge_exchange_t *exchange)
{
    const once__judge_request_t *request = &exchange->request;
    CURL *easy = curl_easy_init();

    transfer->judge = judge;
    transfer->exchange = exchange;
    transfer->easy = easy;
    transfer->headers = make_headers(judge, request);
    if (easy == NULL || judge->broken) {
        return -1;
    }
    set_common(judge, easy, exchange->answer.trouble);
    curl_easy_setopt(easy, CURLOPT_URL, judge->url);
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, judge->method);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
    if (request->cut == ONCE__JUDGE_CUT_REQUEST) {
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_half);
        curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
    } else {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body.len > 0 ? request->body.data : "");
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange->answer);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange->answer);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    exchange->answer.sent_ms = once__judge_clock(judge);
    if (curl_multi_add_handle(judge->multi, easy) != CURLM_OK) {
        return -1;
    }
    transfer->running = 1;
    judge->requests++;
    return 0;
}

static void end(transfer_t *transfer, CURLcode code)
{
    once__judge_answer_t *answer = &transfer->exchange->answer;
    long status = 0;

    curl_multi_remove_handle(transfer->judge->multi, transfer->easy);
    transfer->running = 0;
    answer->ended_ms = once__judge_clock(transfer->judge);
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && answer->body.error == ONCE_OK && answer->head.error == ONCE_OK) {
        answer->status = (int)status;
        return;
    }
    if (answer->body.error != ONCE_OK || answer->head.error != ONCE_OK) {
        snprintf(answer->trouble, sizeof(answer->trouble), "the answer is too large to be judged");
    } else if (answer->trouble[0] == '\0') {
        snprintf(answer->trouble, sizeof(answer->trouble), "%s", curl_easy_strerror(code));
    }
}

/* Closes the connection of a transfer that is to be cut, when as much is sent as should be. */
static void cut(transfer_t *transfer)
{
    const once__judge_request_t *request = &transfer->exchange->request;
    size_t wanted =
        request->cut == ONCE__JUDGE_CUT_REQUEST ? request->body.len / 2 : request->body.len;
    curl_off_t sent = 0;

    curl_easy_getinfo(transfer->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    if (request->cut != ONCE__JUDGE_WHOLE && (size_t)sent >= wanted) {
        snprintf(transfer->exchange->answer.trouble, sizeof(transfer->exchange->answer.trouble),
                 "cut by the judge %s",
                 request->cut == ONCE__JUDGE_CUT_REQUEST ? "in the middle of the request"
                                                         : "before the answer");
        end(transfer, CURLE_ABORTED_BY_CALLBACK);
    }
}

/* ------------------------------------------------------------------------------------------------------- many of them */

static int collect(once__judge_t *judge)
{
    CURLMsg *message;
    int left, ended = 0;

    while ((message = curl_multi_info_read(judge->multi, &left)) != NULL) {
        transfer_t *transfer = NULL;
        CURLcode code = message->data.result;
        if (message->msg == CURLMSG_DONE) {
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
            end(transfer, code);
            ended++;
        }
    }
    return ended;
}

static void pump(once__judge_t *judge, transfer_t *transfers, size_t count)
{
    size_t running = 1;

    while (running > 0) {
        int number, waiting = 1;
        if (curl_multi_perform(judge->multi, &number) != CURLM_OK) {
            judge->broken = 1;
        }
        collect(judge);
        running = 0;
        for (size_t i = 0; i < count; i++) {
            if (transfers[i].running) {
                cut(&transfers[i]);
                running += (size_t)transfers[i].running;
            }
        }
        if (judge->broken) {
            return;
        }
        if (running > 0 && curl_multi_poll(judge->multi, NULL, 0, POLL_MS, &waiting) != CURLM_OK) {
            judge->broken = 1;
        }
    }
}

/* Room in the check's result for one more exchange; NULL: there are too many, which no check has. */
static once__judge_exchange_t *keep(once__judge_t *judge, const once__judge_request_t *request)
{
    once__judge_result_t *result = judge->now;
    once__judge_exchange_t *exchange = &result->exchanges[result->exchange_count];

    if (result->exchange_count == ONCE__JUDGE_KEEP) {
        judge->broken = 1;
        return NULL;
    }
    result->exchange_count++;
    exchange->request = *request;
    if (request->key != NULL) {
        snprintf(exchange->key, sizeof(exchange->key), "%s", request->key);
        exchange->request.key = exchange->key;
    }
    if (request->key_again != NULL) {
        snprintf(exchange->key_again, sizeof(exchange->key_again), "%s", request->key_again);
        exchange->request.key_again = exchange->key_again;
    }
    exchange->answer.head.max = ONCE__JUDGE_HEAD_MAX;
    exchange->answer.body.max = ONCE__JUDGE_ANSWER_MAX;
    return exchange;
}

int once__judge_send_all(once__judge_t *judge, const once__judge_request_t *requests, size_t count,
                         const once__judge_exchange_t **made)
{
    transfer_t *transfers = calloc(count, sizeof(*transfers));

    judge->broken |= transfers == NULL;
    for (size_t i = 0; i < count && !judge->broken; i++) {
        once__judge_exchange_t *exchange = keep(judge, &requests[i]);
        if (made != NULL) {
            made[i] = exchange;
        }
        if (exchange == NULL || start(&transfers[i], judge, exchange) != 0) {
            judge->broken = 1;
        }
    }
    if (!judge->broken) {
        pump(judge, transfers, count);
    }
    for (size_t i = 0; transfers != NULL && i < count; i++) {
        if (transfers[i].running) {
            curl_multi_remove_handle(judge->multi, transfers[i].easy);
        }
        curl_easy_cleanup(transfers[i].easy);
        curl_slist_free_all(transfers[i].headers);
    }
    free(transfers);
    return judge->broken ? -1 : 0;
}

const once__judge_exchange_t *once__judge_send(once__judge_t *judge,
                                               const once__judge_request_t *request)
{
    static const once__judge_exchange_t none = {.answer.trouble = "the judge is out of memory"};
    const once__judge_exchange_t *made = NULL;

    (void)once__judge_send_all(judge, request, 1, &made);
    return made != NULL ? made : &none;
}

const once__judge_exchange_t *once__judge_send_until(once__judge_t *judge,
                                                     const once__judge_request_t *request)
{
    uint64_t pause = PAUSE_MIN_MS, end_ms = once__judge_clock(judge) + judge->patience_ms;

    for (int tries = 1;; tries++) {
        const once__judge_exchange_t *exchange = once__judge_send(judge, request);
        once_slice_t after = once__judge_header(&exchange->answer, "retry-after");
        uint64_t asked = after.data != NULL ? strtoull(after.data, NULL, 10) * 1000 : 0;

        if (!once__judge_is_not_now(&exchange->answer) || tries == ONCE__JUDGE_TRIES ||
            judge->broken || once__judge_clock(judge) > end_ms ||
            once__judge_clock(judge) > judge->deadline_ms) {
            return exchange;
        }
        asked = asked > PAUSE_MAX_MS ? PAUSE_MAX_MS : asked;
        once__judge_wait(judge, asked > pause ? asked : pause);
        pause = 2 * pause < PAUSE_MAX_MS ? 2 * pause : PAUSE_MAX_MS;
    }
}

/* ------------------------------------------------------------------------------------------------------------- effects */

static size_t take_effects(const char *bytes, size_t size, size_t count, void *data)
{
    return once__buf_add(data, bytes, size * count) == ONCE_OK ? size * count : 0;
}

char *once__judge_get(once__judge_t *judge, const char *url, int foreign, char *why, size_t size)
{
    once__buf_t body = ONCE__BUF(EFFECTS_MAX);
    char trouble[CURL_ERROR_SIZE] = "";
    struct curl_slist *list = NULL;
    CURL *easy = curl_easy_init();
    CURLcode code = CURLE_OUT_OF_MEMORY;
    long status = 0;

    for (char **line = judge->header_lines; !foreign && line != NULL && *line != NULL; line++) {
        if (!once__judge_line_is(*line, "content-type")) {
            add(judge, &list, *line, NULL);
        }
    }
    if (easy != NULL && !judge->broken) {
        set_common(judge, easy, trouble);
        curl_easy_setopt(easy, CURLOPT_URL, url);
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, list);
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_effects);
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, &body);
        code = curl_easy_perform(easy);
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    }
    curl_easy_cleanup(easy);
    curl_slist_free_all(list);
    if (code == CURLE_OK && status == 200 && once__buf_add(&body, "", 0) == ONCE_OK) {
        return once__buf_take(&body);
    }
    once__buf_free(&body);
    if (code != CURLE_OK) {
        snprintf(why, size, "%s", trouble[0] != '\0' ? trouble : curl_easy_strerror(code));
    } else {
        snprintf(why, size, "it answers %ld", status);
    }
    return NULL;
}
