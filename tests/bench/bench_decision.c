/*
 * What one decision costs: parse the key, record id, fingerprint of a 1 KiB body, state machine. Required: under 5 us.
 * Printed beside it, from the same run: the bare SHA-256 of the same bytes, which no fingerprint can do without.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "base/bytes.h"
#include "core/identity.h"
#include "core/rules.h"

#define ROUNDS 9
#define CALLS  20000
#define BODY   1024

static once__secrets_t secrets;
static uint8_t body[BODY];

static unsigned decide(unsigned i)
{
    static const char header[] = "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"";
    once_slice_t value = once__slice(header, sizeof(header) - 1);
    once_slice_t scope = once__slice("tenant-17", 9);
    once__request_t request = {.scope = scope,
                               .method = once__slice("POST", 4),
                               .target = once__slice("/v1/payments?dry=0", 18)};
    once__event_t event = {.kind = ONCE__CLAIM, .lease_ms = 30000, .ttl_ms = 86400000};
    uint8_t id[ONCE_ID_SIZE];
    once__step_t step;
    once_key_t key;

    if (once_key_parse(&value, 1, 0, &key, NULL) != ONCE_OK) {
        return 1;
    }
    body[0] = (uint8_t)i;
    once__record_id(&secrets, scope, once__slice(key.text, key.len), id);
    once__bytes_digest(once__slice(body, BODY), &request.body);
    event.fingerprint_count = (uint8_t)once__fingerprints(&secrets, &request, event.fingerprints);
    once__step(&once__rules, NULL, &event, 1000 + i, &step);
    return step.outcome == ONCE_OUTCOME_RUN ? id[0] : 1;
}

static unsigned bare_hash(unsigned i)
{
    uint8_t sum[ONCE__SHA256_SIZE];
    once__sha256_t ctx;

    body[0] = (uint8_t)i;
    once__sha256_init(&ctx);
    once__sha256_add(&ctx, body, BODY);
    once__sha256_end(&ctx, sum);
    return sum[0];
}

static double measure(unsigned (*call)(unsigned))
{
    double best = 0;
    unsigned sum = 0;

    for (int round = 0; round < ROUNDS; round++) {
        double start = bench_cpu();
        for (unsigned i = 0; i < CALLS; i++) {
            sum += call(i);
        }
        bench_keep_best(&best, (bench_cpu() - start) / CALLS * 1e6);
    }
    assert(sum > 0);
    return best;
}

int main(void)
{
    uint8_t random[2 * ONCE__SECRET_SIZE];
    double decision, hash;

    memset(random, 7, sizeof(random));
    memset(body, 'x', sizeof(body));
    once__secrets_make(&secrets, random, 1);
    decision = measure(decide);
    hash = measure(bare_hash);
    (void)printf(
        "decision (key, id, fingerprint of 1 KiB, rules)   %6.2f us CPU   (required < 5.00)\n",
        decision);
    (void)printf("  bare SHA-256 of the same 1 KiB                  %6.2f us CPU   ratio %.1f\n",
                 hash, decision / hash);
    return decision < 5.0 ? 0 : 1;
}
