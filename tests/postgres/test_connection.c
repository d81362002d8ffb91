/*
 * The connection of lib/pg: batches that are late keep it, and how that ends.
 */
#include "sql.h"

#include <stdlib.h>
#include <string.h>

#include "pg/connection.h"
#include "pg/conninfo.h"
#include "pg/values.h"

#define COUNT 2

static uint64_t now_ms; /* time passes only where a test says so */

static uint64_t clock_ms(void *data)
{
    return now_ms;
}

typedef struct world {
    once__loop_t *loop;
    once__pg_conninfo_t conninfo;
    once__pg_owner_t owner;
    once__pg_connection_t connections[COUNT];
    once__pg_batch_t batches[2 * COUNT];
    char trouble[ONCE__PG_TROUBLE_SIZE];
    int connected, late, ended[3];
} world_t;

static void connected(void *data, once__pg_connection_t *connection)
{
    ((world_t *)data)->connected++;
}

static void failed(void *data, once__pg_connection_t *connection)
{
    fail_msg("%s", ((world_t *)data)->trouble);
}

static void ended(void *data, once__pg_connection_t *connection, once__pg_batch_t *batch,
                  once__pg_end_t end)
{
    ((world_t *)data)->ended[end]++;
}

static void late(void *data, once__pg_connection_t *connection, once__pg_batch_t *batch)
{
    assert_true(batch->is_late);
    ((world_t *)data)->late++;
}

static void turn(world_t *world)
{
    assert_int_equal(once__loop_wait(world->loop, 1000), 0);
    (void)once__loop_run(world->loop);
}

/* Lets time pass; what is due is done. */
static void pass(world_t *world, uint64_t ms)
{
    now_ms += ms;
    (void)once__loop_run(world->loop);
}

static world_t *open_world(void)
{
    world_t *world = calloc(1, sizeof(*world));
    once__env_t env = once__real_env;
    int code;

    now_ms = env.monotonic_ms(env.data);
    env.monotonic_ms = clock_ms;
    world->loop = once__loop_new(&env, &code);
    assert_non_null(world->loop);
    world->owner = (once__pg_owner_t){.connected = connected,
                                      .failed = failed,
                                      .ended = ended,
                                      .late = late,
                                      .data = world,
                                      .trouble = world->trouble,
                                      .tls = &world->conninfo.tls,
                                      .drain_ms = ONCE__PG_DRAIN_MS};
    assert_int_equal(
        once__pg_conninfo_begin(&world->conninfo, "test", getenv("ONCE_PG_GATEWAY_URL")), ONCE_OK);
    assert_int_equal(once__pg_conninfo_end(&world->conninfo), ONCE_OK);
    for (int i = 0; i < COUNT; i++) {
        once__pg_connection_t *connection = &world->connections[i];
        assert_int_equal(once__pg_connection_init(connection, world->loop, &world->owner, 3600000),
                         0);
        once__pg_connection_open(connection, world->conninfo.keywords, world->conninfo.values);
    }
    while (world->connected < COUNT) {
        turn(world);
    }
    return world;
}

static void close_world(world_t *world)
{
    for (int i = 0; i < COUNT; i++) {
        once__pg_connection_free(&world->connections[i]);
    }
    for (int i = 0; i < 2 * COUNT; i++) {
        once__pg_batch_clear(&world->batches[i]);
    }
    once__pg_conninfo_free(&world->conninfo);
    once__loop_free(world->loop);
    free(world);
}

/* A batch of one statement, which is late after a minute. */
static void send(world_t *world, int connection, int batch, const char *statement)
{
    static const once__pg_params_t none = {.count = 0};
    once__pg_connection_t *to = &world->connections[connection];

    assert_int_equal(once__pg_put_statement(to->conn, statement, &none, 0), 0);
    world->batches[batch].statement_count = 1;
    once__pg_connection_send(to, &world->batches[batch], 60000);
}

/* Takes a lock that the batches wait for: they end when it is released. */
static PGconn *take_lock(void)
{
    PGconn *owner = sql_connect(NULL);

    sql_run(owner, "SELECT pg_advisory_lock(7)");
    return owner;
}

static void a_late_batch_ends_and_its_connection_is_used_again(void **state)
{
    world_t *world = open_world();
    PGconn *lock = take_lock();
    once__pg_connection_t *connection = &world->connections[0];
    int process = PQbackendPID(connection->conn);

    send(world, 0, 0, "SELECT pg_advisory_xact_lock(7)");
    send(world, 0, 1, "SELECT 'behind'");
    pass(world, 59000);
    assert_int_equal(world->late, 0);
    pass(world, 1000);
    assert_int_equal(world->late, 2); /* the second one as well: it waits for the first */
    assert_int_equal(connection->state, ONCE__PG_DRAINING);
    assert_non_null(strstr(world->trouble, "the server does not answer"));
    PQfinish(lock);
    while (connection->state != ONCE__PG_IDLE) {
        turn(world);
    }
    assert_int_equal(world->ended[ONCE__PG_COMMITTED], 2);
    assert_string_equal(PQgetvalue(world->batches[1].results[0], 0, 0), "behind");
    once__pg_batch_clear(&world->batches[0]);
    send(world, 0, 0, "SELECT 'again'");
    while (world->ended[ONCE__PG_COMMITTED] < 3) {
        turn(world);
    }
    assert_false(world->batches[0].is_late);
    assert_int_equal(PQbackendPID(connection->conn), process);
    assert_string_equal(world->trouble, "");
    close_world(world);
}

static int count_state(const world_t *world, once__pg_state_t state)
{
    return (world->connections[0].state == state) + (world->connections[1].state == state);
}

static void what_never_answers_is_given_up_one_at_a_time(void **state)
{
    world_t *world = open_world();
    PGconn *lock = take_lock();

    send(world, 0, 0, "SELECT pg_advisory_xact_lock(7)");
    send(world, 1, 1, "SELECT pg_advisory_xact_lock(7)");
    pass(world, 60000);
    assert_int_equal(count_state(world, ONCE__PG_DRAINING), 2);
    pass(world, ONCE__PG_DRAIN_MS - 1000);
    assert_int_equal(count_state(world, ONCE__PG_DRAINING), 2);
    pass(world, 1000);
    assert_int_equal(count_state(world, ONCE__PG_DRAINING), 1);
    assert_int_equal(world->ended[ONCE__PG_LOST], 1);
    pass(world, ONCE__PG_DRAIN_MS - 1000);
    assert_int_equal(count_state(world, ONCE__PG_DRAINING), 1);
    pass(world, 1000);
    assert_int_equal(count_state(world, ONCE__PG_DOWN), 2);
    assert_int_equal(world->ended[ONCE__PG_LOST], 2);
    assert_int_equal(world->owner.drain_ms, 4 * ONCE__PG_DRAIN_MS);
    PQfinish(lock);
    close_world(world);
}

static void the_server_may_end_a_connection_that_drains(void **state)
{
    world_t *world = open_world();
    PGconn *lock = take_lock();

    world->owner.drain_ms = 4 * ONCE__PG_DRAIN_MS;
    send(world, 0, 0, "SELECT pg_advisory_xact_lock(7)");
    send(world, 0, 1, "SELECT 'behind'");
    pass(world, 60000);
    sql_run(lock, "SELECT pg_terminate_backend(%d)", PQbackendPID(world->connections[0].conn));
    while (world->connections[0].state != ONCE__PG_DOWN) {
        turn(world);
    }
    assert_int_equal(world->ended[ONCE__PG_LOST], 2);
    assert_int_equal(world->owner.drain_ms, ONCE__PG_DRAIN_MS);
    PQfinish(lock);
    close_world(world);
}

static void a_statement_that_fails_leaves_the_batch_behind_it_alone(void **state)
{
    world_t *world = open_world();

    send(world, 0, 0, "SELECT 1 / 0");
    send(world, 0, 1, "SELECT 'behind'");
    while (world->connections[0].state != ONCE__PG_IDLE) {
        turn(world);
    }
    assert_int_equal(world->ended[ONCE__PG_ABORTED], 1);
    assert_int_equal(world->ended[ONCE__PG_COMMITTED], 1);
    assert_string_equal(world->batches[0].sqlstate, "22012");
    assert_non_null(world->batches[0].failure);
    close_world(world);
}

static void a_complaint_is_one_line(void **state)
{
    world_t *world = open_world();

    send(world, 0, 0, "DO $$BEGIN RAISE EXCEPTION E'refused\\n\\tIs it\\trunning?\\n'; END$$");
    while (world->connections[0].state != ONCE__PG_IDLE) {
        turn(world);
    }
    assert_int_equal(world->ended[ONCE__PG_ABORTED], 1);
    assert_string_equal(world->trouble, "refused Is it running?");
    close_world(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_batch_ends_and_its_connection_is_used_again),
        cmocka_unit_test(what_never_answers_is_given_up_one_at_a_time),
        cmocka_unit_test(the_server_may_end_a_connection_that_drains),
        cmocka_unit_test(a_statement_that_fails_leaves_the_batch_behind_it_alone),
        cmocka_unit_test(a_complaint_is_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
