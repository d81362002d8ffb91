#include "store/local/decide_inside.h"

#include <string.h>

int once__records_decode(const once__records_t *records, once__place_t place,
                         const once__frame_t *frame, once__record_t *record)
{
    int code = once__record_decode(record, frame->bytes, frame->len);

    if (code == ONCE_E_NEWER) {
        code = ONCE_OK; /* the envelope is enough for the rules: they say busy */
    }
    memcpy(record->id, frame->id, ONCE_ID_SIZE);
    if (once__index_segment(records->index, place.segment)->other_boot &&
        record->head.lease_until > record->head.changed) {
        record->head.lease_until = record->head.changed;
    }
    return code;
}

int once__records_load(const once__records_t *records, const uint8_t *id, once__current_t *current)
{
    memset(current, 0, sizeof(*current));
    while (once__index_find(records->index, id, &current->cursor, &current->entry)) {
        const once__frame_t *frame = &current->frame;
        int code = once__log_read(records->log, current->entry.place, &current->frame);
        if (code == ONCE_E_NOT_FOUND) {
            continue; /* dropped this moment: expired */
        }
        if (code != ONCE_OK) {
            return code;
        }
        if (frame->kind == ONCE__FRAME_RECORD &&
            (memcmp(frame->id, id, ONCE_ID_SIZE) == 0 || once__frame_is_lost(frame))) {
            current->found = 1;
            return once__records_decode(records, current->entry.place, frame, &current->record);
        }
    }
    return ONCE_OK;
}

uint32_t once__records_not_before(const once__records_t *records, const uint8_t *id,
                                  const once__current_t *current)
{
    uint32_t floor = once__index_floor(records->index, id);

    return current->found && current->entry.place.segment > floor ? current->entry.place.segment
                                                                  : floor;
}

int once__records_read(once__records_t *records, const once__entry_t *entry, once__record_t *record)
{
    once__frame_t frame;
    int code = once__log_read(records->log, entry->place, &frame);

    if (code == ONCE_OK && frame.kind != ONCE__FRAME_RECORD) {
        code = ONCE_E_NOT_FOUND;
    }
    return code == ONCE_OK ? once__records_decode(records, entry->place, &frame, record) : code;
}

/* May the frame of `next` leave out what the one of `current` says? */
static int is_end_of(const once__record_t *next, const once__current_t *current)
{
    const once__record_t *claim = &current->record;
    const once__fingerprint_t *a = &claim->head.fingerprint, *b = &next->head.fingerprint;

    return current->found && once__is_held(claim->head.state) &&
           next->head.state == ONCE_STATE_COMPLETED && claim->head.schema == next->head.schema &&
           a->secret == b->secret && a->mode == b->mode &&
           memcmp(a->mac, b->mac, sizeof(a->mac)) == 0 && claim->head.ttl_ms == next->head.ttl_ms &&
           claim->key_len == next->key_len && memcmp(claim->key, next->key, claim->key_len) == 0 &&
           memcmp(claim->scope_hash, next->scope_hash, ONCE_SCOPE_HASH_SIZE) == 0;
}

int once__records_publish(const once__records_t *records, const uint8_t *id,
                          const once__current_t *current, const once__record_t *next)
{
    once__entry_t entry = {{0, 0}, ONCE_STATE_NONE};
    int code;

    if (!current->found) {
        code = once__index_make_room(records->index, id);
        if (code != ONCE_OK) {
            return code;
        }
    }
    code = next != NULL && is_end_of(next, current)
               ? once__log_complete(records->log, next, current->entry.place,
                                    once__records_not_before(records, id, current), &entry.place)
               : once__log_append(records->log, id, next,
                                  once__records_not_before(records, id, current), &entry.place);
    if (code != ONCE_OK) {
        return code;
    }
    entry.state = next != NULL ? next->head.state : ONCE_STATE_NONE;
    once__index_set(records->index, id, current->cursor, current->found, &entry);
    return ONCE_OK;
}

/* ----------------------------------------------------------------------------------------------------------- limits */

#define COUNTED_A_MS                                                                               \
    256 /* segments: more of them are counted less often, unless new keys wait for it */

static int is_full(const once__records_t *records)
{
    const once__limits_t *limits = &records->limits;

    return (limits->max_records != 0 && records->room == 0) ||
           (limits->max_bytes != 0 &&
            records->bytes + once__log_least(records->log) > limits->max_bytes);
}

void once__records_count(once__records_t *records)
{
    const once__limits_t *limits = &records->limits;
    const once__index_t *index = records->index;
    uint32_t segments = once__index_end_segment(index) - once__index_first_segment(index);
    uint64_t count;

    if ((limits->max_records == 0 && limits->max_bytes == 0) ||
        (records->clock - records->counted_at <= segments / COUNTED_A_MS && !is_full(records))) {
        return;
    }
    once__index_usage(index, &count, &records->bytes);
    records->counted_at = records->clock;
    records->room = count < limits->max_records ? limits->max_records - count : 0;
}

/* A new record may fill the file that we have, unless changes of others are beyond the limit already: what is left is theirs. */
static int has_room(const once__records_t *records, const once__record_t *record)
{
    const once__limits_t *limits = &records->limits;

    return !is_full(records) ||
           ((limits->max_records == 0 || records->room > 0) &&
            records->bytes <= limits->max_bytes && once__log_fits(records->log, record));
}

/* ----------------------------------------------------------------------------------------------------------- events */

/* The record after the step: what it was, with what the step and the operation change. */
static once__record_t next_record(const once__op_t *op, const once__current_t *current,
                                  const once__step_t *step)
{
    static const once__payload_t none = {ONCE__PAYLOAD_NONE, 0, NULL, 0};
    int anew =
        !current->found || (step->next.claim.epoch == 1 && step->rule->effects & ONCE__E_GRANT);
    once__record_t next = current->record;

    if (anew) {
        memset(&next, 0, sizeof(next));
        memcpy(next.scope_hash, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
        next.key = op->key;
        next.key_len = op->key_len;
    }
    memcpy(next.id, op->id, ONCE_ID_SIZE);
    next.payload = once__payload_after(step->rule, op, anew ? &none : &current->record.payload);
    next.head = step->next;
    return next;
}

static void answer_record(once__op_t *op, const once__record_t *record)
{
    if (op->kind == ONCE__OP_GET || record->payload.kind != ONCE__PAYLOAD_NONE) {
        op->record = once__record_clone(record);
        if (op->record == NULL) {
            op->error = ONCE_E_NOREPLY; /* asked for again */
        }
    }
}

/*
 * How the record ended was written by another process, which is waiting for its sync. Until then a claim is told busy (or mismatch,
 * which the fingerprint settles for good), and everything else is asked for again.
 */
static int answer_unsettled(once__op_t *op, const once__step_t *step)
{
    if (op->event.kind != ONCE__CLAIM) {
        op->error = ONCE_E_NOREPLY;
    } else if (step->outcome != ONCE_OUTCOME_MISMATCH) {
        op->outcome = ONCE_OUTCOME_BUSY;
    }
    return 0;
}

static int apply_event(once__records_t *records, once__op_t *op, const once__current_t *current)
{
    /* What is not there may have ended since the batch began: a key's next life never begins before that. */
    uint64_t clock =
        records->clock != 0 && current->found ? records->clock : once__index_now(records->index);
    int ours = current->found && once__log_is_ours(records->log, current->entry.place);
    int durable = !current->found || once__log_is_durable(records->log, current->entry.place);
    /* A claim or a renewal that is lost promised nothing: nobody waits for a process that stands still with one. */
    int pending = current->found && current->record.head.state == ONCE_STATE_PENDING;
    once__step_t step;

    once__step(records->rules, current->found ? &current->record.head : NULL, &op->event, clock,
               &step);
    op->outcome = step.outcome;
    op->now = step.now;
    op->head = step.next;
    if (!durable && !ours && !pending) {
        op->head = current->record.head;
        /* report it as pending: the outcome must not be visible before it is durable */
        op->head.state = ONCE_STATE_PENDING;
        op->head.expires = 0;
        return answer_unsettled(op, &step);
    }
    /* The same claim again: it was granted by another process, whose sync ours cannot stand in for. Asked for again until then. */
    if (!durable && !ours && !step.changed && op->outcome == ONCE_OUTCOME_RUN &&
        !records->relaxed_claims) {
        op->error = ONCE_E_NOREPLY;
        return 0;
    }
    if (step.changed) {
        once__record_t next = next_record(op, current, &step);
        op->error = !current->found && !has_room(records, &next)
                        ? ONCE_E_FULL
                        : once__records_publish(records, op->id, current,
                                                step.next.state == ONCE_STATE_NONE ? NULL : &next);
        if (op->error != ONCE_OK) {
            return 0; /* nothing was written that a sync could concern */
        }
        records->room -= !current->found && records->room > 0;
        if (op->outcome != ONCE_OUTCOME_DONE && op->outcome != ONCE_OUTCOME_RUN) {
            answer_record(op, &next);
        }
    } else if (current->found && step.next.state != ONCE_STATE_NONE &&
               op->outcome != ONCE_OUTCOME_DONE) {
        answer_record(op, &current->record);
    }
    /* A renewal is not waited for: a lease ends with the machine anyway. */
    if (step.changed && op->event.kind == ONCE__RENEW) {
        return 0;
    }
    if (records->relaxed_claims && op->event.kind == ONCE__CLAIM &&
        op->outcome == ONCE_OUTCOME_RUN) {
        return 0;
    }
    return step.changed || !durable;
}

static int apply_get(const once__records_t *records, once__op_t *op, const once__current_t *current)
{
    static const once_filter_t all = ONCE_FILTER_INIT;

    int durable = !current->found || once__log_is_durable(records->log, current->entry.place);

    op->now = once__index_now(records->index);
    if (!durable && !once__log_is_ours(records->log, current->entry.place)) {
        op->error = ONCE_E_NOREPLY; /* another process is about to sync it: asked for again */
        return 0;
    }
    if (!current->found || !once__filter_passes(&all, &current->record, op->now)) {
        op->error = ONCE_E_NOT_FOUND;
        return 0;
    }
    op->head = current->record.head;
    answer_record(op, &current->record);
    return !durable;
}

int once__records_apply(once__records_t *records, once__op_t *op)
{
    once__current_t current;
    int wait = 0;

    op->error = ONCE_OK;
    op->outcome = ONCE_OUTCOME_NONE;
    op->record = NULL;
    memset(&op->head, 0, sizeof(op->head));
    once__index_lock(records->index, op->id);
    op->error = once__records_load(records, op->id, &current);
    if (op->error == ONCE_OK) {
        wait = op->kind == ONCE__OP_GET ? apply_get(records, op, &current)
                                        : apply_event(records, op, &current);
    }
    once__index_unlock(records->index, op->id);
    return wait;
}

/* ---------------------------------------------------------------------------------------------------------- glances */

int once__records_begin_glances(once__records_t *records, uint32_t *first_segment)
{
    uint32_t first = once__index_first_segment(records->index), before = *first_segment;

    records->clock = once__index_now(records->index);
    once__log_never_wait(records->log, records->clock);
    if (first == before) {
        return 0;
    }
    *first_segment = first;
    once__log_forget_readers(records->log);
    return before != 0;
}

/* The shard is locked. 1: what is there is final, and durable, and in memory. */
static int load_final(const once__records_t *records, const uint8_t *id, once__current_t *current)
{
    const once__place_t *place = &current->entry.place;

    memset(current, 0, sizeof(*current));
    return once__index_find(records->index, id, &current->cursor, &current->entry) &&
           current->entry.state == ONCE_STATE_COMPLETED &&
           place->offset <
               atomic_load(&once__index_segment(records->index, place->segment)->synced) &&
           once__log_read(records->log, *place, &current->frame) == ONCE_OK &&
           current->frame.kind == ONCE__FRAME_RECORD &&
           memcmp(current->frame.id, id, ONCE_ID_SIZE) == 0 &&
           once__records_decode(records, *place, &current->frame, &current->record) == ONCE_OK;
}

static int answer_final(const once__records_t *records, once__op_t *op,
                        const once__current_t *current)
{
    once__step_t step;

    once__step(records->rules, &current->record.head, &op->event, records->clock, &step);
    if (step.changed ||
        (step.outcome != ONCE_OUTCOME_REPLAY && step.outcome != ONCE_OUTCOME_MISMATCH)) {
        return 0;
    }
    op->error = ONCE_OK;
    op->outcome = step.outcome;
    op->now = step.now;
    op->head = step.next;
    op->record = NULL;
    answer_record(op, &current->record);
    return 1;
}

int once__records_glance(once__records_t *records, once__op_t *op)
{
    once__current_t current;
    int answered;

    if (op->kind != ONCE__OP_EVENT || op->event.kind != ONCE__CLAIM ||
        !once__index_try_lock(records->index, op->id)) {
        return 0;
    }
    answered = load_final(records, op->id, &current) && answer_final(records, op, &current);
    once__index_unlock(records->index, op->id);
    return answered;
}

int once__records_peek(const once__records_t *records, const uint8_t *id, once__peek_t *peek)
{
    int found = once__index_peek(records->index, id, peek);

    if (found) {
        once__log_expect(records->log, peek->entry.place);
    }
    return found;
}

/* Only the head is needed: the response stays where it is. */
int once__records_recall(once__records_t *records, const once__lookup_t *look,
                         const once__peek_t *peek)
{
    const once__place_t *place = &peek->entry.place;
    once__record_t record;

    return peek->entry.state == ONCE_STATE_COMPLETED &&
           place->offset <
               atomic_load(&once__index_segment(records->index, place->segment)->synced) &&
           once__log_read_head(records->log, *place, look->id, &record) == ONCE_OK &&
           once__index_peek_holds(records->index, peek) &&
           once__answers(records->rules, &record.head, &look->event, records->clock,
                         ONCE_OUTCOME_REPLAY);
}
