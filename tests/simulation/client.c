#include "client.h"

#include <string.h>

#include "gateway.h"

enum { TRIES_MAX = 8 };

struct client {
    world_t *world;
    unsigned number;
    sim_key_t *key;
    int variant;
    unsigned tries;
    int finisher; /* asks for its own key until that has an end */
    int done;
};

static void ask(void *data);
static void next_operation(void *data);

/* One request on its way. */
typedef struct trip {
    request_t *request;
    gateway_t *gateway;
    answer_kind_t kind;
} trip_t;

/* --------------------------------------------------------------------------------------------------- after an answer */

static void ask_again(client_t *client)
{
    world_t *world = client->world;

    world_after(world, prng_between(&world->prng, world->plan.lease / 8, world->plan.lease / 2),
                ask, client);
}

static void rest(client_t *client)
{
    world_t *world = client->world;

    client->done = client->finisher || world->quiet;
    if (!client->done) {
        world_after(world, prng_between(&world->prng, world->plan.lease / 4, world->plan.lease),
                    next_operation, client);
    }
}

static int is_final(const client_t *client, answer_kind_t kind)
{
    switch (kind) {
    case ANSWER_RECORDED:
    case ANSWER_REPLAYED:
        return 1;
    case ANSWER_MISMATCH:
        return !client->finisher;
    case ANSWER_UNKNOWN:
        return !client->world->plan.operator_;
    default:
        return 0;
    }
}

static void hear(client_t *client, answer_kind_t kind)
{
    world_t *world = client->world;

    client->tries++;
    if (!client->finisher && world->quiet) {
        rest(client);
    } else if (is_final(client, kind)) {
        /* Some come back to see whether the answer is still the same. */
        if (!client->finisher && client->tries < TRIES_MAX && world_chance(world, 300)) {
            ask_again(client);
        } else {
            rest(client);
        }
    } else if (client->finisher || client->tries < TRIES_MAX) {
        ask_again(client);
    } else {
        rest(client);
    }
}

static void count_answer(world_t *world, answer_kind_t kind)
{
    static const int counters[] = {
        [ANSWER_RECORDED] = -1,
        [ANSWER_REPLAYED] = COUNT_REPLAYS,
        [ANSWER_PASSED] = -1,
        [ANSWER_DOUBT] = -1,
        [ANSWER_BUSY] = COUNT_BUSY,
        [ANSWER_UNKNOWN] = COUNT_UNKNOWN,
        [ANSWER_MISMATCH] = COUNT_MISMATCHES,
        [ANSWER_ERROR] = COUNT_ERRORS,
    };

    if (counters[kind] >= 0) {
        world_count(world, (enum counter)counters[kind]);
    }
}

static void answer_arrives(void *data)
{
    trip_t *trip = data;
    request_t *request = trip->request;

    if (!request->over) {
        request->over = 1;
        if (request->client != NULL) {
            hear(request->client, trip->kind);
        }
    }
}

void request_answer(request_t *request, answer_kind_t kind, const response_t *response)
{
    static const char *const names[] = {"the response, recorded",
                                        "replay",
                                        "the response",
                                        "504",
                                        "409 busy",
                                        "409 unknown",
                                        "422",
                                        "503"};
    world_t *world = request->world;
    trip_t *trip = world_alloc(world, sizeof(*trip));

    count_answer(world, kind);
    world_say(world, request->key->number, "answer: %s%s%s", names[kind],
              response != NULL ? ": " : "", response != NULL ? response->body : "");
    trip->request = request;
    trip->kind = kind;
    world_after(world, prng_between(&world->prng, 1, 10), answer_arrives, trip);
}

/* ----------------------------------------------------------------------------------------------------------- asking */

static void hang_up(void *data)
{
    request_t *request = data;

    if (!request->over) {
        request->over = 1;
        if (request->client != NULL) {
            hear(request->client, ANSWER_ERROR);
        }
    }
}

static void request_arrives(void *data)
{
    trip_t *trip = data;

    if (!gateway_takes(trip->gateway, trip->request)) {
        hang_up(trip->request);
    }
}

static void send_request(client_t *client, client_t *listener, gateway_t *gateway)
{
    world_t *world = client->world;
    request_t *request = world_alloc(world, sizeof(*request));
    trip_t *trip = world_alloc(world, sizeof(*trip));
    uint64_t timeout = world->plan.client_timeout;

    request->client = listener;
    request->world = world;
    request->key = client->key;
    request->variant = client->variant;
    request->asked_at = world->now;
    trip->request = request;
    trip->gateway = gateway;
    world_count(world, COUNT_REQUESTS);
    world_say(world, client->key->number, "client %u asks gateway %u: %s", client->number,
              trip->gateway->number, ledger_body(client->variant));
    world_after(world, world->script != NULL ? 1 : prng_between(&world->prng, 1, 10),
                request_arrives, trip);
    if (world_chance(world, world->plan.impatient)) {
        timeout = prng_between(&world->prng, 10, timeout);
    }
    world_after(world, timeout, hang_up, request);
}

static gateway_t *any_gateway(world_t *world)
{
    return &world->gateways[prng_between(&world->prng, 0, world->plan.gateways - 1)];
}

static void ask(void *data)
{
    client_t *client = data;
    const life_t *life = ledger_life(client->key);

    if (client->finisher && life != NULL) {
        client->variant = life->variant;
    } else if (client->world->quiet && !client->finisher) {
        client->done = 1;
        return;
    }
    if (world_chance(client->world, client->world->plan.twins)) {
        send_request(client, NULL, any_gateway(client->world));
    }
    send_request(client, client, any_gateway(client->world));
}

void client_ask_once(world_t *world, unsigned gateway, int variant)
{
    client_t *client = world_alloc(world, sizeof(*client));

    client->world = world;
    client->key = &world->ledger->keys[0];
    client->variant = variant;
    send_request(client, NULL, &world->gateways[gateway]);
}

static void next_operation(void *data)
{
    client_t *client = data;
    world_t *world = client->world;

    client->tries = 0;
    client->key = &world->ledger->keys[prng_between(&world->prng, 0, world->plan.keys - 1)];
    client->variant = world_chance(world, world->plan.other_body);
    ask(client);
}

void clients_start(world_t *world)
{
    unsigned count = world->plan.clients + world->plan.keys;

    world->clients = world_alloc(world, count * sizeof(client_t));
    for (unsigned i = 0; i < count; i++) {
        world->clients[i].world = world;
        world->clients[i].number = i;
    }
    for (unsigned i = 0; i < world->plan.clients; i++) {
        world_after(world, prng_between(&world->prng, 1, world->plan.lease), next_operation,
                    &world->clients[i]);
    }
}

void clients_calm_down(world_t *world)
{
    for (unsigned i = 0; i < world->plan.keys; i++) {
        client_t *client = &world->clients[world->plan.clients + i];
        client->finisher = 1;
        client->key = &world->ledger->keys[i];
        ask(client);
    }
}

int clients_done(const world_t *world)
{
    for (unsigned i = 0; i < world->plan.keys; i++) {
        if (!world->clients[world->plan.clients + i].done) {
            return 0;
        }
    }
    return 1;
}
