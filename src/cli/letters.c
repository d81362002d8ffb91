#include "cli/letters.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <once/experimental.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "broker/dead_letter.h"
#include "cli/text.h"

#define CONFIRM_SECONDS 30
#define LETTER_MAX      (64 * 1024 * 1024) /* more than brokers take */

/* ------------------------------------------------------------------------------------------------------------- looking */

static void add_part(once__buf_t *text, once_slice_t part)
{
    uint8_t len[8];

    once__put64(len, part.len);
    (void)once__buf_add(text, len, sizeof(len)); /* the error stays */
    (void)once__buf_add(text, part.len > 0 ? part.data : "", part.len);
}

once__cli_mark_t once__cli_letter_mark(const char *from, const once__broker_browsed_t *letter)
{
    once__buf_t text = ONCE__BUF(LETTER_MAX);
    uint8_t digest[1][ONCE_DIGEST_SIZE], place[16] = {0};
    once__cli_mark_t mark = {""};
    once_slice_t all;

    if (strncmp(from, "kafka", 5) == 0) { /* the numbers of a queue are those of one look */
        once__put64(place, (uint64_t)letter->partition);
        once__put64(place + 8, (uint64_t)letter->offset);
    }
    add_part(&text, (once_slice_t){place, sizeof(place)});
    add_part(&text, letter->key);
    add_part(&text, letter->payload);
    for (size_t i = 0; i < letter->header_count; i++) {
        add_part(&text, letter->headers[i].name);
        add_part(&text, letter->headers[i].value);
    }
    if (text.error == ONCE_OK) {
        all = (once_slice_t){text.data, text.len};
        once_digest(&all, 1, digest);
        once__hex(mark.text, digest[0], (ONCE__CLI_MARK_SIZE - 1) / 2);
    }
    once__buf_free(&text);
    return mark;
}

void once__cli_letter_json(const once__broker_browsed_t *letter, once__cli_json_t *json)
{
    static const char *const members[][2] = {
        {"time", ONCE__BROKER_DEAD_LETTER_TIME},
        {"id", ONCE__BROKER_DEAD_LETTER_ID},
        {"reason", ONCE__BROKER_DEAD_LETTER_REASON},
        {"status", ONCE__BROKER_DEAD_LETTER_STATUS},
        {"tries", ONCE__BROKER_DEAD_LETTER_TRIES},
        {"source", ONCE__BROKER_DEAD_LETTER_SOURCE},
        {"detail", ONCE__BROKER_DEAD_LETTER_DETAIL},
        {"omitted", ONCE__BROKER_DEAD_LETTER_OMITTED},
        {"subscriber", ONCE__BROKER_DEAD_LETTER_SUBSCRIBER},
    };

    once__cli_json_start(json);
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        once_slice_t value = once__broker_browsed_header(letter, members[i][1]);
        if (value.data != NULL) {
            once__cli_json_bytes(json, members[i][0], value);
        }
    }
    if (letter->key.data != NULL) {
        once__cli_json_bytes(json, "key", letter->key);
    }
    once__cli_json_number(json, "partition", (uint64_t)letter->partition);
    once__cli_json_number(json, "offset", (uint64_t)letter->offset);
    once__cli_json_number(json, "bytes", letter->payload.len);
}

typedef struct listing {
    const char *from;
    once_t *once;
    json_t *letters;
    size_t limit;
    int more, broken;
} listing_t;

/* What the store knows of the message: its record, by subscriber and id. */
static void add_record(const listing_t *listing, const once__broker_browsed_t *letter,
                       once__cli_json_t *json)
{
    once_slice_t key = once__broker_browsed_header(letter, ONCE__BROKER_DEAD_LETTER_ID);
    once_slice_t scope = once__broker_browsed_header(letter, ONCE__BROKER_DEAD_LETTER_SUBSCRIBER);
    once_answer_t *answer = NULL;
    uint8_t id[ONCE_ID_SIZE];

    if (key.data == NULL || scope.data == NULL ||
        once_record_id_of(listing->once, scope, key, id) != ONCE_OK) {
        return;
    }
    if (once_record_get_sync(listing->once, id, &answer) == ONCE_OK) {
        once__cli_json_hex(json, "record", id, sizeof(id));
        once__cli_json_text(json, "state",
                            once_state_name(once_record_state(once_answer_record(answer))));
    }
    once_answer_free(answer);
}

static once__broker_choice_t take_letter(void *data, const once__broker_browsed_t *letter)
{
    listing_t *listing = data;
    once__cli_json_t json;

    if (json_array_size(listing->letters) == listing->limit) {
        listing->more = 1;
        return ONCE__BROKER_ENOUGH;
    }
    once__cli_letter_json(letter, &json);
    once__cli_json_text(&json, "mark", once__cli_letter_mark(listing->from, letter).text);
    add_record(listing, letter, &json);
    listing->broken |= json.broken || json_array_append_new(listing->letters, json.object) != 0;
    return listing->broken ? ONCE__BROKER_ENOUGH : ONCE__BROKER_LEAVE;
}

int once__cli_letters_json(const char *from, once_t *once, size_t limit, json_t **letters,
                           int *more)
{
    listing_t listing = {.from = from, .once = once, .letters = json_array(), .limit = limit};
    char error[400] = "out of memory";
    int code = once__broker_browse(from, 0, take_letter, &listing, error, sizeof(error));

    *letters = listing.letters;
    *more = listing.more;
    if (code != 0 || listing.broken) {
        once__cli_say("%s", error);
        return ONCE__CLI_STORE;
    }
    return ONCE__CLI_OK;
}

/* ----------------------------------------------------------------------------------------------------------- replaying */

typedef struct replay {
    const once__cli_replay_t *ask;
    char own
        [ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE]; /* the topic that these dead letters came from, by their topic's name; "": unknown */
    once__broker_publisher_t *publisher;
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

/*
 * A letter says where its message came from, and any writer of letters can put any text there: with the rights of the user that
 * replays, messages would be copied from and to other topics. So it has to be the topic that the letters belong to.
 */
static int is_believed(const replay_t *replay, const char *topic)
{
    const char *to = replay->ask->to;

    return replay->ask->any || strcmp(topic, replay->own) == 0 ||
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

    if (replay->ask->to == NULL && !known) {
        once__cli_say("dlq replay: a dead letter does not say where it came from; use --to NAME");
        return ONCE__CLI_USAGE;
    }
    if (known && (replay->ask->to == NULL || !has_payload) && !is_believed(replay, from)) {
        once__cli_say("dlq replay: kept a dead letter that says it came from %s, which is not the "
                      "topic of these letters; --any believes it%s",
                      from, has_payload ? ", --to NAME publishes it there" : "");
        return ONCE__CLI_REFUSED;
    }
    snprintf(replay->topic, sizeof(replay->topic), "%s",
             replay->ask->to != NULL ? replay->ask->to : from);
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
    } else if (once__broker_browse_one(replay->ask->from, topic, partition, offset, send_original,
                                       replay, error, sizeof(error)) == 0 &&
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
    return once__cli_operator_add(replay->ask->once, "dlq replay", object, of, result);
}

static once__broker_choice_t become(const replay_t *replay, const once__broker_browsed_t *letter,
                                    int code, once__broker_choice_t choice)
{
    if (replay->ask->became != NULL) {
        replay->ask->became(replay->ask->data, letter, code, replay->topic);
    }
    return choice;
}

/* The audit trail has it before and after. */
static once__broker_choice_t replay_letter(replay_t *replay, const once__broker_browsed_t *letter)
{
    uint64_t intent = record(replay, letter, 0, ""), before = replay->count;
    once__broker_choice_t choice;

    if (intent == 0) {
        replay->code = ONCE__CLI_STORE;
        return become(replay, letter, replay->code, ONCE__BROKER_ENOUGH);
    }
    choice = once__broker_browsed_header(letter, ONCE__BROKER_DEAD_LETTER_BYTES).data != NULL
                 ? replay_original(replay, letter)
                 : send(replay, letter);
    (void)record(replay, letter, intent, replay->count > before ? "published" : "not published");
    return become(replay, letter, replay->count > before ? ONCE__CLI_OK : replay->code, choice);
}

static once__broker_choice_t replay_one(void *data, const once__broker_browsed_t *letter)
{
    replay_t *replay = data;
    int code;

    if (!replay->ask->is_chosen(replay->ask->data, letter)) {
        return ONCE__BROKER_LEAVE;
    }
    code = find_topic(replay, letter);
    if (code != ONCE__CLI_OK) {
        replay->code = code;
        return become(replay, letter, code,
                      code == ONCE__CLI_USAGE ? ONCE__BROKER_ENOUGH : ONCE__BROKER_LEAVE);
    }
    if (replay->ask->dry_run) {
        replay->count++;
        return become(replay, letter, ONCE__CLI_OK, ONCE__BROKER_LEAVE);
    }
    return replay_letter(replay, letter);
}

/* Letters in NAME.dlq belong to NAME; the owner of others is not known. */
static int find_own(const once__cli_replay_t *ask, char own[ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE],
                    char *error, size_t size)
{
    size_t len;

    if (strncmp(ask->from, "kafka://", 8) != 0 && strncmp(ask->from, "amqp://", 7) != 0 &&
        strncmp(ask->from, "amqps://", 8) != 0) {
        snprintf(error, size, "the URL must be kafka://, amqp:// or amqps://");
        return -1;
    }
    if (once__broker_browse_name(ask->from, own, error, size) != 0) {
        return -1;
    }
    len = strlen(own);
    if (len > 4 && strcmp(own + len - 4, ".dlq") == 0) {
        own[len - 4] = '\0';
        return 0;
    }
    own[0] = '\0';
    if (ask->to == NULL && !ask->any) {
        snprintf(error, size,
                 "only letters in NAME.dlq are known to belong to NAME: give --to NAME, or --any "
                 "to trust each letter's own origin");
        return -1;
    }
    return 0;
}

int once__cli_replay_check(const once__cli_replay_t *ask, char *error, size_t size)
{
    char own[ONCE__BROKER_DEAD_LETTER_TOPIC_SIZE];

    return find_own(ask, own, error, size);
}

static int open_publisher(replay_t *replay)
{
    once__broker_publisher_options_t options = {.published = published, .data = replay};
    char error[400] = "out of memory", *url = once__broker_browse_publish_url(replay->ask->from);

    replay->publisher =
        url != NULL ? once__broker_publisher_open(url, &options, error, sizeof(error)) : NULL;
    free(url);
    if (replay->publisher == NULL) {
        once__cli_say("dlq replay: %s", error);
        return ONCE__CLI_USAGE;
    }
    return ONCE__CLI_OK;
}

int once__cli_replay(const once__cli_replay_t *ask, uint64_t *count)
{
    replay_t replay = {.ask = ask};
    char error[400];

    *count = 0;
    if (find_own(ask, replay.own, error, sizeof(error)) != 0) {
        once__cli_say("dlq replay: %s", error);
        return ONCE__CLI_USAGE;
    }
    if (!ask->dry_run && open_publisher(&replay) != ONCE__CLI_OK) {
        return ONCE__CLI_USAGE;
    }
    if (once__broker_browse(ask->from, ask->all, replay_one, &replay, error, sizeof(error)) != 0) {
        once__cli_say("dlq replay: %s", error);
        replay.code = ONCE__CLI_STORE;
    }
    if (replay.publisher != NULL) {
        once__broker_publisher_close(replay.publisher);
    }
    *count = replay.count;
    return replay.code;
}
