/*
 * Load on a store, through the public API, with a ledger beside it: what was done, and what was acknowledged.
 *
 *   load run URL NAME SECONDS KEYS [POLICY]   asks for random keys under hold, or that policy, 128 at a time. An effect is a line
 *                                       in NAME.effects, an acknowledged completion one in NAME.acks: "KEY BODY"
 *   load verify URL ACKS...             every acknowledged key must be replayed, byte for byte
 *
 * Lines are written with one call each: a killed process leaves whole ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <once/once.h>

#define IN_FLIGHT 128
#define TEXT_SIZE 64

#define WORK_S 0.03 /* between the effect and its completion: time to be killed in */

typedef struct work {
    struct work *next;
    once_claim_t *claim;
    double due;
    unsigned key;
    char body[TEXT_SIZE];
} work_t;

static struct {
    const char *name;
    unsigned keys, flying, numbers;
    int effects, acks;
    work_t *working, **last; /* the effect is there, the completion is due */
    unsigned runs, replays, busy, unknown, lost, errors, acknowledged;
} load;

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int write_line(int fd, const char *text)
{
    char line[2 * TEXT_SIZE];
    int len = snprintf(line, sizeof(line), "%s\n", text);

    return write(fd, line, (size_t)len) == len ? 0 : -1;
}

static void end(work_t *work)
{
    load.flying--;
    free(work);
}

static void completed(once_t *once, once_answer_t *answer, void *data)
{
    work_t *work = data;
    char line[2 * TEXT_SIZE];

    if (once_answer_error(answer) != ONCE_OK) {
        load.errors++;
    } else if (once_answer_outcome(answer) == ONCE_OUTCOME_LOST) {
        load.lost++;
    } else {
        snprintf(line, sizeof(line), "%u %s", work->key, work->body);
        (void)write_line(load.acks, line);
        load.acknowledged++;
    }
    end(work);
}

/* Names are paths: their end tells them apart. */
static const char *tail_of(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash != NULL ? slash + 1 : name;
}

static void run(once_answer_t *answer, work_t *work)
{
    char line[TEXT_SIZE];

    load.runs++;
    work->claim = once_answer_take_claim(answer);
    work->due = now() + WORK_S;
    work->next = NULL;
    *load.last = work;
    load.last = &work->next;
    snprintf(line, sizeof(line), "%u", work->key);
    (void)write_line(load.effects, line);
}

static void complete_due(int all)
{
    while (load.working != NULL && (all || load.working->due <= now())) {
        once_response_t response = ONCE_RESPONSE_INIT;
        work_t *work = load.working;
        load.working = work->next;
        load.last = load.working == NULL ? &load.working : load.last;
        snprintf(work->body, sizeof(work->body), "%.20s-%u-%u", tail_of(load.name), work->key,
                 load.numbers++);
        response.body.data = work->body;
        response.body.len = strlen(work->body);
        if (once_claim_complete(work->claim, &response, completed, work) != ONCE_OK) {
            fprintf(stderr, "once_claim_complete failed\n");
            exit(1);
        }
    }
}

static void answered(once_t *once, once_answer_t *answer, void *data)
{
    work_t *work = data;

    switch (once_answer_outcome(answer)) {
    case ONCE_OUTCOME_RUN:
        run(answer, work);
        return;
    case ONCE_OUTCOME_REPLAY:
        load.replays++;
        break;
    case ONCE_OUTCOME_BUSY:
        load.busy++;
        break;
    case ONCE_OUTCOME_UNKNOWN:
        load.unknown++;
        break;
    default:
        load.errors++;
        break;
    }
    end(work);
}

static void submit(once_t *once, work_t *work, once_cb cb)
{
    once_ask_t question = ONCE_ASK_INIT;
    char key[TEXT_SIZE];

    snprintf(key, sizeof(key), "key-%u", work->key);
    question.scope.data = "load";
    question.scope.len = 4;
    question.key.data = key;
    question.key.len = strlen(key);
    load.flying++;
    if (once_begin(once, &question, cb, work) != ONCE_OK) {
        end(work);
    }
}

static void ask(once_t *once)
{
    work_t *work = calloc(1, sizeof(*work));

    work->key = (unsigned)random() % load.keys;
    submit(once, work, answered);
}

static once_t *open_store(const char *url, const char *policy)
{
    once_options_t *options = once_options_new();
    once_error_t err;
    once_t *once = NULL;

    if (once_options_set(options, "recover", policy, &err) != ONCE_OK ||
        once_options_set(options, "lease", "2s", &err) != ONCE_OK ||
        once_options_set(options, "store_timeout", "3s", &err) != ONCE_OK ||
        once_open(url, options, &once, &err) != ONCE_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    once_options_free(options);
    return once;
}

static int open_file(const char *suffix)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s.%s", load.name, suffix);
    return open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
}

static int run_load(const char *url, const char *name, double seconds, unsigned keys,
                    const char *policy)
{
    once_t *once = open_store(url, policy);
    double until = now() + seconds;
    int code;

    load.name = name;
    load.keys = keys;
    load.last = &load.working;
    load.effects = open_file("effects");
    load.acks = open_file("acks");
    srandom((unsigned)getpid() ^ (unsigned)time(NULL));
    while (now() < until) {
        while (load.flying < IN_FLIGHT) {
            ask(once);
        }
        (void)once_wait(once, 10);
        complete_due(0);
    }
    complete_due(1);
    code = once_close(once, 30000); /* a failover may just have begun */
    printf("%s: %u ran, %u acknowledged, %u replayed, %u busy, %u unknown, %u lost, %u errors\n",
           name, load.runs, load.acknowledged, load.replays, load.busy, load.unknown, load.lost,
           load.errors);
    return code == ONCE_OK ? 0 : 1;
}

/* -------------------------------------------------------------------------------------------------------------- verify */

static int same_body(const once_answer_t *answer, const char *body)
{
    const once_record_t *record = once_answer_record(answer);
    once_response_t response = ONCE_RESPONSE_INIT;

    return record != NULL && once_record_response(record, &response) == ONCE_OK &&
           response.body.len == strlen(body) &&
           memcmp(response.body.data, body, response.body.len) == 0;
}

static void verified(once_t *once, once_answer_t *answer, void *data)
{
    work_t *work = data;
    int good = once_answer_outcome(answer) == ONCE_OUTCOME_REPLAY && same_body(answer, work->body);

    if (!good) {
        fprintf(stderr, "key-%u: acknowledged as \"%s\", now %s (%s)\n", work->key, work->body,
                once_outcome_name(once_answer_outcome(answer)),
                once_error_name(once_answer_error(answer)));
        load.errors++;
    }
    load.replays++;
    end(work);
}

static void verify_file(once_t *once, FILE *file)
{
    unsigned number;
    char body[TEXT_SIZE];

    while (fscanf(file, "%u %63s", &number, body) == 2) {
        work_t *work = calloc(1, sizeof(*work));
        work->key = number;
        memcpy(work->body, body, sizeof(body));
        submit(once, work, verified);
        while (load.flying >= IN_FLIGHT) {
            (void)once_wait(once, 100);
        }
    }
}

static int verify(const char *url, int count, char **files)
{
    once_t *once = open_store(url, "hold");

    for (int i = 0; i < count; i++) {
        FILE *file = fopen(files[i], "r");
        if (file != NULL) {
            verify_file(once, file);
            (void)fclose(file);
        }
    }
    while (load.flying > 0) {
        (void)once_wait(once, 100);
    }
    (void)once_close(once, 1000);
    printf("verified %u acknowledged, %u wrong\n", load.replays, load.errors);
    return load.errors == 0 && load.replays > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if ((argc == 6 || argc == 7) && strcmp(argv[1], "run") == 0) {
        return run_load(argv[2], argv[3], atof(argv[4]), (unsigned)atoi(argv[5]),
                        argc == 7 ? argv[6] : "hold");
    }
    if (argc >= 4 && strcmp(argv[1], "verify") == 0) {
        return verify(argv[2], argc - 3, argv + 3);
    }
    fprintf(stderr, "usage: load run URL NAME SECONDS KEYS [POLICY] | load verify URL ACKS...\n");
    return 2;
}
