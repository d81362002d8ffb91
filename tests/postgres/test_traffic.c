/*
 * How the store uses its connections: how many, what it leaves in the server's sessions, and what one that stalls does to others.
 */
#include "sql.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <once/once.h>

#define MANY 64

static PGconn *owner;

typedef struct tally {
    int answered, granted;
} tally_t;

static void count(once_t *once, once_answer_t *answer, void *data)
{
    tally_t *tally = data;

    tally->answered++;
    tally->granted +=
        once_answer_error(answer) == ONCE_OK && once_answer_outcome(answer) == ONCE_OUTCOME_RUN;
}

static once_t *open_gateway(const char *variable, const char *options)
{
    char url[512];
    once_error_t err;
    once_t *gateway = NULL;

    snprintf(url, sizeof(url), "%s%s", getenv(variable), options);
    assert_int_equal(once_open(url, NULL, &gateway, &err), ONCE_OK);
    return gateway;
}

static void begin(once_t *gateway, const char *key, tally_t *tally)
{
    once_ask_t question = ONCE_ASK_INIT;

    question.scope = (once_slice_t){"shop", 4};
    question.key = (once_slice_t){key, strlen(key)};
    assert_int_equal(once_begin(gateway, &question, count, tally), ONCE_OK);
}

static void await(once_t *gateway, const tally_t *tally, int answers)
{
    while (tally->answered < answers) {
        assert_true(once_wait(gateway, 1000) >= 0);
    }
}

/* Every key is new and must be granted. */
static void begin_many(once_t *gateway, const char *name, int many)
{
    tally_t tally = {0};

    for (int i = 0; i < many; i++) {
        char key[64];
        snprintf(key, sizeof(key), "%s-%d", name, i);
        begin(gateway, key, &tally);
    }
    await(gateway, &tally, many);
    assert_int_equal(tally.granted, many);
}

static int connections(void)
{
    return atoi(sql_one(owner, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'gateway'"));
}

static void much_takes_a_second_connection(void **state)
{
    once_t *gateway = open_gateway("ONCE_PG_GATEWAY_URL", "");

    for (int i = 0; connections() < 2; i++) { /* at first it is on its way */
        char name[32];
        snprintf(name, sizeof(name), "much-%d", i);
        assert_true(i < 200);
        begin_many(gateway, name, MANY);
    }
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* What a session has when a record is inserted: how many statements are prepared. */
static void note_sessions(void)
{
    sql_run(owner, "CREATE TABLE seen (prepared bigint, key text); GRANT ALL ON seen TO PUBLIC; "
                   "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                   "INSERT INTO public.seen SELECT count(*), convert_from(NEW.key, 'UTF8') FROM "
                   "pg_prepared_statements; "
                   "IF NEW.key = 'forget' THEN DEALLOCATE ALL; END IF; RETURN NEW; END $$; "
                   "CREATE TRIGGER note BEFORE INSERT ON once.keys FOR EACH ROW EXECUTE FUNCTION "
                   "note()");
}

static void forget_sessions(void)
{
    sql_run(owner, "DROP TRIGGER note ON once.keys; DROP FUNCTION note; DROP TABLE seen");
}

static const char *prepared_for(const char *key)
{
    return sql_one(owner, "SELECT prepared > 0 FROM seen WHERE key = '%s'", key);
}

static void statements_are_prepared_where_the_session_is_ours(void **state)
{
    once_t *gateway = open_gateway("ONCE_PG_GATEWAY_URL", "&connections=1");

    note_sessions();
    begin_many(gateway, "first", 1);
    begin_many(gateway, "second", 1);
    begin_many(gateway, "third", 1);
    assert_string_equal(prepared_for("third-0"), "t");
    forget_sessions();
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

static void nothing_is_left_in_the_sessions_of_a_pool(void **state)
{
    once_t *gateway = open_gateway("ONCE_PG_POOL_URL", "");

    note_sessions();
    for (int i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof(name), "pooled-%d", i);
        begin_many(gateway, name, 1);
    }
    assert_string_equal(sql_one(owner, "SELECT count(*) || ' ' || max(prepared) FROM seen"),
                        "10 0");
    forget_sessions();
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

static void a_session_that_forgot_is_noticed(void **state)
{
    once_t *gateway = open_gateway("ONCE_PG_GATEWAY_URL", "&connections=1");
    tally_t tally = {0};

    note_sessions();
    begin_many(gateway, "before-1", 1);
    begin_many(gateway, "before-2", 1);
    begin(gateway, "forget", &tally);
    await(gateway, &tally, 1);
    begin_many(gateway, "after-1", 8);
    begin_many(gateway, "after-2", 8);
    assert_string_equal(prepared_for("before-2-0"), "t");
    assert_string_equal(prepared_for("after-2-0"), "f");
    forget_sessions();
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/*
 * With an error that could as well come of what the session remembers: it is sent once more at once, without that. Then it is
 * an error like others; the handle tries again a few times, with pauses.
 */
static void a_claim_that_fails_is_not_sent_again_without_a_pause(void **state)
{
    once_t *gateway = open_gateway("ONCE_PG_GATEWAY_URL", "&connections=1");
    tally_t tally = {0};

    begin_many(gateway, "fine", 1);
    sql_run(owner, "CREATE SEQUENCE asked; GRANT ALL ON asked TO PUBLIC; "
                   "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                   "PERFORM nextval('public.asked'); RAISE 'no' USING ERRCODE = '0A000'; END $$; "
                   "CREATE TRIGGER refuse BEFORE INSERT ON once.keys FOR EACH ROW EXECUTE FUNCTION "
                   "refuse()");
    begin(gateway, "refused", &tally);
    await(gateway, &tally, 1);
    assert_int_equal(tally.granted, 0);
    assert_string_equal(sql_one(owner, "SELECT last_value BETWEEN 2 AND 100 FROM asked"), "t");
    sql_run(owner, "DROP TRIGGER refuse ON once.keys; DROP FUNCTION refuse; DROP SEQUENCE asked");
    begin_many(gateway, "fine-again", 1);
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void signal_connections(int number)
{
    const char *text = sql_one(owner, "SELECT coalesce(string_agg(pid::text, ' '), '') FROM "
                                      "pg_stat_activity WHERE usename = 'gateway'");
    int process, len;

    assert_true(sscanf(text, "%d", &process) == 1);
    for (; sscanf(text, "%d%n", &process, &len) == 1; text += len) {
        assert_int_equal(kill((pid_t)process, number), 0);
    }
}

/* What comes while a batch is under way waits for its end, but not when that does not come. */
static void a_connection_that_stalls_does_not_hold_others(void **state)
{
    once_t *gateway = open_gateway("ONCE_PG_GATEWAY_URL", "");
    tally_t stalled = {0}, others = {0};
    double began;

    begin_many(gateway, "stalls", 1);
    signal_connections(SIGSTOP);
    began = now_ms();
    begin(gateway, "stalled", &stalled);
    assert_true(once_wait(gateway, 0) >= 0);
    begin(gateway, "beside it", &others);
    await(gateway, &others, 1);
    signal_connections(SIGCONT);
    assert_int_equal(others.granted, 1);
    assert_true(now_ms() - began < 3000); /* the stalled one is given up after 5 s */
    await(gateway, &stalled, 1);
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

static int is_socket_to(int fd, in_port_t port)
{
    struct sockaddr_in peer;
    socklen_t len = sizeof(peer);

    return getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_family == AF_INET &&
           peer.sin_port == port;
}

static int tcp_option(in_port_t port, int option)
{
    int value = -1;
    socklen_t len = sizeof(value);

    for (int fd = 3; fd < 256; fd++) {
        if (is_socket_to(fd, port) && getsockopt(fd, IPPROTO_TCP, option, &value, &len) == 0) {
            return value;
        }
    }
    return -1;
}

/* What the URL says about the host's silence counts; else it may be silent for 10 s. */
static void tcp_ends_the_connections_of_a_silent_host(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
    for (int given = 0; given < 2; given++) {
        once_t *gateway = NULL;
        tally_t tally = {0};
        once_error_t err;
        char url[200];
        snprintf(url, sizeof(url), "postgres://gateway@127.0.0.1:%d/postgres?sslmode=disable%s",
                 ntohs(address.sin_port), given ? "&tcp_user_timeout=33000" : "");
        assert_int_equal(once_open(url, NULL, &gateway, &err), ONCE_OK);
        begin(gateway, "silent", &tally);
        assert_true(once_wait(gateway, 0) >= 0);
        assert_int_equal(tcp_option(address.sin_port, TCP_USER_TIMEOUT), given ? 33000 : 10000);
        assert_int_equal(tcp_option(address.sin_port, TCP_KEEPIDLE), 5);
        (void)once_close(gateway, 0);
    }
    close(listener);
}

static int gateway_process(void)
{
    return atoi(sql_one(owner, "SELECT max(pid) FROM pg_stat_activity WHERE usename = 'gateway'"));
}

/* The server may still be at it: its process is waited for, and no other one is taken beside it. */
static void a_batch_that_is_given_up_keeps_its_connection(void **state)
{
    once_t *gateway = open_gateway("ONCE_PG_GATEWAY_URL", "&connections=1&store_timeout=300ms");
    tally_t tally = {0};
    char trouble[500];
    int process, asked = 0;

    begin_many(gateway, "answered", 1);
    process = gateway_process();
    signal_connections(SIGSTOP);
    while (asked < 4) { /* each for as long as the store is waited for */
        char key[32];
        snprintf(key, sizeof(key), "given up %d", asked);
        begin(gateway, key, &tally);
        await(gateway, &tally, ++asked);
        assert_int_equal(connections(), 1);
    }
    assert_int_equal(tally.granted, 0);
    assert_true(once_store_trouble(gateway, trouble, sizeof(trouble)) > 0);
    assert_non_null(strstr(trouble, "the server does not answer"));
    signal_connections(SIGCONT);
    do { /* until the answer was read */
        tally = (tally_t){0};
        begin(gateway, "after", &tally);
        await(gateway, &tally, 1);
    } while (!tally.granted);
    assert_int_equal(once_store_trouble(gateway, trouble, sizeof(trouble)), 0);
    begin_many(gateway, "then", 8);
    assert_int_equal(connections(), 1);
    assert_int_equal(gateway_process(), process);
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* A connection that knows its statements, and two batches on it, one behind the other, which the server has not seen yet. */
static once_t *send_two(const char *first, tally_t *tally)
{
    once_t *gateway = open_gateway("ONCE_PG_GATEWAY_URL", "&connections=1");
    char key[64];

    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%.8s-known-%d", first, i);
        begin_many(gateway, name, 1);
    }
    signal_connections(SIGSTOP);
    begin(gateway, first, tally);
    for (int i = 1; i < 2 * MANY; i++) {
        snprintf(key, sizeof(key), "%s-two-%d", first, i);
        begin(gateway, key, tally);
        if (i == MANY - 1) {
            assert_true(once_wait(gateway, 0) >= 0);
        }
    }
    assert_true(once_wait(gateway, 0) >= 0);
    return gateway;
}

static void two_batches_are_lost_with_their_connection(void **state)
{
    tally_t tally = {0};
    once_t *gateway = send_two("lost", &tally);
    double began = now_ms();

    sql_run(owner,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gateway'");
    signal_connections(SIGCONT);
    await(gateway, &tally, 2 * MANY);
    assert_int_equal(tally.granted, 2 * MANY);
    assert_true(now_ms() - began < 4000); /* neither is waited for, which would take 5 s */
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

/* The first of them makes the session forget the statements that the second was sent with. */
static void a_batch_behind_one_that_fails_its_session(void **state)
{
    tally_t tally = {0};
    once_t *gateway;

    sql_run(owner, "DELETE FROM once.keys WHERE key = 'forget'");
    note_sessions();
    gateway = send_two("forget", &tally);
    signal_connections(SIGCONT);
    await(gateway, &tally, 2 * MANY);
    assert_int_equal(tally.granted, 2 * MANY);
    forget_sessions();
    assert_int_equal(once_close(gateway, 5000), ONCE_OK);
}

static int set_up(void **state)
{
    owner = sql_connect(NULL);
    sql_open_store(owner);
    return 0;
}

static int tear_down(void **state)
{
    PQfinish(owner);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(much_takes_a_second_connection),
        cmocka_unit_test(statements_are_prepared_where_the_session_is_ours),
        cmocka_unit_test(a_session_that_forgot_is_noticed),
        cmocka_unit_test(a_claim_that_fails_is_not_sent_again_without_a_pause),
        cmocka_unit_test(a_connection_that_stalls_does_not_hold_others),
        cmocka_unit_test(a_batch_that_is_given_up_keeps_its_connection),
        cmocka_unit_test(tcp_ends_the_connections_of_a_silent_host),
        cmocka_unit_test(two_batches_are_lost_with_their_connection),
        cmocka_unit_test(a_batch_behind_one_that_fails_its_session),
        /* last: the pool keeps its connections */
        cmocka_unit_test(nothing_is_left_in_the_sessions_of_a_pool),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
