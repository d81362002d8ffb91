/*
 * once dlq replay: dead letters are published again, to be handled anew.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "broker/browse.h"
#include "broker/publish.h"
#include "cli/commands.h"
#include "cli/text.h"

#define CONFIRM_SECONDS 30
#define TOPIC_MAX       512

typedef struct settings {
    const char *to;
    once__cli_list_t ids;
    int all;
} settings_t;

typedef struct replay {
    const settings_t *set;
    once__publisher_t *publisher;
    uint64_t count;
    int answered; /* of the message that is under way */
    once__verdict_t verdict;
    int code;
} replay_t;

static void published(void *data, void *tag, once__verdict_t verdict, const char *reason,
                      uint64_t retry_after_ms)
{
    replay_t *replay = data;

    replay->answered = 1;
    replay->verdict = verdict;
    if (verdict != ONCE__PUBLISHED) {
        once__cli_say("dlq replay: %s", reason);
    }
}

static int is_chosen(const settings_t *set, const once__browsed_t *message)
{
    once_slice_t id = once__browsed_header(message, "once-id");

    for (size_t i = 0; i < set->ids.count; i++) {
        if (id.data != NULL && strlen(set->ids.items[i]) == id.len &&
            memcmp(set->ids.items[i], id.data, id.len) == 0) {
            return 1;
        }
    }
    return set->ids.count == 0;
}

/* Where it came from: TOPIC/PARTITION@OFFSET in once-source. */
static int find_topic(const settings_t *set, const once__browsed_t *message, char *topic)
{
    once_slice_t source = once__browsed_header(message, "once-source");
    const char *slash;

    if (set->to != NULL) {
        snprintf(topic, TOPIC_MAX, "%s", set->to);
        return 0;
    }
    if (source.data == NULL || source.len >= TOPIC_MAX) {
        return -1;
    }
    slash = memrchr(source.data, '/', source.len);
    if (slash == NULL || slash == source.data) {
        return -1;
    }
    snprintf(topic, TOPIC_MAX, "%.*s", (int)(slash - (const char *)source.data),
             (const char *)source.data);
    return 0;
}

static int is_ours(once_slice_t name)
{
    static const char *const ours[] = {"once-reason",     "once-status", "once-detail",
                                       "once-id",         "once-tries",  "once-source",
                                       "once-subscriber", "once-time"};

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strlen(ours[i]) == name.len && strncasecmp(ours[i], name.data, name.len) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Until the broker has confirmed it. */
static int publish(replay_t *replay, const once__message_t *message)
{
    time_t limit = time(NULL) + CONFIRM_SECONDS;
    int taken = 0;

    replay->answered = 0;
    while (!replay->answered && time(NULL) <= limit) {
        struct pollfd fd = {once__publisher_fd(replay->publisher), POLLIN, 0};
        if (!taken) {
            taken = once__publish(replay->publisher, message, replay) == 0;
            once__publisher_push(replay->publisher);
        }
        poll(&fd, 1, 100);
        once__publisher_turn(replay->publisher);
    }
    if (!replay->answered) { /* the publisher still borrows it, and it is about to go */
        once__publisher_close(replay->publisher);
        replay->publisher = NULL;
        once__cli_say("dlq replay: the broker did not confirm a message");
    }
    return replay->answered && replay->verdict == ONCE__PUBLISHED ? 0 : -1;
}

static once__choice_t replay_one(void *data, const once__browsed_t *message)
{
    replay_t *replay = data;
    once__pair_t headers[ONCE__BROWSE_HEADERS_MAX];
    once__message_t again = {.key = message->key, .payload = message->payload, .headers = headers};
    char topic[TOPIC_MAX];

    if (!is_chosen(replay->set, message)) {
        return ONCE__LEAVE;
    }
    if (find_topic(replay->set, message, topic) != 0) {
        once__cli_say("dlq replay: a message does not say where it came from; --to NAME does");
        replay->code = ONCE__CLI_USAGE;
        return ONCE__ENOUGH;
    }
    again.topic = once__cli_slice(topic);
    for (size_t i = 0; i < message->header_count; i++) {
        if (!is_ours(message->headers[i].name)) {
            headers[again.header_count++] = message->headers[i];
        }
    }
    if (publish(replay, &again) != 0) {
        replay->code = ONCE__CLI_STORE;
        return ONCE__ENOUGH;
    }
    replay->count++;
    return ONCE__TAKE;
}

static int run_replay(const once__cli_call_t *call)
{
    const settings_t *set = call->settings;
    replay_t replay = {.set = set};
    once__publisher_options_t options = {.published = published, .data = &replay};
    char error[400] = "out of memory", *url = once__browse_publish_url(call->operands[0]);

    replay.publisher =
        url != NULL ? once__publisher_open(url, &options, error, sizeof(error)) : NULL;
    free(url);
    if (replay.publisher == NULL) {
        return once__cli_usage(call->command, "%s", error);
    }
    if (once__browse(call->operands[0], set->all, replay_one, &replay, error, sizeof(error)) != 0) {
        once__cli_say("dlq replay: %s", error);
        replay.code = ONCE__CLI_STORE;
    }
    once__publisher_close(replay.publisher);
    printf("replayed %" PRIu64 "\n", replay.count);
    return replay.code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"to", 0, ONCE__CLI_TEXT, "NAME", "topic or queue; where not given, that where each came from", offsetof(settings_t, to)},
    {"id", 0, ONCE__CLI_LIST, "ID", "only that event. May be repeated", offsetof(settings_t, ids)},
    {"all", 0, ONCE__CLI_FLAG, NULL, "Kafka: also those that were replayed", offsetof(settings_t, all)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_dlq_replay = {
    .name = "dlq replay",
    .operands = "FROM",
    .summary = "publishes dead letters again, to be handled anew",
    .details =
        "FROM is kafka://HOST[:PORT]/TOPIC or amqp[s]://HOST[:PORT]/VHOST/QUEUE, such as\n"
        "amqp://127.0.0.1/%2F/orders.dlq. Each is published without what once consume added to\n"
        "it, and taken out when the broker confirmed that; with Kafka the offset of the group\n"
        "once-dlq moves on instead. A record that was released is claimed anew; an id that is\n"
        "used with another payload stays a mismatch.\n",
    .store = ONCE__CLI_NO_STORE,
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_replay,
};
