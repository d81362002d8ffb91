/*
 * Claim + complete pairs through the public API on a real Redis, 64 in flight, beside redis-benchmark: the same scripts with
 * arguments of the same size, 64 in one pipeline, without computing, packing or answering anything. Both run in turns; what
 * counts is the median of the rounds' ratios. Required: 0.8 of redis-benchmark's. Run inside tests/redis/with-server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>
#include <once/once.h>

#include "asking.h"
#include "bench.h"
#include "store/redis/scripts.h"

#define IN_FLIGHT 64
#define PAIRS     60000
#define ROUNDS    5
#define REQUIRED  0.8
#define BODY      400

static redisContext *raw;
static once__redis_texts_t scripts;

/* ------------------------------------------------------------------------------------------------------------- the store */

static double pairs_per_second(asking_t *asking, double *cpu)
{
    double start = bench_wall();

    *cpu = bench_cpu();
    asking_run(asking);
    *cpu = (bench_cpu() - *cpu) / PAIRS;
    return PAIRS / (bench_wall() - start);
}

/* ------------------------------------------------------------------------------------------------------- redis-benchmark */

/*
 * Arguments of the scripts as a shell can pass them, without a zero byte: the record that a claim leaves, with a key of 21
 * bytes, 17 bytes about itself and a cause of one, and what a completion of it says.
 */
static char claimed[123 + 21 + 3 + 18 + 1], written[33 + 1], payload[BODY + 70 + 1];

static void prepare(void)
{
    memset(claimed, 'a', sizeof(claimed) - 1);
    memcpy(claimed, "O\2\1\1\1\x81", 6);
    memset(claimed + 116, 1, 6);
    claimed[122] = 21;
    memcpy(claimed + 144, "\x11\x80\1", 3);
    memset(written, 'a', sizeof(written) - 1);
    memcpy(written, "\4\2\1\1\1", 5);
    memset(written + 25, 1, 8);
    memset(payload, 'p', sizeof(payload) - 1);
    once__redis_scripts_load(scripts);
    for (int i = 0; i < ONCE__REDIS_SCRIPT_COUNT; i++) {
        freeReplyObject(redisCommand(raw, "SCRIPT LOAD %b", scripts[i].text, scripts[i].len));
    }
}

/* Records that are pending, for completions to meet. */
static void prefill(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        (void)redisAppendCommand(raw,
                                 "EVALSHA %s 1 bench:pending:%012u:0123456789012345678 claim %s %s",
                                 scripts[ONCE__REDIS_CLAIM].sha, i, claimed, "");
        if (i % 500 == 499 || i + 1 == count) {
            for (unsigned n = 0; n <= i % 500; n++) {
                redisReply *reply = NULL;
                if (redisGetReply(raw, (void **)&reply) != REDIS_OK ||
                    reply->type != REDIS_REPLY_INTEGER) {
                    (void)fprintf(stderr, "bench: a claim was not granted\n");
                    exit(1);
                }
                freeReplyObject(reply);
            }
        }
    }
}

/* One by hand: what redis-benchmark sends must be what the script expects. */
static void check_completion(void)
{
    redisReply *reply =
        redisCommand(raw, "EVALSHA %s 1 bench:pending:%012u:0123456789012345678 complete %s %s",
                     scripts[ONCE__REDIS_CHANGE].sha, 0, written, payload);

    if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
        (void)fprintf(stderr, "bench: a completion was refused\n");
        exit(1);
    }
    freeReplyObject(reply);
}

static double run_benchmark(const char *command)
{
    char line[4096], last[4096] = "";
    double rate = 0;
    FILE *out;

    (void)snprintf(line, sizeof(line), "redis-benchmark -p %s -c 1 -P %d -n %d -r %d --csv %s 2>&1",
                   getenv("ONCE_REDIS_PORT"), IN_FLIGHT, PAIRS, PAIRS, command);
    out = popen(line, "r"); /* NOLINT: our own command line */
    while (out != NULL && fgets(last, sizeof(last), out) != NULL) {
        const char *comma = strstr(last, "\",\"");
        rate = comma != NULL && atof(comma + 3) > 0 ? atof(comma + 3) : rate;
    }
    if (out == NULL || pclose(out) != 0 || rate <= 0) {
        (void)fprintf(stderr, "bench: redis-benchmark failed: %s\n", last);
        exit(1);
    }
    return rate;
}

static double benchmark_pairs_per_second(unsigned round)
{
    char command[2048];
    double claims, completions;

    freeReplyObject(redisCommand(raw, "FLUSHALL"));
    freeReplyObject(redisCommand(raw, "SET bench:mark 0123456789012345"));
    (void)snprintf(
        command, sizeof(command),
        "EVALSHA %s 2 bench:claimed:%u:__rand_int__:01234567890123456 bench:mark claim %s "
        "0123456789012345",
        scripts[ONCE__REDIS_CLAIM].sha, round, claimed);
    claims = run_benchmark(command);
    freeReplyObject(redisCommand(raw, "FLUSHALL"));
    prefill(PAIRS);
    check_completion();
    (void)snprintf(command, sizeof(command),
                   "EVALSHA %s 1 bench:pending:__rand_int__:0123456789012345678 complete %s %s",
                   scripts[ONCE__REDIS_CHANGE].sha, written, payload);
    completions = run_benchmark(command);
    return 1 / (1 / claims + 1 / completions);
}

/* -------------------------------------------------------------------------------------------------------------- report */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(void)
{
    static char body[BODY];
    asking_t asking = {
        .in_flight = IN_FLIGHT, .pairs = PAIRS, .body = "", .response = ONCE_RESPONSE_INIT};
    double ours[ROUNDS], theirs[ROUNDS], ratios[ROUNDS], cpu[ROUNDS];
    once_error_t err;

    if (getenv("ONCE_REDIS_PORT") == NULL) {
        (void)fprintf(stderr, "bench: run it inside tests/redis/with-server\n");
        return 1;
    }
    raw = redisConnect("127.0.0.1", atoi(getenv("ONCE_REDIS_PORT")));
    if (raw == NULL || raw->err ||
        once_open(getenv("ONCE_REDIS_URL"), NULL, &asking.once, &err) != ONCE_OK) {
        return 1;
    }
    prepare();
    asking_fill(body, sizeof(body));
    asking.response.body.data = body;
    asking.response.body.len = sizeof(body);
    for (unsigned round = 0; round < ROUNDS; round++) {
        theirs[round] = benchmark_pairs_per_second(round);
        ours[round] = pairs_per_second(&asking, &cpu[round]);
        ratios[round] = ours[round] / theirs[round];
    }
    qsort(ours, ROUNDS, sizeof(double), by_value);
    qsort(theirs, ROUNDS, sizeof(double), by_value);
    qsort(ratios, ROUNDS, sizeof(double), by_value);
    qsort(cpu, ROUNDS, sizeof(double), by_value);
    (void)printf("redis store, claim + complete, %d in flight       %8.0f pairs/s, redis-benchmark "
                 "with the same scripts "
                 "%.0f: %.2f  (required >= %.2f)\n",
                 IN_FLIGHT, ours[ROUNDS / 2], theirs[ROUNDS / 2], ratios[ROUNDS / 2], REQUIRED);
    (void)printf("redis store, CPU of the caller                    %8.2f us/pair\n",
                 cpu[ROUNDS / 2] * 1e6);
    (void)once_close(asking.once, 1000);
    redisFree(raw);
    return asking.failed == 0 && ratios[ROUNDS / 2] >= REQUIRED ? 0 : 1;
}
