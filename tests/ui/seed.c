/*
 * Makes records, as the lines of its standard input say; each is answered by "ok". Fields are separated by tabs, and %XX stands
 * for a byte.
 *
 *   STATE KEY DESCRIPTION [BODY]     completed, failed, unknown, pending (its lease is over), running (its lease is live)
 *   many PREFIX COUNT                completed ones
 *   again KEY DESCRIPTION            the next attempt of a record with the policy retry, whose lease is live
 *
 * The policy is hold, unless the key begins with "retry".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#include "base/bytes.h"

static once_t *once;

static void demand(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "seed: %s\n", what);
        exit(1);
    }
}

static once_claim_t *claim(once_slice_t key, once_slice_t description, const char *lease)
{
    once_policy_t *policy = once_policy_new();
    once_ask_t ask = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    once_claim_t *taken;
    char text[64];

    (void)snprintf(text, sizeof(text), "recover=%s lease=%s",
                   key.len >= 5 && memcmp(key.data, "retry", 5) == 0 ? "retry" : "hold", lease);
    demand(once_policy_parse(policy, text, NULL) == ONCE_OK, "policy");
    ask.scope = once__slice_of("shop");
    ask.key = key;
    ask.method = once__slice_of("POST");
    ask.target = once__slice_of("/payments");
    ask.description = description;
    ask.policy = policy;
    demand(once_begin_sync(once, &ask, &answer) == ONCE_OK, "begin");
    taken = once_answer_take_claim(answer);
    demand(taken != NULL, "the key is in use");
    once_answer_free(answer);
    once_policy_free(policy);
    return taken;
}

static void complete(once_claim_t *taken, once_slice_t body)
{
    const once_header_t type = {once__slice_of("Content-Type"), once__slice_of("text/html")};
    once_response_t response = ONCE_RESPONSE_INIT;

    response.status = 201;
    response.headers = &type;
    response.header_count = 1;
    response.body = body;
    demand(once_claim_complete_sync(taken, &response, NULL) == ONCE_OK, "complete");
}

static void make(const char *state, once_slice_t key, once_slice_t description, once_slice_t body)
{
    int lives = strcmp(state, "running") == 0 || strcmp(state, "again") == 0;
    once_claim_t *taken = claim(key, description, lives ? "1h" : "1s");

    if (strcmp(state, "completed") == 0) {
        complete(taken, body);
    } else if (strcmp(state, "failed") == 0) {
        demand(once_claim_release_sync(taken, 503, once__slice_of("status 503"), NULL) == ONCE_OK,
               "release");
    } else if (strcmp(state, "unknown") == 0) {
        demand(once_claim_doubt_sync(taken, once__slice_of("timeout"), NULL) == ONCE_OK, "doubt");
    } else {
        once_claim_drop(taken);
    }
}

static void make_many(const char *prefix, unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        char key[64];
        (void)snprintf(key, sizeof(key), "%.40s%lu", prefix, i);
        complete(claim(once__slice_of(key), once__slice_of("POST /payments"), "30s"),
                 once__slice_of("{\"id\": \"pay_1\"}"));
    }
}

/* Decodes in place. */
static once_slice_t decode(char *text)
{
    size_t out = 0;

    for (size_t i = 0; text[i] != '\0'; i++, out++) {
        int is_code = text[i] == '%' && text[i + 1] != '\0' && text[i + 2] != '\0';
        text[out] = is_code
                        ? (char)(once__hex_digit(text[i + 1]) << 4 | once__hex_digit(text[i + 2]))
                        : text[i];
        i += is_code ? 2 : 0;
    }
    return once__slice(text, out);
}

int main(int argc, char **argv)
{
    once_options_t *options = once_options_new();
    char line[8192];

    demand(argc == 2 && options != NULL, "usage: seed URL");
    demand(once_options_set(options, "renew", "off", NULL) == ONCE_OK, "options");
    demand(once_open(argv[1], options, &once, NULL) == ONCE_OK, "open");
    while (fgets(line, sizeof(line), stdin) != NULL) {
        char none[1] = "", *rest = line, *fields[4] = {none, none, none, none};
        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; i < 4 && rest != NULL; i++) {
            fields[i] = strsep(&rest, "\t");
        }
        if (strcmp(fields[0], "many") == 0) {
            make_many(fields[1], strtoul(fields[2], NULL, 10));
        } else {
            once_slice_t key = decode(fields[1]), description = decode(fields[2]);
            make(fields[0], key, description, decode(fields[3]));
        }
        puts("ok");
        fflush(stdout);
    }
    once_options_free(options);
    return once_close(once, 5000) == ONCE_OK ? 0 : 1;
}
