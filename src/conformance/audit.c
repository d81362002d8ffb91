/*
 * The audit trail: decisions of people leave entries in the store. Other tests and programs may add to the trail meanwhile, so that
 * each test looks for its own entries, by a name that no other has.
 */
#include "conformance/suite.h"

#include <stdio.h>
#include <string.h>

#include <once/audit.h>
#include <once/experimental.h>

#define NAME_SIZE    100
#define ENTRIES_MAX  256
#define WRITERS      2
#define WRITER_TURNS 10
#define PAGED        110 /* more than one step shows */

typedef struct entries {
    const char *by;
    unsigned count;  /* of this name */
    unsigned faults; /* of anyone's */
    uint64_t numbers[ENTRIES_MAX];
    char texts[ENTRIES_MAX][1024];
} entries_t;

static int collect(once_t *once, const once_audit_entry_t *entry, void *data)
{
    entries_t *entries = data;
    char text[1024], by[NAME_SIZE + 16];

    entries->faults += entry->fault != ONCE_AUDIT_FINE;
    snprintf(text, sizeof(text), "%.*s", (int)entry->json.len, (const char *)entry->json.data);
    snprintf(by, sizeof(by), "\"by\":\"%s\"", entries->by);
    if (strstr(text, by) != NULL && entries->count < ENTRIES_MAX) {
        entries->numbers[entries->count] = entry->number;
        memcpy(entries->texts[entries->count++], text, sizeof(text));
    }
    return 0;
}

static entries_t *read_trail(once__test_t *t, once__peer_t *peer, const char *by)
{
    entries_t *entries = once__test_alloc(t, sizeof(*entries));

    entries->by = by;
    EXPECT(ONCE_OK, once_audit_scan_sync(peer->once, collect, entries, NULL));
    CHECK_EQ(0, entries->faults);
    return entries;
}

/* A name that no other run has. Entries stay, so it says where they come from. */
static const char *name_for(once__test_t *t, unsigned number)
{
    const once__asked_t none = {.key = "k"};
    char scope[ONCE__SCOPE_SIZE], *name = once__test_alloc(t, NAME_SIZE);

    once__peer_scope(t, &none, scope);
    snprintf(name, NAME_SIZE, "once conformance %.60s %u", scope, number);
    return name;
}

static void act_as(once__test_t *t, once__peer_t *peer, const char *by)
{
    once_slice_t name = {by, strlen(by)}, note = {"because", 7};

    EXPECT(ONCE_OK, once_audit_as(peer->once, name, note));
}

#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL) {                                                      \
            FAIL("no %s in %s", (part), (text));                                                   \
        }                                                                                          \
    } while (0)

static void audit_settle(once__test_t *t)
{
    once_response_t response = once__response(200, "settled");
    once__asked_t ask = {.key = "k", .policy = SHORT "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    const char *by = name_for(t, 1);
    entries_t *trail;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_doubt(a));
    once__peer_wait_lease(a, &ask);
    act_as(t, b, by);
    EXPECT(ONCE_OUTCOME_DONE, once__peer_settle(b, a->token, &response, 0));
    CHECK_STATE(ONCE_STATE_COMPLETED, b);
    trail = read_trail(t, a, by); /* another handle sees it */
    CHECK_EQ(2, trail->count);
    CHECK_HAS(trail->texts[0], "\"act\":\"settle completed\",\"step\":\"intent\",\"record\":\"");
    CHECK_HAS(trail->texts[0], "\"epoch\":1,\"from\":\"unknown\",\"note\":\"because\"}");
    CHECK_HAS(trail->texts[1], "\"step\":\"result\",\"of\":");
    CHECK_HAS(trail->texts[1], "\"to\":\"completed\",\"result\":\"done\"}");
    CHECK(trail->numbers[1] > trail->numbers[0]);
}

/* What was refused is in the trail as well. */
static void audit_refused(once__test_t *t)
{
    once__asked_t ask = {.key = "k", .policy = LONG "recover=hold"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    const char *by = name_for(t, 1);
    entries_t *trail;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    act_as(t, b, by);
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_settle(b, a->token, NULL, 0));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(b, a->token, 1));
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_purge(b, a->token, 1));
    trail = read_trail(t, a, by);
    CHECK_EQ(6, trail->count);
    CHECK_HAS(trail->texts[0], "\"from\":\"pending\"");
    CHECK_HAS(trail->texts[1], "\"to\":\"pending\",\"result\":\"refused\"");
    CHECK_HAS(trail->texts[2], "\"act\":\"purge\"");
    CHECK_HAS(trail->texts[3], "\"to\":\"none\",\"result\":\"done\"");
    CHECK_HAS(trail->texts[4], "\"from\":\"none\"");
    CHECK_HAS(trail->texts[5], "\"result\":\"refused\"");
}

/* What is erased must not live on in the trail. */
static void audit_erase(once__test_t *t)
{
    once__asked_t ask = {
        .key = "canary-key", .description = "canary-text", .subject = "canary-name"};
    once__peer_t *a = once__peer_open(t, ""), *b = once__peer_open(t, "");
    const char *by = name_for(t, 1);
    entries_t *trail;

    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    act_as(t, b, by);
    EXPECT(ONCE_OUTCOME_REFUSED, once__peer_erase(b, a->token));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_complete(a, NULL));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_erase(b, a->token));
    EXPECT(ONCE_OK, once__peer_get(a, &ask));
    CHECK_EQ(0, once_record_cause(a->record).len);
    trail = read_trail(t, a, by);
    CHECK_EQ(4, trail->count);
    CHECK_HAS(trail->texts[1], "\"to\":\"pending\",\"result\":\"refused\"");
    CHECK_HAS(trail->texts[2], "\"act\":\"erase\",\"step\":\"intent\",\"record\":\"");
    CHECK_HAS(trail->texts[3], "\"to\":\"completed\",\"result\":\"done\"");
    for (unsigned i = 0; i < trail->count; i++) {
        CHECK(strstr(trail->texts[i], "canary") == NULL);
    }
}

/* Programs that decide by themselves leave no entries, and a person has a reason. */
static void audit_nobody(once__test_t *t)
{
    once_slice_t name = {"x", 1}, none = {"", 0};
    once_act_t act = ONCE_ACT_INIT;
    once__asked_t ask = {.key = "k"};
    once__peer_t *a = once__peer_open(t, "");
    const char *by = name_for(t, 1);

    act.name = "test";
    EXPECT(ONCE_E_INVALID, once_audit_as(a->once, name, none));
    EXPECT(ONCE_E_INVALID, once_audit_add_sync(a->once, &act, NULL));
    act_as(t, a, by);
    EXPECT(ONCE_OK, once_audit_as(a->once, none, none));
    EXPECT(ONCE_OUTCOME_RUN, once__peer_begin(a, &ask));
    EXPECT(ONCE_OUTCOME_DONE, once__peer_purge(a, a->token, 1));
    CHECK_EQ(0, read_trail(t, a, by)->count);
}

typedef struct writer {
    const char *by;
} writer_t;

static void write_entries(once__test_t *t, unsigned number, void *data)
{
    const writer_t *writers = data;
    once__peer_t *peer = once__peer_open(t, "");
    once_act_t act = ONCE_ACT_INIT;

    act.name = "test";
    act.result = once__text("done");
    act_as(t, peer, writers[number].by);
    for (unsigned i = 0; i < WRITER_TURNS; i++) {
        EXPECT(ONCE_OK, once_audit_add_sync(peer->once, &act, NULL));
    }
}

/* Every entry of every writer is there, once, and the chain is whole. */
static void audit_writers(once__test_t *t)
{
    writer_t *writers = once__test_alloc(t, WRITERS * sizeof(*writers));
    once__peer_t *peer = once__peer_open(t, "");

    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i].by = name_for(t, i);
    }
    once__test_run_threads(t, WRITERS, write_entries, writers);
    for (unsigned i = 0; i < WRITERS; i++) {
        CHECK_EQ(WRITER_TURNS, read_trail(t, peer, writers[i].by)->count);
    }
}

/* Steps back from the end show each entry once, in order within a step, and the chain is whole. */
static void audit_pages(once__test_t *t)
{
    once__peer_t *peer = once__peer_open(t, "");
    const char *by = name_for(t, 1);
    once_act_t act = ONCE_ACT_INIT;
    once_page_t page = {.end = 0};
    uint64_t oldest = UINT64_MAX;
    unsigned steps = 0, count = 0;
    char object[400];

    memset(object, 'x', sizeof(object));
    act.name = "test";
    act.object = (once_slice_t){object, sizeof(object)};
    act_as(t, peer, by);
    for (unsigned i = 0; i < PAGED; i++) {
        EXPECT(ONCE_OK, once_audit_add_sync(peer->once, &act, NULL));
    }
    for (; !page.end && count < PAGED; steps++) {
        entries_t *step = once__test_alloc(t, sizeof(*step));
        step->by = by;
        EXPECT(ONCE_OK, once_audit_page_sync(peer->once, &page, collect, step, NULL));
        CHECK_EQ(0, step->faults);
        for (unsigned i = step->count; i > 0; i--) {
            CHECK(step->numbers[i - 1] < oldest);
            oldest = step->numbers[i - 1];
        }
        count += step->count;
    }
    CHECK_EQ(PAGED, count);
    CHECK(steps > 1);
    memset(page.cursor, 0xff, sizeof(page.cursor)); /* it may come from anybody */
    EXPECT(ONCE_OK,
           once_audit_page_sync(peer->once, &page, collect, read_trail(t, peer, by), NULL));
    EXPECT(ONCE_E_INVALID, once_audit_page_sync(peer->once, NULL, collect, NULL, NULL));
}

const once__case_t once__audit_cases[] = {
    {"audit-settle", "a settlement leaves its intent and its result in the audit trail",
     audit_settle},
    {"audit-refused", "so do decisions that are refused, and purges", audit_refused},
    {"audit-erase", "what is erased has entries without its texts", audit_erase},
    {"audit-nobody", "a handle that acts for nobody leaves no entries", audit_nobody},
    {"audit-writers", "two writers at once make one chain, with every entry of both",
     audit_writers},
    {"audit-pages", "steps back from the end of the trail show every entry once", audit_pages},
    {0},
};
