#include "records.h"

#include <stdio.h>
#include <string.h>

static once_slice_t slice(const char *text)
{
    return (once_slice_t){text, strlen(text)};
}

static int set_policy(once_policy_t **policy, const char *ttl, const char *lease,
                      const char *recover)
{
    once_error_t err = {0};

    *policy = once_policy_new();
    if (*policy == NULL || once_policy_set(*policy, "ttl", ttl, &err) != ONCE_OK ||
        once_policy_set(*policy, "lease", lease, &err) != ONCE_OK ||
        once_policy_set(*policy, "recover", recover, &err) != ONCE_OK) {
        fprintf(stderr, "notify: %s\n", err.text);
        return -1;
    }
    return 0;
}

/* With a thread of the handle's own: claims are renewed while a slow server is waited for. */
int records_open(records_t *records, const char *store, const char *ttl, const char *lease,
                 const char *mail)
{
    once_options_t *options = once_options_new();
    once_error_t err = {0};
    int code;

    *records = (records_t){0};
    for (channel_t channel = 0; channel < CHANNELS; channel++) {
        if (set_policy(&records->policies[channel], ttl, lease,
                       channel == CHANNEL_MAIL ? mail : "retry") != 0) {
            once_options_free(options);
            return -1;
        }
    }
    code = options == NULL ? ONCE_E_NOMEM : once_options_set(options, "thread", "on", &err);
    if (code == ONCE_OK) {
        code = once_open(store, options, &records->once, &err);
    }
    once_options_free(options);
    if (code != ONCE_OK) {
        fprintf(stderr, "notify: --store: %s\n",
                err.text[0] != '\0' ? err.text : once_error_text(code));
        return -1;
    }
    return 0;
}

void records_close(records_t *records, int timeout_ms)
{
    once_close(records->once, timeout_ms);
    for (channel_t channel = 0; channel < CHANNELS; channel++) {
        once_policy_free(records->policies[channel]);
    }
}

int records_key(const event_t *event, const user_t *user, once_key_t *key)
{
    once_slice_t parts[] = {slice(event->type), slice(event->id), slice(user->id)};
    once_key_parts_t hashed = ONCE_KEY_PARTS_INIT;

    if (once_key_composite(parts, 3, key, NULL) == ONCE_OK) {
        return 0;
    }
    hashed.principal = parts[2];
    hashed.action = parts[0];
    hashed.payload = parts[1];
    return once_key_deterministic(&hashed, key, NULL) == ONCE_OK ? 0 : -1;
}

static verdict_t read_answer(once_answer_t *answer, once_claim_t **claim, uint64_t *after_ms)
{
    *after_ms = once_answer_retry_after_ms(answer);
    switch (once_answer_outcome(answer)) {
    case ONCE_OUTCOME_RUN:
        *claim = once_answer_take_claim(answer);
        return VERDICT_SEND;
    case ONCE_OUTCOME_REPLAY:
        return VERDICT_DUPLICATE;
    case ONCE_OUTCOME_MISMATCH:
        return VERDICT_MISMATCH;
    case ONCE_OUTCOME_UNKNOWN:
        return VERDICT_HELD;
    default:
        return VERDICT_BUSY;
    }
}

verdict_t records_ask(records_t *records, channel_t channel, const once_key_t *key,
                      const event_t *event, once_claim_t **claim, uint64_t *after_ms)
{
    once_ask_t ask = ONCE_ASK_INIT;
    once_answer_t *answer = NULL;
    verdict_t verdict;

    *claim = NULL;
    *after_ms = 0;
    ask.scope = slice(channel_name(channel));
    ask.key = (once_slice_t){key->text, key->len};
    ask.method = slice("notify");
    ask.target = ask.scope;
    ask.bytes = (once_slice_t){event->body, event->body_len};
    ask.policy = records->policies[channel];
    if (once_begin_sync(records->once, &ask, &answer) != ONCE_OK) {
        return VERDICT_NO_STORE;
    }
    verdict = read_answer(answer, claim, after_ms);
    once_answer_free(answer);
    return verdict;
}

static int end(once_claim_t *claim, fate_t fate, int status, once_answer_t **answer)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    switch (fate) {
    case FATE_SENT:
        response.status = status >= 200 && status <= 599 ? status : 200;
        return once_claim_complete_sync(claim, &response, answer);
    case FATE_DOUBT:
        return once_claim_doubt_sync(claim, slice("no answer"), answer);
    default:
        return once_claim_release_sync(claim, status, slice("not delivered"), answer);
    }
}

int records_end(records_t *records, once_claim_t *claim, fate_t fate, int status,
                uint64_t *after_ms)
{
    once_answer_t *answer = NULL;
    int code = end(claim, fate, status, &answer);
    once_outcome_t outcome = code == ONCE_OK ? once_answer_outcome(answer) : ONCE_OUTCOME_NONE;

    *after_ms = 0;
    if (code == ONCE_E_INVALID || code == ONCE_E_TOO_BIG || code == ONCE_E_NOMEM ||
        code == ONCE_E_IO || code == ONCE_E_FORKED || code == ONCE_E_REENTRANT) {
        once_claim_drop(claim); /* nothing was submitted: the lease decides */
    }
    if (fate == FATE_DOUBT && answer != NULL && once_answer_record(answer) != NULL) {
        *after_ms = once_record_lease_ms(once_answer_record(answer));
    }
    once_answer_free(answer);
    return outcome == ONCE_OUTCOME_DONE || outcome == ONCE_OUTCOME_ALREADY ? 0 : -1;
}
