/*
 * once dlq replay: publishes dead letters again, to be handled again.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "broker/browse.h"
#include "broker/dead_letter.h"
#include "broker/publish.h"
#include "cli/commands.h"
#include "cli/operator.h"
#include "cli/store.h"
#include "cli/text.h"
#include "cli/options.h"

#define CONFIRM_SECONDS 30

typedef struct settings {
    const char *to;
    once__cli_list_t ids;
    int all, any;
    const char *store;
    once__cli_operator_t operator;
} settings_t;

typedef struct replay {
    const settings_t *set;
    const char *url;
    char own
        [ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE]; /* the topic that these dead letters came from, by their topic's name; "": unknown */
    once__broker_publisher_t *publisher;
    once_t *once;                                    /* has the audit trail */
    char topic[ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE]; /* where the message that is under way goes */
    once__broker_choice_t original; /* what became of the message of a letter without a payload */
    uint64_t count;
    int answered; /* of the message that is under way */
    once__broker_verdict_t verdict;
    int code;
} replay_t;

static void published(void *data, void *tag, once__broker_verdict_t verdict, const char *reason,
                      uint64_t retry_after_ms)
{
    replay_t *replay = data;

    replay->answered = 1;
    replay->verdict = verdict;
    if (verdict != ONCE__BROKER_PUBLISHED) {
        once__cli_say("dlq replay: %s", reason);
    }
}

static int is_chosen(const settings_t *set, const once__broker_browsed_t *message)
{
    once_slice_t id = once__broker_browsed_header(message, ONCE__BROKER_DEAD_LETTER_ID);

    for (size_t i = 0; i < set->ids.count; i++) {
        if (id.data != NULL && strlen(set->ids.items[i]) == id.len &&
            memcmp(set->ids.items[i], id.data, id.len) == 0) {
            return 1;
        }
    }
    return set->ids.count == 0;
}

/*
 * A letter says where its message came from, and any writer of letters can put any text there: with the rights of the user that
 * replays, messages would be copied from and to other topics. So it has to be the topic that the letters belong to.
 */
static int is_believed(const replay_t *replay, const char *topic)
{
    const char *to = replay->set->to;

    return replay->set->any || strcmp(topic, replay->own) == 0 ||
           (to != NULL && strcmp(topic, to) == 0);
}

/* Where the message of a letter is published. ONCE__CLI_OK, or another code after saying why not. */
static int find_topic(replay_t *replay, const once__broker_browsed_t *message)
{
    int has_payload =
        once__broker_browsed_header(message, ONCE__BROKER_DEAD_LETTER_BYTES).data == NULL;
    char from[ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE];
    int32_t partition;
    int64_t offset;
    int known = once__broker_dead_letter_read_source(
                    once__broker_browsed_header(message, ONCE__BROKER_DEAD_LETTER_SOURCE), from,
                    &partition, &offset) == 0;

    if (replay->set->to == NULL && !known) {
        once__cli_say("dlq replay: a dead letter does not say where it came from; use --to NAME");
        return ONCE__CLI_USAGE;
    }
    if (known && (replay->set->to == NULL || !has_payload) && !is_believed(replay, from)) {
        once__cli_say("dlq replay: kept a dead letter that says it came from %s, which is not the "
                      "topic of these letters; --any believes it%s",
                      from, has_payload ? ", --to NAME publishes it there" : "");
        return ONCE__CLI_REFUSED;
    }
    snprintf(replay->topic, sizeof(replay->topic), "%s",
             replay->set->to != NULL ? replay->set->to : from);
    return ONCE__CLI_OK;
}

/* Waits until the broker has confirmed it. One descriptor and a time limit: a loop (lib/loop) would only be around it. */
static int publish(replay_t *replay, const once__broker_message_t *message)
{
    time_t limit = time(NULL) + CONFIRM_SECONDS;
    int taken = 0;

    replay->answered = 0;
    while (!replay->answered && time(NULL) <= limit) {
        struct pollfd fd = {once__broker_publisher_fd(replay->publisher), POLLIN, 0};
        if (!taken) {
            taken = once__broker_publish(replay->publisher, message, replay) == 0;
            once__broker_publisher_push(replay->publisher);
        }
        poll(&fd, 1, 100);
        once__broker_publisher_turn(replay->publisher);
    }
    if (!replay->answered) { /* the publisher still borrows it, and it is about to go */
        once__broker_publisher_close(replay->publisher);
        replay->publisher = NULL;
        once__cli_say("dlq replay: the broker did not confirm a message");
    }
    return replay->answered && replay->verdict == ONCE__BROKER_PUBLISHED ? 0 : -1;
}

/* The message without what the letter added. */
static once__broker_choice_t send(replay_t *replay, const once__broker_browsed_t *message)
{
    once__broker_pair_t headers[ONCE__BROKER_BROWSE_HEADERS_MAX];
    once__broker_message_t again = {
        .key = message->key, .payload = message->payload, .headers = headers};

    again.topic = once__slice_of(replay->topic);
    for (size_t i = 0; i < message->header_count; i++) {
        if (!once__broker_dead_letter_owns(message->headers[i].name)) {
            headers[again.header_count++] = message->headers[i];
        }
    }
    if (publish(replay, &again) != 0) {
        replay->code = ONCE__CLI_STORE;
        return ONCE__BROKER_ENOUGH;
    }
    replay->count++;
    return ONCE__BROKER_TAKE;
}

static once__broker_choice_t send_original(void *data, const once__broker_browsed_t *message)
{
    replay_t *replay = data;

    replay->original = send(replay, message);
    return replay->original;
}

/* A letter without the payload: the message is still where it came from. */
static once__broker_choice_t replay_original(replay_t *replay, const once__broker_browsed_t *letter)
{
    once_slice_t source = once__broker_browsed_header(letter, ONCE__BROKER_DEAD_LETTER_SOURCE);
    char topic[ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE], error[300] = "Kafka no longer has it";
    int32_t partition;
    int64_t offset;

    replay->original = ONCE__BROKER_LEAVE;
    if (once__broker_dead_letter_read_source(source, topic, &partition, &offset) != 0) {
        snprintf(error, sizeof(error), "the dead letter does not say where it is");
    } else if (once__broker_browse_one(replay->url, topic, partition, offset, send_original, replay,
                                       error, sizeof(error)) == 0 &&
               replay->original != ONCE__BROKER_LEAVE) {
        return replay->original;
    }
    once__cli_say(
        "dlq replay: a dead letter has no payload, and its message %.*s cannot be fetched: %s",
        (int)source.len, source.data != NULL ? (const char *)source.data : "", error);
    replay->code = ONCE__CLI_NOT_FOUND;
    return ONCE__BROKER_LEAVE;
}

/* Adds the intent (`of` 0) or the result to the audit trail. Returns its number; 0 after saying why it could not. */
static uint64_t record(const replay_t *replay, const once__broker_browsed_t *message, uint64_t of,
                       const char *result)
{
    once_slice_t id = once__broker_browsed_header(message, ONCE__BROKER_DEAD_LETTER_ID);
    char object[ONCE_AUDIT_OBJECT_MAX];

    snprintf(object, sizeof(object), "letter %.*s to %s", (int)(id.len < 200 ? id.len : 200),
             id.data != NULL ? (const char *)id.data : "", replay->topic);
    return once__cli_operator_add(replay->once, "dlq replay", object, of, result);
}

static once__broker_choice_t replay_one(void *data, const once__broker_browsed_t *message)
{
    replay_t *replay = data;
    once__broker_choice_t choice;
    uint64_t intent, before = replay->count;
    int code;

    if (!is_chosen(replay->set, message)) {
        return ONCE__BROKER_LEAVE;
    }
    code = find_topic(replay, message);
    if (code != ONCE__CLI_OK) {
        replay->code = code;
        return code == ONCE__CLI_USAGE ? ONCE__BROKER_ENOUGH : ONCE__BROKER_LEAVE;
    }
    intent = record(replay, message, 0, "");
    if (intent == 0) {
        replay->code = ONCE__CLI_STORE;
        return ONCE__BROKER_ENOUGH;
    }
    choice = once__broker_browsed_header(message, ONCE__BROKER_DEAD_LETTER_BYTES).data != NULL
                 ? replay_original(replay, message)
                 : send(replay, message);
    (void)record(replay, message, intent, replay->count > before ? "published" : "not published");
    return choice;
}

/* The store of the consumer, which has its audit trail. */
static int open_store(const once__cli_call_t *call, replay_t *replay)
{
    once__cli_call_t there = *call;
    int code;

    there.url = once__cli_store_option(replay->set->store);
    code = once__cli_open(&there, &replay->once);
    if (code != ONCE__CLI_OK) {
        once__cli_note("the replay is recorded in the audit trail of the consumer's store: name it "
                       "with --store");
    }
    return code == ONCE__CLI_OK ? once__cli_operator_act(replay->once, &replay->set->operator)
                                : code;
}

/* Letters in NAME.dlq belong to NAME; the owner of others is not known. */
static int find_own(const once__cli_call_t *call, replay_t *replay)
{
    char error[400];
    size_t len;

    if (once__broker_browse_name(replay->url, replay->own, error, sizeof(error)) != 0) {
        return once__cli_usage(call->command, "%s", error);
    }
    len = strlen(replay->own);
    if (len > 4 && strcmp(replay->own + len - 4, ".dlq") == 0) {
        replay->own[len - 4] = '\0';
        return ONCE__CLI_OK;
    }
    replay->own[0] = '\0';
    if (replay->set->to == NULL && !replay->set->any) {
        return once__cli_usage(
            call->command, "only letters in NAME.dlq are known to belong to NAME: give --to NAME, "
                           "or --any to trust each letter's own origin");
    }
    return ONCE__CLI_OK;
}

static int run_replay(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    replay_t replay = {.set = set, .url = call->operands[0]};
    once__broker_publisher_options_t options = {.published = published, .data = &replay};
    char error[400] = "out of memory", *url = once__broker_browse_publish_url(call->operands[0]);

    replay.code = once__cli_check_values(call);
    if (replay.code == ONCE__CLI_OK && set->to != NULL &&
        strlen(set->to) >= ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE) {
        replay.code = once__cli_usage(call->command, "--to is too long");
    }
    if (replay.code != ONCE__CLI_OK) {
        free(url);
        return replay.code;
    }
    replay.publisher =
        url != NULL ? once__broker_publisher_open(url, &options, error, sizeof(error)) : NULL;
    free(url);
    if (replay.publisher == NULL) {
        return once__cli_usage(call->command, "%s", error);
    }
    replay.code = find_own(call, &replay);
    if (replay.code == ONCE__CLI_OK) {
        replay.code = once__cli_operator_check(call->command, &set->operator);
    }
    if (replay.code == ONCE__CLI_OK) {
        replay.code = open_store(call, &replay);
    }
    if (replay.code != ONCE__CLI_OK) {
        once__broker_publisher_close(replay.publisher);
        once__cli_close(replay.once);
        return replay.code;
    }
    if (once__broker_browse(call->operands[0], set->all, replay_one, &replay, error,
                            sizeof(error)) != 0) {
        once__cli_say("dlq replay: %s", error);
        replay.code = ONCE__CLI_STORE;
    }
    once__broker_publisher_close(replay.publisher);
    once__cli_close(replay.once);
    printf("replayed %" PRIu64 "\n", replay.count);
    return replay.code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"to", 0, ONCE__CLI_TEXT, "NAME", "topic or queue to publish to (default: NAME for letters in NAME.dlq)",
     offsetof(settings_t, to)},
    {"any", 0, ONCE__CLI_FLAG, NULL, "publish each to wherever it says it came from", offsetof(settings_t, any)},
    {"id", 0, ONCE__CLI_LIST, "ID", "replay only this event; may be repeated", offsetof(settings_t, ids)},
    {"all", 0, ONCE__CLI_FLAG, NULL, "Kafka: also those already replayed", offsetof(settings_t, all)},
    ONCE__CLI_OPERATOR_OPTIONS(offsetof(settings_t, operator)),
    {"store", 0, ONCE__CLI_TEXT, "URL", "the consumer's store (default ONCE_STORE, or local:./once-data)", offsetof(settings_t, store)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_dlq_replay = {
    .name = "dlq replay",
    .operands = "FROM",
    .summary = "publish dead letters again, to be handled again",
    .details =
        "FROM is kafka://HOST[:PORT]/TOPIC or amqp[s]://HOST[:PORT]/VHOST/QUEUE, such as\n"
        "amqp://127.0.0.1/%2F/orders.dlq. Each is published without the headers that\n"
        "once consume added, and removed when the broker has confirmed it; with Kafka the offset\n"
        "of the group once-dlq advances instead. A record that was released is claimed again; an\n"
        "id reused with another payload stays a mismatch. If a letter has no payload, its message\n"
        "is fetched from where it came from. A letter that says it came from a topic other than\n"
        "the one these letters belong to (orders for orders.dlq) is kept, unless --any. Each is\n"
        "added to the audit trail of the consumer's store, before it is published and after.\n",
    .store = ONCE__CLI_NO_STORE,
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_replay,
};
