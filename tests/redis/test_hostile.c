/*
 * Servers that answer what no Redis answers, or what it answers when something is wrong with it: no caller is granted a run, or
 * what was never recorded; nothing crashes or hangs; and once_store_trouble() says what it is.
 */
#include "support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <once/once.h>

#include "fake.h"

/* ------------------------------------------------------------------------------------------------------------- asking */

typedef struct asked {
    once_t *once;
    int done, error;
    once_outcome_t outcome;
} asked_t;

static void answered(once_t *once, once_answer_t *answer, void *data)
{
    asked_t *asked = data;

    asked->done = 1;
    asked->error = once_answer_error(answer);
    asked->outcome = once_answer_outcome(answer);
}

static void ask(asked_t *asked, const char *scheme, unsigned port, const char *options)
{
    once_ask_t question = ONCE_ASK_INIT;
    once_error_t err = {0};
    char url[300];

    (void)snprintf(url, sizeof(url), "%s://127.0.0.1:%u%s", scheme, port, options);
    *asked = (asked_t){0};
    if (once_open(url, NULL, &asked->once, &err) != ONCE_OK) {
        fail_msg("%s: %s", url, err.text);
    }
    question.key.data = "k";
    question.key.len = 1;
    assert_int_equal(once_begin(asked->once, &question, answered, asked), ONCE_OK);
}

/* Until all of them have their answers. */
static void wait_for(asked_t *asked, size_t count)
{
    for (size_t done = 0; done < count;) {
        done = 0;
        for (size_t i = 0; i < count; i++) {
            if (!asked[i].done) {
                (void)once_wait(asked[i].once, 5);
            }
            done += asked[i].done != 0;
        }
    }
}

static const char *trouble_of(const asked_t *asked)
{
    static char trouble[300];

    trouble[0] = '\0';
    (void)once_store_trouble(asked->once, trouble, sizeof(trouble));
    return trouble;
}

/* ------------------------------------------------------------------------------------------------------ hostile claims */

#define SHORT  "?store_timeout=700ms&reply_timeout=300ms&connect_timeout=300ms"
#define BYTES  "Oxxxxxxx"
#define LEVELS "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"

typedef struct reply {
    const char *text;
    int error; /* what the caller gets */
} reply_t;

/* What comes instead of the answer to a claim. */
static reply_t replies[] = {
    {"+OK\r\n", ONCE_E_UNAVAILABLE},
    {":0\r\n", ONCE_E_UNAVAILABLE},
    {":-5\r\n", ONCE_E_UNAVAILABLE},
    {":99999999999999999999\r\n", ONCE_E_UNAVAILABLE},
    {"$-1\r\n", ONCE_E_UNAVAILABLE},
    {"$-2\r\n", ONCE_E_UNAVAILABLE},
    {"$0\r\n\r\n", ONCE_E_UNAVAILABLE},
    {"$8\r\n" BYTES "\r\n", ONCE_E_UNAVAILABLE},
    {"*-1\r\n", ONCE_E_UNAVAILABLE},
    {"*0\r\n", ONCE_E_UNAVAILABLE},
    {"*3\r\n:1\r\n:5\r\n$0\r\n\r\n", ONCE_E_UNAVAILABLE},   /* run, without a record */
    {"*3\r\n:2\r\n:5\r\n$0\r\n\r\n", ONCE_E_UNAVAILABLE},   /* replay, of nothing */
    {"*3\r\n:257\r\n:5\r\n$0\r\n\r\n", ONCE_E_UNAVAILABLE}, /* 1, if it were a byte */
    {"*3\r\n:6\r\n:5\r\n$0\r\n\r\n", ONCE_E_UNAVAILABLE},   /* what answers a completion */
    {"*3\r\n:-7\r\n:5\r\n$0\r\n\r\n", ONCE_E_UNAVAILABLE},
    {"*3\r\n:3\r\n:-5\r\n$0\r\n\r\n", ONCE_E_UNAVAILABLE}, /* before all time */
    {"*3\r\n$1\r\n1\r\n:5\r\n$0\r\n\r\n", ONCE_E_UNAVAILABLE},
    {"*3\r\n:1\r\n:5\r\n:6\r\n", ONCE_E_UNAVAILABLE},
    {"*3\r\n:1\r\n:5\r\n$8\r\n" BYTES "\r\n", ONCE_E_CORRUPT},
    {"*3\r\n:-1\r\n:5\r\n$0\r\n\r\n", ONCE_E_CORRUPT}, /* no record stands there */
    {LEVELS, ONCE_E_UNAVAILABLE},
    {"*2147483647\r\n", ONCE_E_UNAVAILABLE},
    {"*99999999999\r\n", ONCE_E_UNAVAILABLE},
    {"$536870912\r\nabc", ONCE_E_UNAVAILABLE}, /* and no more */
    {"%1\r\n+a\r\n+b\r\n", ONCE_E_UNAVAILABLE},
    {">2\r\n+a\r\n+b\r\n", ONCE_E_UNAVAILABLE},
    {"HTTP/1.1 400 Bad Request\r\n\r\n", ONCE_E_UNAVAILABLE},
    {"\r\n\r\n", ONCE_E_UNAVAILABLE},
    {"", ONCE_E_UNAVAILABLE}, /* nothing at all */
    {"-\r\n", ONCE_E_IO},
    {"-ERR\r\n", ONCE_E_IO},
    {"-ERR user_script:1: attempt to index a nil value\r\n", ONCE_E_IO},
    {"-NOSCRIPT never heard of it\r\n", ONCE_E_UNAVAILABLE},
    {"-MOVED 5 127.0.0.1:1\r\n", ONCE_E_CONFIG},
    {"-ASK 5 127.0.0.1:1\r\n", ONCE_E_CONFIG},
    {"-MOVED \r\n", ONCE_E_CONFIG},
    {"-READONLY You can't write against a read only replica.\r\n", ONCE_E_UNAVAILABLE},
    {"-LOADING Redis is loading the dataset in memory\r\n", ONCE_E_UNAVAILABLE},
    {"-BUSY Redis is busy running a script.\r\n", ONCE_E_UNAVAILABLE},
    {"-MISCONF Redis is configured to save RDB snapshots\r\n", ONCE_E_UNAVAILABLE},
    {"-NOREPLICAS Not enough good replicas to write.\r\n", ONCE_E_UNAVAILABLE},
    {"-CLUSTERDOWN The cluster is down\r\n", ONCE_E_UNAVAILABLE},
    {"-NOPERM this user has no permissions\r\n", ONCE_E_CONFIG},
    {"-NOAUTH Authentication required.\r\n", ONCE_E_CONFIG},
    {"-ERR ACL failure in script: this user has no permissions\r\n", ONCE_E_CONFIG},
    {"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", ONCE_E_CORRUPT},
    {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", ONCE_E_FULL},
};

#define REPLIES (sizeof(replies) / sizeof(replies[0]))

static int answer_claims(int fd, const fake_command_t *command, void *data)
{
    int code = fake_polite(fd, command, fake_info);

    return code <= 0 ? code : fake_say(fd, ((const reply_t *)data)->text);
}

static void no_such_answer_grants_anything(void **state)
{
    static asked_t asked[REPLIES];
    fake_t *fakes[REPLIES];
    clock_t cpu;

    for (size_t i = 0; i < REPLIES; i++) {
        fakes[i] = fake_start(answer_claims, &replies[i]);
        ask(&asked[i], "redis", fake_port(fakes[i]), SHORT);
    }
    cpu = clock();
    wait_for(asked, REPLIES);
    /* Nobody's word is a reason to be busy: not even that two thousand million elements will follow. */
    assert_true(clock() - cpu < CLOCKS_PER_SEC);
    for (size_t i = 0; i < REPLIES; i++) {
        if (asked[i].error != replies[i].error) {
            fail_msg("\"%.40s\": %s, not %s", replies[i].text, once_error_name(asked[i].error),
                     once_error_name(replies[i].error));
        }
        /* It is asked again, but not flooded: fewer than ten a second. */
        assert_in_range(fake_connections(fakes[i]), 1, 12);
        if (replies[i].error == ONCE_E_CONFIG) {
            assert_string_not_equal(trouble_of(&asked[i]), "");
        }
        (void)once_close(asked[i].once, 0);
        fake_stop(fakes[i]);
    }
}

/* Two claims share a call; the reply that it gets, and the answers to the first and the second. */
static struct {
    reply_t first;
    int second;
} shared[] = {
    {{"*2\r\n:5\r\n-WRONGTYPE no string\r\n", ONCE_OK}, ONCE_E_CORRUPT},
    {{"*2\r\n-OOM command not allowed\r\n-WRONGTYPE no string\r\n", ONCE_E_FULL}, ONCE_E_CORRUPT},
    {{"*2\r\n*3\r\n:-1\r\n:5\r\n$0\r\n\r\n:5\r\n", ONCE_E_CORRUPT}, ONCE_OK},
    {{"*2\r\n:5\r\n:0\r\n", ONCE_OK}, ONCE_E_UNAVAILABLE},
    {{"*1\r\n:5\r\n", ONCE_E_UNAVAILABLE}, ONCE_E_UNAVAILABLE}, /* fewer than were asked */
    {{"*3\r\n:5\r\n:5\r\n:5\r\n", ONCE_E_UNAVAILABLE}, ONCE_E_UNAVAILABLE}, /* more */
    {{"*3\r\n:1\r\n:5\r\n$0\r\n\r\n", ONCE_E_UNAVAILABLE}, ONCE_E_UNAVAILABLE},
    {{"*0\r\n", ONCE_E_UNAVAILABLE}, ONCE_E_UNAVAILABLE},
    {{"$2\r\nab\r\n", ONCE_E_UNAVAILABLE}, ONCE_E_UNAVAILABLE},
    {{"-ERR\r\n", ONCE_E_IO}, ONCE_E_IO},
    {{"-NOPERM no\r\n", ONCE_E_CONFIG}, ONCE_E_CONFIG},
};

#define SHARED (sizeof(shared) / sizeof(shared[0]))

static int answer_two_claims(int fd, const fake_command_t *command, void *data)
{
    int code = fake_polite(fd, command, fake_info);

    if (code <= 0) {
        return code;
    }
    /* One by itself is asked again, or given back. The last key is that of the secrets' mark. */
    return strcmp(command->argv[2], "3") == 0 ? fake_say(fd, ((const reply_t *)data)->text)
                                              : fake_say(fd, "+OK\r\n");
}

static void each_of_two_has_its_own_answer(void **state)
{
    static asked_t asked[SHARED * 2];
    fake_t *fakes[SHARED];

    for (size_t i = 0; i < SHARED; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        fakes[i] = fake_start(answer_two_claims, &shared[i].first);
        /* What waited for the secrets goes newest first. */
        ask(&asked[2 * i + 1], "redis", fake_port(fakes[i]), SHORT);
        asked[2 * i] = (asked_t){.once = asked[2 * i + 1].once};
        question.key.data = "other";
        question.key.len = 5;
        assert_int_equal(once_begin(asked[2 * i].once, &question, answered, &asked[2 * i]),
                         ONCE_OK);
    }
    wait_for(asked, SHARED * 2);
    for (size_t i = 0; i < SHARED; i++) {
        if (asked[2 * i].error != shared[i].first.error ||
            asked[2 * i + 1].error != shared[i].second) {
            fail_msg("\"%.40s\": %s and %s", shared[i].first.text,
                     once_error_name(asked[2 * i].error), once_error_name(asked[2 * i + 1].error));
        }
        (void)once_close(asked[2 * i].once, 0);
        fake_stop(fakes[i]);
    }
}

/* What looks like one server, and spreads keys over many. */
static int answer_spread(int fd, const fake_command_t *command, void *data)
{
    int code = fake_polite(fd, command, fake_info);

    if (code <= 0) {
        return code;
    }
    if (strcmp(command->argv[2], "1") == 0) {
        return fake_say(fd, ":5\r\n");
    }
    (void)atomic_fetch_add((atomic_uint *)data, 1);
    return fake_say(fd, "-CROSSSLOT Keys in request don't hash to the same slot\r\n");
}

static void where_keys_are_spread_each_goes_by_itself(void **state)
{
    static const char *const keys[] = {"l", "m", "n", "o"};
    static atomic_uint refused;
    fake_t *fake = fake_start(answer_spread, &refused);
    asked_t asked[5];

    ask(&asked[0], "redis", fake_port(fake), SHORT);
    for (int i = 0; i < 4; i++) {
        once_ask_t question = ONCE_ASK_INIT;
        if (i == 2) {
            wait_for(asked, 3); /* it is known by now */
        }
        asked[i + 1] = (asked_t){.once = asked[0].once};
        question.key = (once_slice_t){keys[i], 1};
        assert_int_equal(once_begin(asked[0].once, &question, answered, &asked[i + 1]), ONCE_OK);
    }
    wait_for(asked, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(asked[i].error, ONCE_OK);
        assert_int_equal(asked[i].outcome, ONCE_OUTCOME_RUN);
    }
    assert_int_equal(atomic_load(&refused), 1);
    (void)once_close(asked[0].once, 0);
    fake_stop(fake);
}

/* ---------------------------------------------------------------------------------------------------- hostile greetings */

typedef struct greeting {
    const char *options, *reply; /* to the first command */
    int error;
    const char *trouble; /* what is said of it */
} handshake_t;

static handshake_t greetings[] = {
    {"/", "-ERR max number of clients reached\r\n", ONCE_E_UNAVAILABLE, "max number of clients"},
    {"/", "-DENIED Redis is running in protected mode\r\n", ONCE_E_CONFIG, "protected mode"},
    {"/", "-NOAUTH Log in.\r\n-NOAUTH Log in.\r\n", ONCE_E_CONFIG, "NOAUTH"},
    {"/", "SSH-2.0-OpenSSH_9.2\r\n", ONCE_E_UNAVAILABLE, "no Redis"},
    {"/", "HTTP/1.1 400 Bad Request\r\n\r\n", ONCE_E_UNAVAILABLE, "no Redis"},
    {"/", NULL, ONCE_E_UNAVAILABLE, "hung up"},
    {"/", "+OK\r\n:5\r\n", ONCE_E_UNAVAILABLE, ""},
    {"/", "+OK\r\n$3\r\nabc\r\n", ONCE_E_CONFIG, "older than Redis 7"},
    {"/", "+OK\r\n$20\r\nredis_version:6.2.1\0\r\n", ONCE_E_UNAVAILABLE, ""},
    {"/", "+OK\r\n$21\r\nredis_version:6.2.10\r\n", ONCE_E_UNAVAILABLE, ""},
    {"/", "+OK\r\n$21\r\nredis_version:6.2.100\r\n", ONCE_E_CONFIG, "older than Redis 7"},
    {"/", "+OK\r\n$37\r\nredis_version:7.0.0\r\nrole:slave\r\nx:y\r\n\r\n", ONCE_E_UNAVAILABLE,
     "replica"},
    {"/3", "-ERR DB index is out of range\r\n", ONCE_E_CONFIG, "DB index"},
    {"/3", "+OK\r\n-NOPERM no INFO for you\r\n", ONCE_E_UNAVAILABLE, ""}, /* that is for the name */
    {"/3", "+OK\r\n+OK\r\n-NOPERM no INFO for you\r\n", ONCE_E_CONFIG, "NOPERM"},
};

#define GREETINGS (sizeof(greetings) / sizeof(greetings[0]))

static int answer_greeting(int fd, const fake_command_t *command, void *data)
{
    const handshake_t *greeting = data;

    if (greeting->reply == NULL) {
        return -1;
    }
    return command->number == 1 ? fake_say(fd, greeting->reply) : 0;
}

static void a_bad_greeting_is_told(void **state)
{
    static asked_t asked[GREETINGS];
    fake_t *fakes[GREETINGS];

    for (size_t i = 0; i < GREETINGS; i++) {
        char options[200];
        (void)snprintf(options, sizeof(options), "%s%s", greetings[i].options, SHORT);
        fakes[i] = fake_start(answer_greeting, &greetings[i]);
        ask(&asked[i], "redis", fake_port(fakes[i]), options);
    }
    wait_for(asked, GREETINGS);
    for (size_t i = 0; i < GREETINGS; i++) {
        const char *trouble = trouble_of(&asked[i]);
        if (asked[i].error != greetings[i].error || strstr(trouble, greetings[i].trouble) == NULL) {
            fail_msg("\"%.40s\": %s, \"%s\"", greetings[i].reply != NULL ? greetings[i].reply : "-",
                     once_error_name(asked[i].error), trouble);
        }
        (void)once_close(asked[i].once, 0);
        fake_stop(fakes[i]);
    }
}

/* ----------------------------------------------------------------------------------------------------- hostile listings */

typedef struct listing {
    const char *scan, *clock, *record, *memory;
    int error;
} listing_t;

#define PAGE "*2\r\n$1\r\n0\r\n*1\r\n$48\r\nonce:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n"
#define TIME "*2\r\n$1\r\n5\r\n$1\r\n0\r\n"

static listing_t listings[] = {
    {"+OK\r\n", TIME, "$0\r\n\r\n", ":1\r\n", ONCE_E_IO},
    {"*2\r\n:0\r\n*0\r\n", TIME, "$0\r\n\r\n", ":1\r\n", ONCE_E_IO},
    {"*2\r\n$1\r\n0\r\n$1\r\n0\r\n", TIME, "$0\r\n\r\n", ":1\r\n", ONCE_E_IO},
    {"*2\r\n$1\r\n0\r\n*2\r\n:1\r\n$3\r\nabc\r\n", TIME, "$0\r\n\r\n", ":1\r\n", ONCE_OK},
    {PAGE, "*2\r\n:1\r\n:2\r\n", "$0\r\n\r\n", ":1\r\n", ONCE_OK}, /* a clock in numbers */
    {PAGE, "*2\r\n*0\r\n$-1\r\n", "$0\r\n\r\n", ":1\r\n", ONCE_OK},
    {PAGE, TIME, ":5\r\n", ":1\r\n", ONCE_OK},
    {PAGE, TIME, "*0\r\n", "+OK\r\n", ONCE_OK},
    {PAGE, TIME, "$64\r\nOxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
     ":-7\r\n", ONCE_OK},
    {PAGE, TIME, "-NOPERM no\r\n", ":1\r\n", ONCE_E_CONFIG},
    {PAGE, "-NOPERM no\r\n", "$-1\r\n", "-NOPERM no\r\n", ONCE_E_CONFIG},
};

#define LISTINGS (sizeof(listings) / sizeof(listings[0]))

static int answer_listing(int fd, const fake_command_t *command, void *data)
{
    const listing_t *listing = data;
    const char *name = command->argv[0];
    int code = fake_polite(fd, command, fake_info);

    if (code <= 0) {
        return code;
    }
    return fake_say(fd, strcasecmp(name, "SCAN") == 0     ? listing->scan
                        : strcasecmp(name, "TIME") == 0   ? listing->clock
                        : strcasecmp(name, "MEMORY") == 0 ? listing->memory
                                                          : listing->record);
}

static int count_records(once_t *once, const once_record_t *record, void *data)
{
    ++*(unsigned *)data;
    return 0;
}

static void a_bad_listing_counts_nothing(void **state)
{
    for (size_t i = 0; i < LISTINGS; i++) {
        fake_t *fake = fake_start(answer_listing, &listings[i]);
        once_filter_t filter = ONCE_FILTER_INIT;
        once_answer_t *answer = NULL;
        once_t *once = NULL;
        unsigned records = 0;
        char url[200];
        int code;
        (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u" SHORT, fake_port(fake));
        assert_int_equal(once_open(url, NULL, &once, NULL), ONCE_OK);
        code = once_store_stats_sync(once, &answer);
        if (code != listings[i].error) {
            fail_msg("%zu: %s", i, once_error_name(code));
        }
        if (answer != NULL) {
            assert_int_equal(once_answer_stats(answer)->pending, 0);
            assert_int_equal(once_answer_stats(answer)->completed, 0);
            once_answer_free(answer);
        }
        assert_int_equal(once_record_scan_sync(once, &filter, count_records, &records, NULL) ==
                             ONCE_OK,
                         listings[i].error == ONCE_OK);
        assert_int_equal(records, 0);
        assert_int_equal(once_close(once, 1000), ONCE_OK);
        fake_stop(fake);
    }
}

/* -------------------------------------------------------------------------------------------------- sentinels that lie */

/* What a sentinel says about the master; NULL: it hangs up. */
typedef struct sentinel {
    char text[200];
    int gone;
} sentinel_t;

static int answer_sentinel(int fd, const fake_command_t *command, void *data)
{
    const sentinel_t *sentinel = data;
    int code = sentinel->gone ? -1 : fake_polite(fd, command, "");

    return code <= 0 ? code : fake_say(fd, sentinel->text);
}

static void say_master(sentinel_t *sentinel, const char *host, unsigned port)
{
    char number[12];

    (void)snprintf(number, sizeof(number), "%u", port);
    (void)snprintf(sentinel->text, sizeof(sentinel->text), "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                   strlen(host), host, strlen(number), number);
}

static reply_t good_claim = {":5\r\n", 0};

static int answer_as_replica(int fd, const fake_command_t *command, void *data)
{
    return fake_polite(fd, command, "redis_version:7.0.15\r\nrole:slave\r\ncluster_enabled:0\r\n");
}

/* The first sentinel asked is wrong, in some way; the second one knows. */
static void the_next_sentinel_is_asked(void **state)
{
    fake_t *master = fake_start(answer_claims, &good_claim);
    fake_t *replica = fake_start(answer_as_replica, NULL);
    sentinel_t lies[5] = {{.gone = 1}}, truth = {.gone = 0};
    asked_t asked[5];
    fake_t *liars[5], *honest;

    say_master(&truth, "127.0.0.1", fake_port(master));
    say_master(&lies[1], "127.0.0.1", 1);                          /* no server there */
    say_master(&lies[2], "127.0.0.1", fake_port(replica));         /* not a master */
    (void)snprintf(lies[3].text, sizeof(lies[3].text), "*-1\r\n"); /* does not know */
    say_master(&lies[4], "no.such.host.invalid", 6379);
    honest = fake_start(answer_sentinel, &truth);
    for (int i = 0; i < 5; i++) {
        char options[200];
        liars[i] = fake_start(answer_sentinel, &lies[i]);
        (void)snprintf(options, sizeof(options), ",127.0.0.1:%u/records?store_timeout=20s",
                       fake_port(honest));
        ask(&asked[i], "redis+sentinel", fake_port(liars[i]), options);
    }
    wait_for(asked, 5);
    for (int i = 0; i < 5; i++) {
        if (asked[i].outcome != ONCE_OUTCOME_RUN) {
            fail_msg("liar %d: %s, \"%s\"", i, once_error_name(asked[i].error),
                     trouble_of(&asked[i]));
        }
        (void)once_close(asked[i].once, 0);
        fake_stop(liars[i]);
    }
    fake_stop(honest);
    fake_stop(replica);
    fake_stop(master);
}

static void sentinels_that_say_rubbish_are_refused(void **state)
{
    static const struct {
        const char *text;
        int error;
        const char *trouble;
    } rubbish[] = {
        {"*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n", ONCE_E_CONFIG, "know no master"},
        {"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n70000\r\n", ONCE_E_CONFIG, "know no master"},
        {"*2\r\n$9\r\n127.0.0.1\r\n:6379\r\n", ONCE_E_CONFIG, "know no master"},
        {"*3\r\n+a\r\n+b\r\n+c\r\n", ONCE_E_CONFIG, "know no master"},
        {"+OK\r\n", ONCE_E_CONFIG, "know no master"},
        {"-ERR unknown command 'SENTINEL'\r\n", ONCE_E_CONFIG, "unknown command"},
        {"-NOPERM no\r\n", ONCE_E_CONFIG, "NOPERM"},
        {"*2\r\n$0\r\n\r\n$4\r\n6379\r\n", ONCE_E_UNAVAILABLE, ""},
    };
    enum { COUNT = sizeof(rubbish) / sizeof(rubbish[0]) };
    static sentinel_t sentinels[COUNT];
    asked_t asked[COUNT];
    fake_t *fakes[COUNT];

    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(sentinels[i].text, sizeof(sentinels[i].text), "%s", rubbish[i].text);
        fakes[i] = fake_start(answer_sentinel, &sentinels[i]);
        ask(&asked[i], "redis+sentinel", fake_port(fakes[i]), "/records" SHORT);
    }
    wait_for(asked, COUNT);
    for (int i = 0; i < COUNT; i++) {
        if (asked[i].error != rubbish[i].error ||
            strstr(trouble_of(&asked[i]), rubbish[i].trouble) == NULL) {
            fail_msg("%d: %s, \"%s\"", i, once_error_name(asked[i].error), trouble_of(&asked[i]));
        }
        (void)once_close(asked[i].once, 0);
        fake_stop(fakes[i]);
    }
}

/* ----------------------------------------------------------------------------------------------------- clusters that lie */

static const char cluster_info[] = "redis_version:7.0.15\r\nrole:master\r\ncluster_enabled:1\r\n";

typedef struct member {
    char map[300], claim[100];
    atomic_uint claims;
} member_t;

static int answer_member(int fd, const fake_command_t *command, void *data)
{
    member_t *member = data;
    int code;

    if (strcasecmp(command->argv[0], "CLUSTER") == 0) {
        return fake_say(fd, member->map);
    }
    code = fake_polite(fd, command, cluster_info);
    if (code <= 0) {
        return code;
    }
    (void)atomic_fetch_add(&member->claims, 1);
    return fake_say(fd, member->claim);
}

static void say_map(member_t *member, unsigned port)
{
    (void)snprintf(member->map, sizeof(member->map),
                   "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", port);
}

static void bad_maps_are_refused(void **state)
{
    static const char *const maps[] = {
        "+OK\r\n",
        "*0\r\n",
        "-ERR This instance has cluster support disabled\r\n",
        "*1\r\n:5\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n:7\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:0\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:65536\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n$1\r\n7\r\n",
        "*1\r\n*3\r\n:-5\r\n:99999999\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        "*1\r\n*3\r\n:16383\r\n:0\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
    };
    enum { COUNT = sizeof(maps) / sizeof(maps[0]) };
    static member_t members[COUNT];
    asked_t asked[COUNT];
    fake_t *fakes[COUNT];

    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(members[i].map, sizeof(members[i].map), "%s", maps[i]);
        (void)snprintf(members[i].claim, sizeof(members[i].claim), ":5\r\n");
        fakes[i] = fake_start(answer_member, &members[i]);
        ask(&asked[i], "redis+cluster", fake_port(fakes[i]), SHORT);
    }
    wait_for(asked, COUNT);
    for (int i = 0; i < COUNT; i++) {
        if (asked[i].error != ONCE_E_UNAVAILABLE) {
            fail_msg("\"%.60s\": %s", maps[i], once_error_name(asked[i].error));
        }
        (void)once_close(asked[i].once, 0);
        fake_stop(fakes[i]);
    }
}

/* Two that send everybody to each other, or both to a third that is not there. */
static void redirections_come_to_an_end(void **state)
{
    static const char *const forms[] = {"-MOVED 5 127.0.0.1:%u\r\n", "-ASK 5 127.0.0.1:%u\r\n",
                                        "-MOVED 5 127.0.0.1:1\r\n",  "-MOVED 5 ?:6379\r\n",
                                        "-MOVED 99999 :7\r\n",       "-ASK x y\r\n"};
    enum { COUNT = sizeof(forms) / sizeof(forms[0]) };
    static member_t members[COUNT][2];
    asked_t asked[COUNT];
    fake_t *fakes[COUNT][2];

    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 2; k++) {
            fakes[i][k] = fake_start(answer_member, &members[i][k]);
        }
        for (int k = 0; k < 2; k++) {
            unsigned other = fake_port(fakes[i][1 - k]);
            say_map(&members[i][k], fake_port(fakes[i][0]));
            if (i < 2) {
                (void)snprintf(members[i][k].claim, sizeof(members[i][k].claim),
                               i == 0 ? "-MOVED 5 127.0.0.1:%u\r\n" : "-ASK 5 127.0.0.1:%u\r\n",
                               other);
            } else {
                (void)snprintf(members[i][k].claim, sizeof(members[i][k].claim), "%s", forms[i]);
            }
        }
        ask(&asked[i], "redis+cluster", fake_port(fakes[i][0]), SHORT);
    }
    wait_for(asked, COUNT);
    for (int i = 0; i < COUNT; i++) {
        if (asked[i].error != ONCE_E_UNAVAILABLE) {
            fail_msg("\"%.60s\": %s", forms[i], once_error_name(asked[i].error));
        }
        /* Eight hops, then a pause. */
        assert_in_range(atomic_load(&members[i][0].claims) + atomic_load(&members[i][1].claims), 1,
                        100);
        (void)once_close(asked[i].once, 0);
        for (int k = 0; k < 2; k++) {
            fake_stop(fakes[i][k]);
        }
    }
}

/* A slot is on its way to a server that has never seen our scripts: every command to it needs its own ASKING. */
static int answer_importing(int fd, const fake_command_t *command, void *data)
{
    static _Thread_local int asking;
    const char *name = command->argv[0];
    int was_asking = asking, code;

    asking = strcasecmp(name, "ASKING") == 0;
    if (asking) {
        return fake_say(fd, "+OK\r\n");
    }
    if (strcasecmp(name, "INFO") == 0 || strcasecmp(name, "CLIENT") == 0) {
        return fake_polite(fd, command, cluster_info);
    }
    code = !was_asking                        ? fake_say(fd, data)
           : strcasecmp(name, "EVALSHA") == 0 ? fake_say(fd, "-NOSCRIPT No matching script.\r\n")
                                              : fake_say(fd, ":5\r\n");
    return code;
}

static void a_guest_brings_its_script(void **state)
{
    static member_t from;
    char moved[60];
    fake_t *source = fake_start(answer_member, &from), *target;
    asked_t asked;

    (void)snprintf(moved, sizeof(moved), "-MOVED 5 127.0.0.1:%u\r\n", fake_port(source));
    target = fake_start(answer_importing, moved);
    say_map(&from, fake_port(source));
    (void)snprintf(from.claim, sizeof(from.claim), "-ASK 5 127.0.0.1:%u\r\n", fake_port(target));
    ask(&asked, "redis+cluster", fake_port(source), "?store_timeout=5s");
    wait_for(&asked, 1);
    assert_int_equal(asked.error, ONCE_OK);
    assert_int_equal(asked.outcome, ONCE_OUTCOME_RUN);
    (void)once_close(asked.once, 0);
    fake_stop(source);
    fake_stop(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_such_answer_grants_anything),
        cmocka_unit_test(each_of_two_has_its_own_answer),
        cmocka_unit_test(where_keys_are_spread_each_goes_by_itself),
        cmocka_unit_test(a_bad_greeting_is_told),
        cmocka_unit_test(a_bad_listing_counts_nothing),
        cmocka_unit_test(the_next_sentinel_is_asked),
        cmocka_unit_test(sentinels_that_say_rubbish_are_refused),
        cmocka_unit_test(bad_maps_are_refused),
        cmocka_unit_test(redirections_come_to_an_end),
        cmocka_unit_test(a_guest_brings_its_script),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
