/*
 * Records of many people in a store, one of whom is a canary: every seventh record has her words in all its texts, so that they
 * also come into the dictionaries that the store makes.
 *
 *   canaries make URL     makes them
 *   canaries more URL     as many again, none of them the canary's
 *   canaries late URL     both, and one that is claimed before and completed after "more", which awaits a line of the input
 *   canaries later URL    that one has its own body
 *   canaries check URL    the canary's replays have her status and no more, all others their own body
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <once/once.h>

#define RECORDS 700
#define LATE    (2 * RECORDS)

static void must(int good, const char *what, unsigned n)
{
    if (!good) {
        (void)fprintf(stderr, "canaries: record %u: %s\n", n, what);
        exit(1);
    }
}

static once_slice_t text(const char *words)
{
    return (once_slice_t){words, strlen(words)};
}

static int is_canary(unsigned n)
{
    return n < RECORDS && n % 7 == 3;
}

typedef struct words {
    char key[64], description[64], header[64], body[256];
    once_header_t headers[1];
    once_ask_t ask;
    once_response_t response;
} words_t;

static void write_words(words_t *words, unsigned n)
{
    int mine = is_canary(n);
    once_ask_t ask = ONCE_ASK_INIT;
    once_response_t response = ONCE_RESPONSE_INIT;

    (void)snprintf(words->key, sizeof(words->key), "%s-%08x", mine ? "canary-key" : "other",
                   n * 2654435761u);
    (void)snprintf(words->description, sizeof(words->description), "POST /people/%s/payments",
                   mine ? "canary-description" : "others");
    (void)snprintf(words->header, sizeof(words->header), "/payments/%s/%08x",
                   mine ? "canary-header" : "of-others", n * 40503u);
    (void)snprintf(words->body, sizeof(words->body),
                   "{\"id\":\"ch_%08x\",\"object\":\"charge\",\"currency\":\"eur\",\"name\":\"%s\","
                   "\"status\":\"succeeded\",\"paid\":true}",
                   n * 2246822519u, mine ? "canary-body-of-ada" : "someone");
    ask.scope = text(mine ? "canary-scope" : "scope");
    ask.key = text(words->key);
    ask.description = text(words->description);
    ask.subject = text(mine ? "canary-subject" : "someone");
    words->headers[0] = (once_header_t){text("Location"), text(words->header)};
    response.status = mine ? 202 : 201;
    response.headers = words->headers;
    response.header_count = 1;
    response.body = text(words->body);
    words->ask = ask;
    words->response = response;
}

static once_claim_t *begin(once_t *once, words_t *words, unsigned n)
{
    once_answer_t *answer = NULL;
    once_claim_t *claim;

    write_words(words, n);
    must(once_begin_sync(once, &words->ask, &answer) == ONCE_OK &&
             once_answer_outcome(answer) == ONCE_OUTCOME_RUN,
         "not granted", n);
    claim = once_answer_take_claim(answer);
    once_answer_free(answer);
    return claim;
}

static void complete(once_claim_t *claim, const words_t *words, unsigned n)
{
    must(once_claim_complete_sync(claim, &words->response, NULL) == ONCE_OK, "not completed", n);
}

static void make(once_t *once, unsigned from)
{
    words_t words;

    for (unsigned n = from; n < from + RECORDS; n++) {
        once_claim_t *claim = begin(once, &words, n);
        complete(claim, &words, n);
    }
}

/* Another handle completes it: with the dictionary that it has made of its own records. */
static void make_late(once_t *once, const char *url)
{
    char token[ONCE_TOKEN_SIZE];
    once_t *other = NULL;
    once_claim_t *claim, *adopted = NULL;
    words_t words;

    make(once, 0);
    claim = begin(once, &words, LATE);
    once_claim_token(claim, token);
    (void)puts("claimed");
    must(fflush(stdout) == 0 && getchar() != EOF, "nothing to wait for", LATE);
    must(once_open(url, NULL, &other, NULL) == ONCE_OK, "no other handle", LATE);
    make(other, RECORDS);
    must(once_claim_adopt(other, token, 0, &adopted) == ONCE_OK, "not adopted", LATE);
    complete(adopted, &words, LATE);
    must(once_close(other, 30000) == ONCE_OK, "not closed", LATE);
    complete(claim, &words, LATE);
}

static void check(once_t *once, unsigned n)
{
    once_response_t found = ONCE_RESPONSE_INIT;
    once_answer_t *answer = NULL;
    words_t words;

    write_words(&words, n);
    must(once_begin_sync(once, &words.ask, &answer) == ONCE_OK &&
             once_answer_outcome(answer) == ONCE_OUTCOME_REPLAY &&
             once_record_response(once_answer_record(answer), &found) == ONCE_OK,
         "not replayed", n);
    must(found.status == words.response.status, "another status", n);
    if (is_canary(n)) {
        must(found.body_omitted == ONCE_BODY_ERASED && found.body.len == 0 &&
                 found.header_count == 0,
             "not erased", n);
    } else {
        must(found.header_count == 1 && found.body.len == words.response.body.len &&
                 memcmp(found.body.data, words.response.body.data, found.body.len) == 0,
             "another body", n);
    }
    once_answer_free(answer);
}

int main(int argc, char **argv)
{
    once_error_t err = {0};
    once_t *once = NULL;

    if (argc != 3 || once_open(argv[2], NULL, &once, &err) != ONCE_OK) {
        (void)fprintf(stderr, "canaries make|more|check URL: %s\n", err.text);
        return 2;
    }
    if (strcmp(argv[1], "late") == 0) {
        make_late(once, argv[2]);
    } else if (strcmp(argv[1], "later") == 0) {
        check(once, LATE);
    } else if (strcmp(argv[1], "check") == 0) {
        for (unsigned n = 0; n < RECORDS; n++) {
            check(once, n);
        }
    } else {
        make(once, strcmp(argv[1], "more") == 0 ? RECORDS : 0);
    }
    return once_close(once, 30000) == ONCE_OK ? 0 : 1;
}
