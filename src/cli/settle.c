#include "cli/settle.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "cli/store.h"
#include "cli/text.h"
#include "cli/units.h"

int once__cli_verdict_header(const char *text, once_header_t *header)
{
    const char *colon = strchr(text, ':');
    const char *value;

    if (colon == NULL || !once__is_token(text, (size_t)(colon - text)) ||
        !once__is_field_value(colon + 1, strlen(colon + 1))) {
        return -1;
    }
    value = colon + 1 + strspn(colon + 1, " \t");
    header->name.data = text;
    header->name.len = (size_t)(colon - text);
    header->value.data = value;
    header->value.len = strlen(value);
    while (header->value.len > 0 && strchr(" \t", value[header->value.len - 1]) != NULL) {
        header->value.len--;
    }
    return 0;
}

int once__cli_settle_check(const once__cli_verdict_t *verdict, const once_record_t *record)
{
    once_state_t state = once_record_state(record);

    if (state == ONCE_STATE_COMPLETED) {
        once__cli_say(
            "refused: the record is completed; a response that was sent is never changed");
        return ONCE__CLI_REFUSED;
    }
    if (state == ONCE_STATE_FAILED) {
        once__cli_say(
            "refused: the record is failed, so its key can be claimed again; there is nothing "
            "to settle");
        return ONCE__CLI_REFUSED;
    }
    if (once_record_lease_ms(record) > 0 && !verdict->force) {
        once__cli_say(
            "refused: its lease is live for another %s, so its holder may still be working; wait, "
            "or add --force if you know that the holder is dead",
            once__cli_duration(once_record_lease_ms(record)).text);
        return ONCE__CLI_REFUSED;
    }
    return ONCE__CLI_OK;
}

static int tell(const once_answer_t *answer, const once__cli_verdict_t *verdict,
                once_state_t *state)
{
    const once_record_t *record = once_answer_record(answer);

    switch (once_answer_outcome(answer)) {
    case ONCE_OUTCOME_DONE:
        *state = record != NULL       ? once_record_state(record)
                 : verdict->completed ? ONCE_STATE_COMPLETED
                                      : ONCE_STATE_FAILED;
        return ONCE__CLI_OK;
    case ONCE_OUTCOME_ALREADY:
        once__cli_say("refused: its holder has completed it meanwhile; nothing was changed");
        return ONCE__CLI_REFUSED;
    case ONCE_OUTCOME_BUSY:
        return once__cli_store_failed("settle the record", ONCE_E_NEWER);
    default:
        once__cli_say("refused: the record has changed meanwhile; nothing was changed. Look again "
                      "with \"once keys show\"");
        return ONCE__CLI_REFUSED;
    }
}

int once__cli_settle(once_t *once, const once__cli_operator_t *operator,
                     const once__cli_verdict_t * verdict, const once_record_t *record,
                     once_state_t *state)
{
    char note[ONCE_AUDIT_BY_MAX + 16 + ONCE_NOTE_MAX]; /* the cause of the state, for people */
    once_settle_t settlement = ONCE_SETTLE_INIT;
    char token[ONCE_TOKEN_SIZE];
    once_answer_t *answer = NULL;
    int code = once__cli_operator_act(once, operator);

    if (code != ONCE__CLI_OK) {
        return code;
    }
    snprintf(note, sizeof(note), "settled by %s: %s",
             once__cli_operator_name(operator).text, operator->note);
    once_record_token(record, token);
    settlement.token = token;
    settlement.response = verdict->completed ? &verdict->response : NULL;
    settlement.status = verdict->completed ? 0 : verdict->status;
    settlement.note = once__slice_of(note);
    settlement.force = verdict->force;
    code = once_record_settle_sync(once, &settlement, &answer);
    code = code == ONCE_OK ? tell(answer, verdict, state)
                           : once__cli_store_failed("settle the record", code);
    once_answer_free(answer);
    return code;
}
