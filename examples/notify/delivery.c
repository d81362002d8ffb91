#include "delivery.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "pointer.h"

#define NOTIFICATIONS_MAX (TEMPLATE_USERS_MAX * CHANNELS)

typedef struct notification {
    channel_t channel;
    user_t user;
    once_key_t key;
    char *text;          /* as the template makes it */
    once_claim_t *claim; /* NULL: not ours, or ended */
    parcel_t parcel;
    outcome_t outcome;
    uint64_t after_ms; /* when trying again makes sense */
} notification_t;

typedef struct batch {
    service_t *service;
    const event_t *event;
    notification_t list[NOTIFICATIONS_MAX];
    size_t count;
} batch_t;

static void conclude(batch_t *batch, notification_t *n, outcome_t outcome, long status)
{
    const char *level =
        outcome == OUTCOME_SENT || outcome == OUTCOME_DUPLICATE ? LOG_INFO : LOG_WARNING;

    n->outcome = outcome;
    atomic_fetch_add(&batch->service->metrics->notifications[n->channel][outcome], 1);
    log_line(level, outcome_name(outcome), "{s:s, s:s, s:s, s:s, s:s, s:i}", "channel",
             channel_name(n->channel), "event", batch->event->id, "type", batch->event->type, "key",
             batch->event->key.text, "record", n->key.text, "status", (int)status);
}

/* ------------------------------------------------------------------------------------------------ what is to be sent */

static int add(batch_t *batch, const template_t *template, const user_t *user, channel_t channel,
               problem_t *problem)
{
    const event_t *event = batch->event;
    notification_t *n = &batch->list[batch->count];

    if (template->text[channel] == NULL || user->address[channel] == NULL ||
        batch->service->transport.routes[channel].url == NULL) {
        return 0;
    }
    *n = (notification_t){.channel = channel, .user = *user};
    if (records_key(event, user, &n->key) != 0) {
        return problem_set(problem, 422, PROBLEM_BAD_EVENT,
                           "no key can be made of type, event id and user");
    }
    for (size_t i = 0; i < batch->count; i++) { /* a user under two pointers is notified once */
        if (batch->list[i].channel == channel &&
            strcmp(batch->list[i].key.text, n->key.text) == 0) {
            return 0;
        }
    }
    n->text = template_render(template, channel, event->payload, user, event->id, problem);
    if (n->text == NULL) {
        return -1;
    }
    batch->count++;
    return 0;
}

static int plan(batch_t *batch, problem_t *problem)
{
    const event_t *event = batch->event;
    const template_t *template = templates_find(&batch->service->templates, event->type);

    if (template == NULL) {
        return problem_set(problem, 422, PROBLEM_BAD_EVENT,
                           "there are no templates for this type of event");
    }
    for (size_t i = 0; template->users[i] != NULL; i++) {
        json_t *who = pointer_find(event->payload, template->users[i]);
        user_t user;

        if (who == NULL) {
            return problem_set(problem, 422, PROBLEM_BAD_EVENT, "the payload has no user at %s",
                               template->users[i]);
        }
        if (users_find(batch->service->users, who, &user, problem) != 0) {
            return -1;
        }
        for (channel_t channel = 0; channel < CHANNELS; channel++) {
            if (add(batch, template, &user, channel, problem) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- sending */

static void end_claim(batch_t *batch, notification_t *n, fate_t fate, long status)
{
    static const outcome_t outcomes[] = {[FATE_SENT] = OUTCOME_SENT,
                                         [FATE_FAILED] = OUTCOME_FAILED,
                                         [FATE_REFUSED] = OUTCOME_REFUSED,
                                         [FATE_DOUBT] = OUTCOME_DOUBT};
    const once_policy_t *policy = batch->service->records.policies[n->channel];
    outcome_t outcome = outcomes[fate];

    if (fate == FATE_DOUBT && once_policy_recover(policy) == ONCE_RECOVER_HOLD) {
        outcome = OUTCOME_HELD;
    }
    if (records_end(&batch->service->records, n->claim, fate, (int)status, &n->after_ms) != 0) {
        /* The record, not this thread, knows: the next request gets its answer. */
        outcome = outcome == OUTCOME_REFUSED ? OUTCOME_REFUSED : OUTCOME_BUSY;
    }
    n->claim = NULL;
    conclude(batch, n, outcome, status);
}

static void ask(batch_t *batch, notification_t *n, CURLM *multi)
{
    service_t *service = batch->service;
    label_t label = {{n->key.text, n->key.len}, batch->event->traceparent};

    switch (records_ask(&service->records, n->channel, &n->key, batch->event, &n->claim,
                        &n->after_ms)) {
    case VERDICT_DUPLICATE:
        conclude(batch, n, OUTCOME_DUPLICATE, 0);
        return;
    case VERDICT_HELD:
        conclude(batch, n, OUTCOME_HELD, 0);
        return;
    case VERDICT_MISMATCH:
        conclude(batch, n, OUTCOME_REFUSED, 0);
        return;
    case VERDICT_BUSY:
        conclude(batch, n, OUTCOME_BUSY, 0);
        return;
    case VERDICT_NO_STORE:
        conclude(batch, n, OUTCOME_FAILED, 0);
        return;
    case VERDICT_SEND:
        break;
    }
    if (parcel_pack(&n->parcel, &service->transport, n->channel, n->user.address[n->channel],
                    n->text, &label) != 0 ||
        curl_multi_add_handle(multi, n->parcel.easy) != CURLM_OK) {
        end_claim(batch, n, FATE_FAILED, 0);
    }
}

static notification_t *owner(batch_t *batch, const CURL *easy)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->list[i].parcel.easy == easy) {
            return &batch->list[i];
        }
    }
    return NULL;
}

/* Ends each claim as soon as its own message is through: a channel that hangs does not keep the others waiting. */
static void run(batch_t *batch, CURLM *multi)
{
    int running = 1, left;

    while (running > 0) {
        CURLMsg *message;

        if (curl_multi_perform(multi, &running) != CURLM_OK) {
            break;
        }
        while ((message = curl_multi_info_read(multi, &left)) != NULL) {
            notification_t *n = owner(batch, message->easy_handle);
            long status;
            fate_t fate = parcel_fate(&n->parcel, message->data.result, &status);

            end_claim(batch, n, fate, status);
        }
        if (running > 0) {
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
        }
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->list[i].claim != NULL) { /* libcurl gave up */
            end_claim(batch, &batch->list[i], FATE_DOUBT, 0);
        }
    }
}

static void send_all(batch_t *batch)
{
    CURLM *multi = curl_multi_init();

    for (size_t i = 0; i < batch->count; i++) {
        batch->list[i].outcome = OUTCOME_FAILED;
        if (multi != NULL) {
            ask(batch, &batch->list[i], multi);
        }
    }
    if (multi != NULL) {
        run(batch, multi);
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->list[i].parcel.easy != NULL) {
            curl_multi_remove_handle(multi, batch->list[i].parcel.easy);
        }
        parcel_free(&batch->list[i].parcel);
    }
    curl_multi_cleanup(multi);
}

/* ------------------------------------------------------------------------------------------------------- the answer */

static const notification_t *worst(const batch_t *batch, unsigned outcomes)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (outcomes & 1u << batch->list[i].outcome) {
            return &batch->list[i];
        }
    }
    return NULL;
}

static unsigned seconds_to_wait(const batch_t *batch)
{
    uint64_t ms = 1000;

    for (size_t i = 0; i < batch->count; i++) {
        ms = batch->list[i].after_ms > ms ? batch->list[i].after_ms : ms;
    }
    return (unsigned)((ms + 999) / 1000);
}

/* What may be tried again comes first: only when all else is done, what cannot be done is said. */
static int judge(const batch_t *batch, problem_t *problem)
{
    const notification_t *n;

    n = worst(batch, 1u << OUTCOME_FAILED | 1u << OUTCOME_BUSY | 1u << OUTCOME_DOUBT);
    if (n != NULL) {
        return problem_set(problem, 503, PROBLEM_FAILED, "%s: %s", channel_name(n->channel),
                           outcome_name(n->outcome));
    }
    n = worst(batch, 1u << OUTCOME_HELD);
    if (n != NULL) {
        return problem_set(
            problem, 422, PROBLEM_HELD,
            "mail: it may have been sent; settle the record %s, then post the event again",
            n->key.text);
    }
    n = worst(batch, 1u << OUTCOME_REFUSED);
    if (n != NULL) {
        return problem_set(problem, 422, PROBLEM_REFUSED,
                           "%s: refused for good, or the event id was used with another payload",
                           channel_name(n->channel));
    }
    return 0;
}

static json_t *list_results(const batch_t *batch)
{
    json_t *results = json_array();

    for (size_t i = 0; i < batch->count; i++) {
        const notification_t *n = &batch->list[i];

        json_array_append_new(results, json_pack("{s:s, s:s, s:s}", "channel",
                                                 channel_name(n->channel), "record", n->key.text,
                                                 "outcome", outcome_name(n->outcome)));
    }
    return results;
}

int deliver(service_t *service, const event_t *event, json_t **results, problem_t *problem,
            unsigned *retry_after)
{
    batch_t *batch = calloc(1, sizeof(*batch));
    int result;

    *results = NULL;
    *retry_after = 1;
    if (batch == NULL) {
        return problem_set(problem, 503, PROBLEM_FAILED, "out of memory");
    }
    batch->service = service;
    batch->event = event;
    result = plan(batch, problem);
    if (result == 0) {
        send_all(batch);
        result = judge(batch, problem);
        *retry_after = seconds_to_wait(batch);
        *results = list_results(batch);
    }
    for (size_t i = 0; i < batch->count; i++) {
        free(batch->list[i].text);
    }
    free(batch);
    return result;
}
