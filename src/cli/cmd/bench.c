/*
 * once bench store: how many operations a store can claim and complete in a second, and what that costs.
 *
 * `inflight` slots each claim a new key, complete it, and begin again; all through the public API and one loop, as a host
 * would do it. What is measured is the pair: from asking to the durable completion.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <once/local.h>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/histogram.h"
#include "cli/json.h"
#include "cli/store.h"
#include "cli/text.h"

#define INFLIGHT     64
#define INFLIGHT_MAX 65536
#define PAIRS        100000
#define VALUE_SIZE   256
#define PACE_MS      1     /* how often pairs are started, with a rate */
#define STALL_MS     30000 /* without an answer: give up */

typedef struct settings {
    once__cli_number_t pairs;
    once__cli_number_t inflight;
    once__cli_number_t value_size;
    once__cli_number_t seconds;
    once__cli_number_t rate;
    int json;
} settings_t;

/*
 * The limit of the disk: what nothing can beat that keeps the same bytes durable. For about a second they are appended to a file
 * beside those of the store, `inflight` claims in one sync and as many completions in another, and cannot be found again.
 */
typedef struct limit {
    double pairs_per_second;
    double cpu_us_per_pair;
    double latency_us; /* of a pair: two syncs; the median */
} limit_t;

typedef struct bench bench_t;

typedef struct slot {
    bench_t *bench;
    struct slot *next_idle;
    uint64_t began_ns;
} slot_t;

struct bench {
    once_t *once;
    once_policy_t *policy;
    once_response_t response;
    uint8_t *body;
    slot_t *slots;
    slot_t *idle;                      /* slots that wait until a pair is due */
    uint64_t inflight, pairs, seconds; /* asked for; 0 seconds: no end */
    uint64_t rate;                     /* pairs per second at most; 0: as many as go */
    char run[ONCE_UUID_SIZE];          /* makes the keys of this run new */
    uint64_t begun, finished;
    uint64_t active;
    uint64_t start_ns, end_ns, cpu_ns;
    int error; /* once_code_t, the first one */
    once__cli_histogram_t latency;
    int has_limit;
    limit_t limit; /* of the disk */
};

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t cpu_ns(int whose)
{
    struct rusage usage;

    getrusage(whose, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
}

static int wants_more(const bench_t *bench)
{
    if (bench->error != ONCE_OK || (bench->pairs != 0 && bench->begun >= bench->pairs)) {
        return 0;
    }
    return bench->seconds == 0 ||
           clock_ns() - bench->start_ns < bench->seconds * UINT64_C(1000000000);
}

static void slot_failed(slot_t *slot, int error)
{
    if (slot->bench->error == ONCE_OK) {
        slot->bench->error = error;
    }
    slot->bench->active--;
}

static void begin_pair(slot_t *slot);

/* Is another pair due? Without a rate the next always is. */
static int is_due(const bench_t *bench)
{
    return bench->rate == 0 || (double)bench->begun < (double)(clock_ns() - bench->start_ns) *
                                                          (double)bench->rate / 1e9;
}

static void on_complete(once_t *once, once_answer_t *answer, void *data)
{
    slot_t *slot = data;
    int error = once_answer_error(answer);

    if (error != ONCE_OK || once_answer_outcome(answer) != ONCE_OUTCOME_DONE) {
        slot_failed(slot, error != ONCE_OK ? error : ONCE_E_CONFLICT);
        return;
    }
    once__cli_histogram_add(&slot->bench->latency, clock_ns() - slot->began_ns);
    slot->bench->finished++;
    slot->bench->active--;
    if (!wants_more(slot->bench)) {
        return;
    }
    if (is_due(slot->bench)) {
        begin_pair(slot);
    } else {
        slot->next_idle = slot->bench->idle;
        slot->bench->idle = slot;
    }
}

/* Starts what has become due. */
static void begin_due(bench_t *bench)
{
    while (bench->idle != NULL && wants_more(bench) && is_due(bench)) {
        slot_t *slot = bench->idle;
        bench->idle = slot->next_idle;
        begin_pair(slot);
    }
}

static void on_begin(once_t *once, once_answer_t *answer, void *data)
{
    slot_t *slot = data;
    once_claim_t *claim = once_answer_take_claim(answer);
    int error = once_answer_error(answer);

    if (claim == NULL) {
        slot_failed(slot, error != ONCE_OK ? error : ONCE_E_CONFLICT);
        return;
    }
    error = once_claim_complete(claim, &slot->bench->response, on_complete, slot);
    if (error != ONCE_OK) {
        once_claim_drop(claim);
        slot_failed(slot, error);
    }
}

static void begin_pair(slot_t *slot)
{
    bench_t *bench = slot->bench;
    once_ask_t ask = ONCE_ASK_INIT;
    char key[96];
    int error;

    snprintf(key, sizeof(key), "bench-%s-%" PRIu64, bench->run, bench->begun);
    ask.scope = once__slice_of("once bench");
    ask.key = once__slice_of(key);
    ask.method = once__slice_of("POST");
    ask.target = once__slice_of("/bench");
    ask.bytes = ask.key;
    ask.policy = bench->policy;
    slot->began_ns = clock_ns();
    bench->begun++;
    bench->active++;
    error = once_begin(bench->once, &ask, on_begin, slot);
    if (error != ONCE_OK) {
        slot_failed(slot, error);
    }
}

/* Bytes that do not compress: a store that compresses shall not be flattered. */
static void fill(uint8_t *bytes, size_t len)
{
    uint64_t x = UINT64_C(0x9e3779b97f4a7c15);

    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (uint8_t)(x >> 24);
    }
}

static int prepare(bench_t *bench, const settings_t *set)
{
    const once_response_t empty = ONCE_RESPONSE_INIT;
    uint64_t size = set->value_size.given ? set->value_size.value : VALUE_SIZE;
    int error;

    bench->inflight = set->inflight.given ? set->inflight.value : INFLIGHT;
    bench->seconds = set->seconds.value;
    bench->rate = set->rate.value;
    bench->pairs = set->pairs.given ? set->pairs.value : (set->seconds.given ? 0 : PAIRS);
    bench->policy = once_policy_new();
    bench->body = malloc(size + 1);
    bench->slots = calloc(bench->inflight, sizeof(bench->slots[0]));
    if (bench->policy == NULL || bench->body == NULL || bench->slots == NULL) {
        return ONCE_E_NOMEM;
    }
    error = once_policy_set(bench->policy, "ttl", "1m", NULL);
    if (error == ONCE_OK) {
        error = once_key_uuid4(bench->run);
    }
    fill(bench->body, size);
    bench->response = empty;
    bench->response.body.data = bench->body;
    bench->response.body.len = size;
    return error;
}

static void run_pairs(bench_t *bench)
{
    uint64_t cpu_before = cpu_ns(RUSAGE_SELF);
    uint64_t finished_before = 0;
    uint64_t moved_ns;

    bench->start_ns = clock_ns();
    moved_ns = bench->start_ns;
    for (uint64_t i = bench->inflight; i-- > 0;) {
        bench->slots[i].bench = bench;
        bench->slots[i].next_idle = bench->idle;
        bench->idle = &bench->slots[i];
    }
    begin_due(bench);
    while (bench->active > 0 || (bench->idle != NULL && wants_more(bench))) {
        int got = once_wait(bench->once, bench->rate != 0 ? PACE_MS : 1000);
        if (got < 0) {
            bench->error = got;
            break;
        }
        begin_due(bench);
        if (bench->finished != finished_before) {
            finished_before = bench->finished;
            moved_ns = clock_ns();
        } else if (clock_ns() - moved_ns > STALL_MS * UINT64_C(1000000)) {
            bench->error = ONCE_E_UNAVAILABLE;
            break;
        }
    }
    bench->end_ns = clock_ns();
    bench->cpu_ns = cpu_ns(RUSAGE_SELF) - cpu_before;
}

/* ----------------------------------------------------------------------------------------------- the limit of the disk */

#define FILE_SIZE  (UINT64_C(16) << 20) /* written from the beginning again when it is full */
#define CHUNK      (UINT64_C(1) << 20)
#define TIME_NS    UINT64_C(1000000000)
#define CLAIM      232 /* bytes of a claim's frame with a key like ours (docs/format.md) */
#define COMPLETION 136 /* of a completion's, beside the body */

typedef struct file {
    int fd;
    uint8_t *bytes; /* CHUNK of them */
    uint64_t tail;
} file_t;

/* Appends `len` bytes and syncs. Returns 0 or -1. */
static int append(file_t *file, uint64_t len)
{
    while (len > 0) {
        uint64_t part = len < CHUNK ? len : CHUNK;
        if (file->tail + part > FILE_SIZE) {
            file->tail = 0;
        }
        if (pwrite(file->fd, file->bytes, part, (off_t)file->tail) != (ssize_t)part) {
            return -1;
        }
        file->tail += part;
        len -= part;
    }
    return fdatasync(file->fd);
}

/* All of it is written once before: to overwrite is what a store does that is in use. */
static int prepare_file(file_t *file, const char *directory)
{
    file->fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    file->bytes = malloc(CHUNK);
    if (file->fd < 0 || file->bytes == NULL) {
        return -1;
    }
    memset(file->bytes, 'x', CHUNK);
    return append(file, FILE_SIZE);
}

static int append_pairs(file_t *file, uint64_t inflight, uint64_t value_size, limit_t *limit,
                        once__cli_histogram_t *latency)
{
    uint64_t start = clock_ns(), cpu = cpu_ns(RUSAGE_THREAD), pairs = 0, now = start;

    while (now - start < TIME_NS) {
        uint64_t began = now;
        if (append(file, inflight * CLAIM) != 0 ||
            append(file, inflight * (COMPLETION + value_size)) != 0) {
            return 0;
        }
        now = clock_ns();
        once__cli_histogram_add(latency, now - began);
        pairs += inflight;
    }
    limit->pairs_per_second = (double)pairs * 1e9 / (double)(now - start);
    limit->cpu_us_per_pair = (double)(cpu_ns(RUSAGE_THREAD) - cpu) / 1000.0 / (double)pairs;
    limit->latency_us = (double)once__cli_histogram_at(latency, 0.5) / 1000.0;
    return 1;
}

/* Leaves nothing behind. Returns 0 if the store is not local, or its filesystem has no unnamed files. */
static int measure_limit(const char *url, uint64_t inflight, uint64_t value_size, limit_t *limit)
{
    once__cli_histogram_t *latency = calloc(1, sizeof(*latency));
    file_t file = {.fd = -1};
    char directory[PATH_MAX];
    int measured = latency != NULL &&
                   once_local_path(url, directory, sizeof(directory)) == ONCE_OK &&
                   prepare_file(&file, directory) == 0 &&
                   append_pairs(&file, inflight, value_size, limit, latency);

    if (file.fd >= 0) {
        (void)close(file.fd);
    }
    free(file.bytes);
    free(latency);
    return measured;
}

/* ------------------------------------------------------------------------------------------------------------- results */

static double per_pair_us(const bench_t *bench, uint64_t ns)
{
    return bench->finished > 0 ? (double)ns / 1000.0 / (double)bench->finished : 0;
}

static double seconds_taken(const bench_t *bench)
{
    return (double)(bench->end_ns - bench->start_ns) / 1e9;
}

typedef struct percentile {
    const char *name;
    double share;
} percentile_t;

static const percentile_t percentiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0},
};

static int print_json(const bench_t *bench)
{
    once__cli_json_t json;
    once__cli_json_t latency;

    once__cli_json_start(&json);
    once__cli_json_number(&json, "pairs", bench->finished);
    once__cli_json_number(&json, "inflight", bench->inflight);
    once__cli_json_number(&json, "value_size", bench->response.body.len);
    once__cli_json_real(&json, "seconds", seconds_taken(bench));
    once__cli_json_real(&json, "pairs_per_second", (double)bench->finished / seconds_taken(bench));
    once__cli_json_real(&json, "cpu_us_per_pair", per_pair_us(bench, bench->cpu_ns));
    once__cli_json_start(&latency);
    for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++) {
        uint64_t ns = once__cli_histogram_at(&bench->latency, percentiles[i].share);
        once__cli_json_real(&latency, percentiles[i].name, (double)ns / 1000.0);
    }
    once__cli_json_nest(&json, "latency_us", &latency);
    if (bench->has_limit) {
        once__cli_json_t limit;
        once__cli_json_start(&limit);
        once__cli_json_real(&limit, "pairs_per_second", bench->limit.pairs_per_second);
        once__cli_json_real(&limit, "cpu_us_per_pair", bench->limit.cpu_us_per_pair);
        once__cli_json_real(&limit, "latency_us", bench->limit.latency_us);
        once__cli_json_nest(&json, "limit", &limit);
    }
    return once__cli_json_print(&json);
}

/* Beside a figure: what the disk allows. */
static void print_limit(const bench_t *bench, const char *before, int digits, double value)
{
    if (bench->has_limit) {
        printf("; limit %s%.*f", before, digits, value);
    }
}

static int print_text(const bench_t *bench)
{
    printf("pairs    %" PRIu64 " claimed and completed in %.2f s, %" PRIu64 " in flight, %zu bytes "
           "each\n",
           bench->finished, seconds_taken(bench), bench->inflight, bench->response.body.len);
    printf("rate     %.0f pairs/s", (double)bench->finished / seconds_taken(bench));
    print_limit(bench, "", 0, bench->limit.pairs_per_second);
    printf("\ncpu      %.1f us per pair, of this process", per_pair_us(bench, bench->cpu_ns));
    print_limit(bench, "", 1, bench->limit.cpu_us_per_pair);
    fputs("\nlatency ", stdout);
    for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++) {
        uint64_t ns = once__cli_histogram_at(&bench->latency, percentiles[i].share);
        printf(" %s %.3f ms", percentiles[i].name, (double)ns / 1e6);
    }
    print_limit(bench, "p50 ", 3, bench->limit.latency_us / 1000.0);
    puts(bench->has_limit ? " ms" : "");
    return ONCE__CLI_OK;
}

static int check_settings(const once__cli_call_t *call, const settings_t *set)
{
    if (call->url == NULL) {
        return once__cli_usage(call->command,
                               "missing store: give its URL; ONCE_STORE is not used, because the "
                               "store is filled with records");
    }
    if (set->inflight.given && (set->inflight.value == 0 || set->inflight.value > INFLIGHT_MAX)) {
        return once__cli_usage(call->command, "--inflight must be between 1 and %d", INFLIGHT_MAX);
    }
    if (set->value_size.value > ONCE_BODY_STORE_MAX) {
        return once__cli_usage(call->command, "--value-size must be at most %d bytes",
                               ONCE_BODY_STORE_MAX);
    }
    if (set->pairs.given && set->pairs.value == 0) {
        return once__cli_usage(call->command, "--pairs must be greater than 0");
    }
    if ((set->seconds.given && set->seconds.value == 0) || set->seconds.value > 86400) {
        return once__cli_usage(call->command, "--seconds must be between 1 and 86400");
    }
    return ONCE__CLI_OK;
}

static int measure(bench_t *bench, const char *url, const settings_t *set)
{
    bench->error = prepare(bench, set);
    if (bench->error == ONCE_OK) {
        run_pairs(bench);
    }
    if (bench->error != ONCE_OK) {
        return once__cli_store_failed("continue the benchmark", bench->error);
    }
    bench->has_limit = measure_limit(url, bench->inflight, bench->response.body.len, &bench->limit);
    return set->json ? print_json(bench) : print_text(bench);
}

static int run_bench(const once__cli_call_t *call)
{
    static const char *const none[] = {NULL};
    int code = check_settings(call, call->settings);
    bench_t *bench;

    if (code != ONCE__CLI_OK || (code = once__cli_reach(call->url)) != ONCE__CLI_OK) {
        return code;
    }
    bench = calloc(1, sizeof(*bench)); /* the histogram is too large for a stack */
    if (bench == NULL) {
        return once__cli_store_failed("run the benchmark", ONCE_E_NOMEM);
    }
    code = once__cli_open_url(call->url, none, &bench->once);
    if (code == ONCE__CLI_OK) {
        code = measure(bench, call->url, call->settings);
    }
    once__cli_close(bench->once); /* calls back what is left: the slots must still be there */
    once_policy_free(bench->policy);
    free(bench->body);
    free(bench->slots);
    free(bench);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"pairs", 0, ONCE__CLI_NUMBER, "N", "N claims and completions (default 100000, or as many as --seconds allows)",
     offsetof(settings_t, pairs)},
    {"inflight", 0, ONCE__CLI_NUMBER, "N", "N at the same time (default 64)", offsetof(settings_t, inflight)},
    {"value-size", 0, ONCE__CLI_SIZE, "SIZE", "size of the stored response (default 256)", offsetof(settings_t, value_size)},
    {"seconds", 0, ONCE__CLI_NUMBER, "S", "stop after this time", offsetof(settings_t, seconds)},
    {"rate", 0, ONCE__CLI_NUMBER, "N", "at most N pairs per second (default: as many as go)", offsetof(settings_t, rate)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_bench_store = {
    .name = "bench store",
    .operands = "URL",
    .summary = "measure claims and completions per second, CPU time and latency",
    .details =
        "Fills the store with records that expire after a minute. The latency is that of a pair:\n"
        "from asking until the completion is durable. With a local store the limit of its disk\n"
        "stands beside each figure: the same bytes appended and synced, and nothing else.\n",
    .store = ONCE__CLI_MAY_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_bench,
};
