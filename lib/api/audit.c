#include "api/audit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/sized.h"

/* What the operation under way is for. */
typedef enum stage {
    STAGE_LOOK,   /* the record before the event */
    STAGE_INTENT, /* added to the trail */
    STAGE_EVENT,  /* the decision itself */
    STAGE_RESULT, /* added to the trail */
    STAGE_ENTRY,  /* once_audit_add: added to the trail */
} stage_t;

/*
 * A decision, or an entry about something else. An entry is added behind the last one that the handle knows. If that was not the
 * last one any more, the store refuses it and the end of the trail is read again. After a lost reply the line at that place is
 * compared: it may be ours.
 */
typedef struct act {
    once__job_t job;
    stage_t stage;
    once__auditor_t auditor; /* as it was when the call was made */
    char name[33];
    char object[ONCE_AUDIT_OBJECT_MAX];
    char result[65];
    size_t object_len;
    once__event_t event;
    once__payload_t payload;
    char cause[ONCE_CAUSE_MAX];
    uint8_t scope_hash[ONCE_SCOPE_HASH_SIZE];
    int has_scope;
    once_state_t from, to;
    uint64_t intent;         /* its number */
    once__audit_link_t link; /* of the entry that is being added */
    char line[ONCE__AUDIT_LINE_MAX + 1];
    size_t line_len;
    uint64_t place;
    int is_checking; /* what is read is compared with the line: the reply to adding it was lost */
    int is_counting; /* the trail is read from its beginning: its last line is not an entry */
    once__audit_link_t counted;
    /* The answer to the event, for the caller. */
    int error;
    uint8_t outcome;
} act_t;

/* ------------------------------------------------------------------------------------------------------------ writing */

static once__audit_words_t words_of(const act_t *act)
{
    const once__env_t *env = once__loop_env(act->job.once->loop);
    int is_result =
        act->stage == STAGE_RESULT || (act->stage == STAGE_ENTRY && act->result[0] != '\0');
    int has_record = act->stage != STAGE_ENTRY;
    once__audit_words_t words = {.time_ms = env->wall_ms(env->data),
                                 .by = once__slice_of(act->auditor.by),
                                 .act = act->name,
                                 .step = is_result ? "result" : "intent",
                                 .of = is_result ? act->intent : 0,
                                 .record = has_record ? act->job.op.id : NULL,
                                 .object = once__slice(act->object, act->object_len),
                                 .result = once__slice_of(act->result)};

    if (has_record) {
        words.scope_hash = act->has_scope ? act->scope_hash : NULL;
        words.claim = &act->event.claim;
        words.from = is_result ? NULL : once_state_name(act->from);
        words.to = is_result ? once_state_name(act->to) : NULL;
    }
    if (!is_result) {
        words.note = once__slice_of(act->auditor.note);
    }
    return words;
}

/* Adds the entry of this stage behind the last one; finds that first if it is not known. */
static void add(act_t *act)
{
    once__auditor_t *auditor = &act->job.once->auditor;
    once__op_t *op = &act->job.op;
    once__audit_words_t words = words_of(act);

    act->job.reply_lost = 0;
    act->is_checking = 0;
    act->is_counting = 0;
    if (!auditor->is_known) {
        op->kind = ONCE__OP_AUDIT_READ;
        op->place = UINT64_MAX;
    } else {
        act->line_len = once__audit_write(act->line, &words, &auditor->last, &act->link);
        act->place = auditor->place;
        op->kind = ONCE__OP_AUDIT_ADD;
        op->place = act->place;
        op->payload = (once__payload_t){.data = (const uint8_t *)act->line, .len = act->line_len};
    }
    once__job_submit(&act->job);
}

static void check_line(act_t *act)
{
    act->is_checking = 1;
    act->job.op.kind = ONCE__OP_AUDIT_READ;
    act->job.op.place = act->place;
    once__job_submit(&act->job);
}

/* What the record says about itself afterwards. */
static once_slice_t cause_of(act_t *act)
{
    char text[ONCE_AUDIT_BY_MAX + ONCE_NOTE_MAX + 16];
    int len = snprintf(text, sizeof(text), "settled by %s: %s", act->auditor.by, act->auditor.note);

    return once__slice(act->cause, once__about_clean(act->cause, sizeof(act->cause),
                                                     once__slice(text, (size_t)len)));
}

static void submit_event(act_t *act)
{
    once__op_t *op = &act->job.op;

    act->stage = STAGE_EVENT;
    act->job.reply_lost = 0;
    op->kind = ONCE__OP_EVENT;
    op->event = act->event;
    op->payload = act->payload;
    op->cause = cause_of(act);
    once__job_submit(&act->job);
}

/* ------------------------------------------------------------------------------------------------------------ answers */

static void finish(act_t *act, int error)
{
    if (act->stage == STAGE_RESULT && error != ONCE_OK) {
        once__log(act->job.once, ONCE_LOG_ERROR,
                  "audit: the result of entry %llu could not be added: %s",
                  (unsigned long long)act->intent, once_error_text(error));
    }
    if (act->stage == STAGE_RESULT) {
        once__job_deliver(&act->job, act->error, (once_outcome_t)act->outcome);
    } else {
        act->job.answer.count = act->link.number;
        once__job_deliver(&act->job, error, ONCE_OUTCOME_DONE);
    }
    once__job_end(&act->job);
}

static void added(act_t *act)
{
    act->job.attempts = 0;
    if (act->stage != STAGE_INTENT) {
        finish(act, ONCE_OK);
    } else if (act->job.delivered) {
        /* The caller knows that the store is away: it is too late to decide. */
        once__job_end(&act->job);
    } else {
        act->intent = act->link.number;
        submit_event(act);
    }
}

/* The answer to the event is kept until its result is in the trail. */
static void applied(act_t *act)
{
    once__job_t *job = &act->job;

    once__admin_recognise(job);
    act->error = job->op.error;
    act->outcome = job->op.outcome;
    act->to = act->error == ONCE_OK ? (once_state_t)job->op.head.state : act->from;
    if (act->error == ONCE_OK) {
        once__job_answer_record(job);
    }
    if (act->error == ONCE_OK && act->outcome == ONCE_OUTCOME_BUSY) {
        act->error = ONCE_E_NEWER;
    }
    strncpy(act->result,
            act->error == ONCE_OK ? once_outcome_name((once_outcome_t)act->outcome)
                                  : once_error_name(act->error),
            sizeof(act->result) - 1);
    act->stage = STAGE_RESULT;
    add(act);
}

static void looked(act_t *act)
{
    once__op_t *op = &act->job.op;

    if (op->error == ONCE_OK && op->record != NULL) {
        act->from = (once_state_t)op->record->head.state;
        memcpy(act->scope_hash, op->record->scope_hash, ONCE_SCOPE_HASH_SIZE);
        act->has_scope = 1;
    }
    free(op->record);
    op->record = NULL;
    act->stage = STAGE_INTENT;
    add(act);
}

void once__audit_forget_lines(once__op_t *op)
{
    free(op->lines);
    op->lines = NULL;
}

/*
 * The last line is not an entry, which must not prevent decisions: the next entry follows its bytes as they are. Which number
 * that has is known when the trail has been read.
 */
static void count_on(act_t *act, uint64_t place)
{
    act->is_counting = 1;
    act->job.op.kind = ONCE__OP_AUDIT_READ;
    act->job.op.place = place;
    once__job_submit(&act->job);
}

static void count_lines(act_t *act)
{
    once__auditor_t *auditor = &act->job.once->auditor;
    once__op_t *op = &act->job.op;
    once_slice_t json;

    for (size_t from = 0; from < op->count;) {
        const char *line = op->lines + from, *end = memchr(line, '\n', op->count - from);
        size_t len = end != NULL ? (size_t)(end - line) : op->count - from;
        (void)once__audit_follow(line, len, &act->counted, &json);
        from += len + 1;
    }
    once__audit_forget_lines(op);
    if (op->count > 0) {
        once__job_well_again(&act->job);
        count_on(act, op->end);
        return;
    }
    auditor->is_known = 1;
    auditor->place = op->end;
    auditor->last = act->counted;
    add(act);
}

/* The last line of the trail, or, after a lost reply, what is in the place of ours. */
static void read_lines(act_t *act)
{
    once__auditor_t *auditor = &act->job.once->auditor;
    once__op_t *op = &act->job.op;
    const char *lines = op->lines;
    size_t len = op->count, from;
    once_slice_t json;

    if (act->is_checking && len > act->line_len && lines[act->line_len] == '\n' &&
        memcmp(lines, act->line, act->line_len) == 0) {
        auditor->is_known = 0;
        once__audit_forget_lines(op);
        added(act);
        return;
    }
    auditor->is_known = !act->is_checking;
    auditor->place = op->end;
    memset(&auditor->last, 0, sizeof(auditor->last));
    if (auditor->is_known && len > 0) {
        from = once__audit_last_line(lines, len);
        if (once__audit_read(lines + from, len - 1 - from, &auditor->last, &json) != 0) {
            auditor->is_known = 0;
            memset(&act->counted, 0, sizeof(act->counted));
            once__audit_forget_lines(op);
            count_on(act, 0);
            return;
        }
    }
    once__audit_forget_lines(op);
    add(act);
}

static void add_reply(act_t *act)
{
    once__auditor_t *auditor = &act->job.once->auditor;
    once__op_t *op = &act->job.op;

    if (op->error == ONCE_E_CONFLICT && op->kind == ONCE__OP_AUDIT_ADD) {
        auditor->is_known = 0;
        if (act->job.reply_lost) {
            check_line(act);
        } else {
            add(act);
        }
    } else if (op->error != ONCE_OK) {
        finish(act, op->error);
    } else if (act->is_counting) {
        count_lines(act);
    } else if (op->kind == ONCE__OP_AUDIT_READ) {
        read_lines(act);
    } else {
        auditor->is_known = 1;
        auditor->place = op->end;
        auditor->last = act->link;
        added(act);
    }
}

static void act_reply(once__job_t *job)
{
    act_t *act = (act_t *)job;

    if (once__is_transient(job->op.error) && !once__job_gives_up(job->once)) {
        if (job->delivered) {
            once__job_end(job);
        } else {
            (void)once__job_pause(job);
        }
    } else if (act->stage == STAGE_EVENT) {
        applied(act);
    } else if (act->stage == STAGE_LOOK &&
               (job->op.error == ONCE_OK || job->op.error == ONCE_E_NOT_FOUND ||
                job->op.error == ONCE_E_NEWER || job->op.error == ONCE_E_CORRUPT)) {
        looked(act);
    } else if (act->stage == STAGE_LOOK) {
        finish(act, job->op.error);
    } else {
        add_reply(act);
    }
}

static void act_ended(once__job_t *job)
{
    once__audit_forget_lines(&job->op);
}

static act_t *act_new(once_t *once, const char *name, once_cb cb, void *data)
{
    act_t *act = (act_t *)once__job_new(once, sizeof(*act), cb, data);

    if (act != NULL) {
        act->auditor = once->auditor;
        strncpy(act->name, name, sizeof(act->name) - 1);
        act->job.reply = act_reply;
        act->job.ended = act_ended;
    }
    return act;
}

int once__audit_event(once_t *once, const once__event_t *event, const uint8_t *id,
                      const once__payload_t *payload, uint8_t *memory, once_cb cb, void *data)
{
    act_t *act = act_new(once, once__event_name(event->kind), cb, data);

    if (act == NULL) {
        return once__no_job(once);
    }
    act->event = *event;
    act->payload = *payload;
    act->job.payload = memory;
    act->stage = STAGE_LOOK;
    act->job.op.kind = ONCE__OP_GET;
    memcpy(act->job.op.id, id, ONCE_ID_SIZE);
    once__job_submit(&act->job);
    return ONCE_OK;
}

/* -------------------------------------------------------------------------------------------------------- public calls */

int once_audit_as(once_t *once, once_slice_t by, once_slice_t note)
{
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    if (by.len > ONCE_AUDIT_BY_MAX || note.len > ONCE_NOTE_MAX || (by.len > 0 && note.len == 0) ||
        memchr(by.len > 0 ? by.data : "", '\0', by.len) != NULL ||
        memchr(note.len > 0 ? note.data : "", '\0', note.len) != NULL) {
        code = ONCE_E_INVALID;
    } else {
        memset(once->auditor.by, 0, sizeof(once->auditor.by));
        memset(once->auditor.note, 0, sizeof(once->auditor.note));
        memcpy(once->auditor.by, by.len > 0 ? by.data : "", by.len);
        memcpy(once->auditor.note, note.len > 0 ? note.data : "", note.len);
    }
    once__leave(once);
    return code;
}

static int check_act(const once_t *once, const once_act_t *act)
{
    size_t len = act->name != NULL ? strlen(act->name) : 0;

    if (once->auditor.by[0] == '\0' || len == 0 || len > 32 ||
        act->object.len > ONCE_AUDIT_OBJECT_MAX || act->result.len > 64) {
        return ONCE_E_INVALID;
    }
    for (size_t i = 0; i < len; i++) {
        if (act->name[i] < ' ' || act->name[i] > '~') {
            return ONCE_E_INVALID;
        }
    }
    return ONCE_OK;
}

int once_audit_add(once_t *once, const once_act_t *given, once_cb cb, void *data)
{
    once_act_t call;
    act_t *act;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    code = once__sized_read(&call, sizeof(call), ONCE__ACT_V1, given);
    code = code == ONCE_OK ? check_act(once, &call) : code;
    act = code == ONCE_OK ? act_new(once, call.name, cb, data) : NULL;
    if (code == ONCE_OK && act == NULL) {
        code = once__no_job(once);
    }
    if (act != NULL) {
        act->stage = STAGE_ENTRY;
        act->intent = call.of;
        act->object_len = call.object.len;
        memcpy(act->object, call.object.len > 0 ? call.object.data : "", call.object.len);
        memcpy(act->result, call.result.len > 0 ? call.result.data : "", call.result.len);
        add(act);
    }
    once__leave(once);
    return code;
}
