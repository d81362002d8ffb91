#include "store/local/decide.h"

#include <string.h>

#define ROUNDS          64  /* of one operation, each after something was waited for */
#define SPINS           64  /* for a lock that is held for a microsecond */
#define LARGE_WAIT_MS   50  /* for the lock, when a large frame is written already */
#define TAKE_OVER_MS    5   /* between two attempts at one segment */
#define SEGMENTS_PER_MS 256 /* more segments are counted less often, unless new keys wait for it */

/* ---------------------------------------------------------------------------------------------------------- reading */

/* As once__frame_weight, without unpacking the head again if the record has it as it was written. */
static once__weight_t weigh(const once__records_t *records, const once__current_t *current)
{
    const once__segment_t *segment = once__index_segment(records->index, current->entry.place.slot);
    once__weight_t weight = {current->frame.size, 0};

    if (!current->found) {
        return weight;
    }
    if (segment->other_boot || current->record.head.schema > ONCE__SCHEMA) {
        return once__frame_weight(&current->frame, current->entry.state);
    }
    weight.until = once__index_kept_until(&current->record.head);
    return weight;
}

static void mark_damaged(const once__records_t *records, once__place_t place)
{
    atomic_store(&once__index_segment(records->index, place.slot)->damaged, 1);
}

/* Reads the frame that the entry leads to. The shard is locked. */
static int read_entry(once__records_t *records, const uint8_t *id, once__current_t *current)
{
    once__frame_t *frame = &current->frame;
    once__place_t place = current->entry.place;
    int code =
        current->ahead ? current->code_read : once__reader_read(records->reader, place, 1, frame);

    if (code == ONCE_OK && (memcmp(frame->id, id, ONCE_ID_SIZE) != 0 ||
                            (frame->kind != ONCE__FRAME_RECORD &&
                             (current->found || frame->kind != ONCE__FRAME_REMOVED)))) {
        code = ONCE_E_CORRUPT;
    }
    if (code == ONCE_OK && current->found) {
        code = once__reader_record(records->reader, place, frame, &current->record);
        code = code == ONCE_E_NEWER ? ONCE_OK : code; /* the rules say busy */
    }
    if (code == ONCE_E_CORRUPT) {
        mark_damaged(records, place);
    }
    return code == ONCE_E_NOT_FOUND ? ONCE_E_IO : code;
}

/*
 * The record as it is now; the shard is locked. ONCE_OK, also if there is none; ONCE_E_UNAVAILABLE: the frame is on the disk, see
 * read_ahead; or why it cannot be known.
 */
static int load(once__records_t *records, const uint8_t *id, once__current_t *current)
{
    once__place_t before = current->entry.place;
    uint64_t number = current->number;
    int code;

    current->found = 0;
    current->has_entry = once__index_find(records->index, id, &current->entry);
    if (!current->has_entry) {
        current->weight = (once__weight_t){0, 0};
        return ONCE_OK;
    }
    current->number =
        atomic_load(&once__index_segment(records->index, current->entry.place.slot)->number);
    current->ahead = current->ahead && number == current->number &&
                     once__is_same_place(before, current->entry.place);
    current->found = current->entry.state != ONCE_STATE_NONE;
    code = read_entry(records, id, current);
    if (code == ONCE_OK) {
        current->weight = weigh(records, current);
    }
    return code;
}

/* From the disk; the shard is not locked. load() uses it if the entry still leads there. */
static void read_ahead(once__records_t *records, once__current_t *current)
{
    current->code_read =
        once__reader_read(records->reader, current->entry.place, 0, &current->frame);
    current->ahead = 1;
}

int once__records_may_go(const once__records_t *records, const once__head_t *head)
{
    static const once__event_t reap = {.kind = ONCE__REAP};
    once__step_t step;

    once__step(records->rules, head, &reap, once__index_now(records->index), &step);
    return step.outcome == ONCE_OUTCOME_DONE;
}

/* ----------------------------------------------------------------------------------------------------------- limits */

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
    uint64_t count;

    if ((limits->max_records == 0 && limits->max_bytes == 0) ||
        (records->clock - records->counted_at <=
             once__index_slot_end(records->index) / SEGMENTS_PER_MS &&
         !is_full(records))) {
        return;
    }
    once__index_usage(records->index, &count, &records->bytes);
    records->counted_at = records->clock;
    records->room = count < limits->max_records ? limits->max_records - count : 0;
}

/* A new record may fill the segment that we have, unless changes of others went beyond the limit: what is left is for those. */
static int has_room(const once__records_t *records, const once__record_t *record)
{
    const once__limits_t *limits = &records->limits;

    return !is_full(records) ||
           ((limits->max_records == 0 || records->room > 0) &&
            records->bytes <= limits->max_bytes && once__log_fits(records->log, record));
}

/* ---------------------------------------------------------------------------------------------------------- writing */

/* What apply does after the shard was unlocked. */
typedef enum next {
    NEXT_ANSWER,
    NEXT_SYNC,    /* answer after the sync */
    NEXT_RESERVE, /* make room, decide again */
    NEXT_TAKE_OVER, /* a frame is not durable, perhaps because its writer died: see to it, decide again */
    NEXT_LARGE, /* write the large frame, enter it, sync */
    NEXT_AGAIN,
} next_t;

/* An operation that is being decided. */
typedef struct deciding {
    once__records_t *records;
    once__op_t *op;
    once__current_t current;
    once__step_t step;
    once__record_t next; /* after the step */
    uint64_t clock;
    uint64_t version; /* of a large frame */
    uint32_t size;    /* of the frame that found no room */
    int took_over;    /* was tried */
} deciding_t;

/*
 * Of a frame that is appended now: 0, if all earlier ones of the record are in the same segment. A frame that is not durable may be
 * gone after a power cut: what it covers in its own segment is then covered by this one.
 */
static uint64_t since(const once__records_t *records, const once__current_t *current)
{
    const once__place_t *place = &current->entry.place;
    const once__segment_t *segment;
    uint64_t version, first;

    if (!current->has_entry ||
        (current->frame.since == 0 && place->slot == once__log_slot(records->log))) {
        return 0;
    }
    version = current->frame.since != 0 ? current->frame.since : current->frame.version;
    segment = once__index_segment(records->index, place->slot);
    first = atomic_load(&segment->first_version);
    return place->offset >= atomic_load(&segment->synced) && first != 0 && first < version
               ? first
               : version;
}

static void enter(deciding_t *deciding, const once__record_t *next, once__place_t place,
                  uint32_t size)
{
    const once__current_t *current = &deciding->current;
    once__entry_t entry = {.place = place,
                           .state = next != NULL ? next->head.state : ONCE_STATE_NONE};
    once__weight_t weight = {size, next != NULL ? once__index_kept_until(&next->head) : 0};

    once__index_set(deciding->records->index, deciding->op->id, &entry, weight,
                    current->has_entry ? &current->entry : NULL, current->weight);
}

/* Appends the frame of `next` (NULL: removed) and enters it. */
static int publish(deciding_t *deciding, const once__record_t *next)
{
    once__records_t *records = deciding->records;
    const uint8_t *id = deciding->op->id;
    once__place_t place;
    uint32_t size;
    int code = ONCE_OK;

    if (!deciding->current.has_entry) {
        code = once__index_make_room(records->index, id);
    }
    if (code != ONCE_OK) {
        return code;
    }
    code = once__log_append(records->log, id, next,
                            once__index_next_version(records->index, id, deciding->clock),
                            since(records, &deciding->current), &place, &size);
    if (code == ONCE_OK) {
        enter(deciding, next, place, size);
    } else if (code == ONCE__E_ROOM) {
        deciding->size = size;
    }
    return code;
}

/*
 * A large frame is written without the lock and entered afterwards. If the record changes meanwhile, the frame stays where it is
 * and nothing leads to it: then the change must have a `since` that covers it. So the record's frame is repeated in our segment
 * first: neither another writer nor compaction can go on from there without a `since`.
 */
static next_t prepare_large(deciding_t *deciding)
{
    const once__records_t *records = deciding->records;
    const once__current_t *current = &deciding->current;

    if (current->entry.place.slot != once__log_slot(records->log) &&
        !once__log_is_large(&current->record)) {
        int code = publish(deciding, &current->record);
        if (code == ONCE__E_ROOM) {
            return NEXT_RESERVE;
        }
        deciding->op->error = code;
        return code == ONCE_OK ? NEXT_AGAIN : NEXT_ANSWER;
    }
    deciding->version = once__index_next_version(records->index, deciding->op->id, deciding->clock);
    return NEXT_LARGE;
}

/* The shard is not locked. The log may begin another segment: so the frame always has a `since`. */
static next_t write_large(deciding_t *deciding)
{
    once__records_t *records = deciding->records;
    const once__current_t *current = &deciding->current;
    const uint8_t *id = deciding->op->id;
    uint64_t from = current->frame.since != 0 ? current->frame.since : current->frame.version;
    once__place_t place;
    once__entry_t entry;
    uint32_t size;
    next_t next = NEXT_AGAIN;
    int code = once__log_append_large(records->log, id, &deciding->next, deciding->version, from,
                                      &place, &size);

    if (code != ONCE_OK) {
        deciding->op->error = code;
        return NEXT_ANSWER;
    }
    if (once__index_lock(records->index, id, LARGE_WAIT_MS) != ONCE_OK) {
        deciding->op->error = ONCE_E_NOREPLY; /* a rebuild would enter it */
        return NEXT_ANSWER;
    }
    if (once__index_find(records->index, id, &entry) &&
        once__is_same_place(entry.place, current->entry.place) &&
        atomic_load(&once__index_segment(records->index, entry.place.slot)->number) ==
            current->number &&
        entry.state == current->entry.state) {
        enter(deciding, &deciding->next, place, size);
        next = NEXT_SYNC;
    }
    once__index_unlock(records->index, id);
    return next;
}

/* ----------------------------------------------------------------------------------------------------------- events */

/* The record after the step: what it was, with what the step and the operation change. */
static void make_next(deciding_t *deciding)
{
    static const once__payload_t none = {ONCE__PAYLOAD_NONE, 0, NULL, 0};
    const once__current_t *current = &deciding->current;
    const once__step_t *step = &deciding->step;
    const once__op_t *op = deciding->op;
    once__record_t *next = &deciding->next;
    int anew =
        !current->found || (step->next.claim.epoch == 1 && step->rule->effects & ONCE__E_GRANT);

    if (anew) {
        memcpy(next->scope_hash, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
        next->key = op->key;
        next->key_len = op->key_len;
    } else {
        memcpy(next->scope_hash, current->record.scope_hash, ONCE_SCOPE_HASH_SIZE);
        next->key = current->record.key;
        next->key_len = current->record.key_len;
    }
    memcpy(next->id, op->id, ONCE_ID_SIZE);
    next->payload = once__payload_after(step->rule, op, anew ? &none : &current->record.payload);
    next->about = once__about_after(step->rule, op, current->record.about);
    next->cause = once__cause_after(step->rule, op, current->record.cause);
    next->head = step->next;
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

/* A frame of another writer is not synced. 1: that writer may have died, which has not been looked at lately. */
static int may_be_dead(deciding_t *deciding)
{
    once__records_t *records = deciding->records;
    uint32_t slot = deciding->current.entry.place.slot;
    uint64_t now = once__index_now(records->index);

    if (deciding->took_over || (slot == records->tried_slot && now < records->tried_until)) {
        return 0;
    }
    deciding->took_over = 1;
    return 1;
}

/* It may wait for a lock of a process that was stopped: the next attempt comes no sooner than after as long. */
static void take_over(deciding_t *deciding)
{
    once__records_t *records = deciding->records;
    uint64_t begun = once__index_now(records->index), ended;

    records->tried_slot = deciding->current.entry.place.slot;
    (void)once__segment_take_over(records->log_config, records->tried_slot);
    ended = once__index_now(records->index);
    records->tried_until = ended + (ended - begun > TAKE_OVER_MS ? ended - begun : TAKE_OVER_MS);
}

/*
 * Another process wrote how the record ended, and waits for its sync. Until then the record counts as pending: a claim receives
 * busy (or mismatch, which the fingerprint settles for good), and everything else is asked for again.
 */
static next_t answer_unsettled(deciding_t *deciding)
{
    once__op_t *op = deciding->op;

    op->head = deciding->current.record.head;
    op->head.state = ONCE_STATE_PENDING;
    op->head.expires = 0;
    if (op->event.kind != ONCE__CLAIM) {
        op->error = ONCE_E_NOREPLY;
    } else if (op->outcome != ONCE_OUTCOME_MISMATCH) {
        op->outcome = ONCE_OUTCOME_BUSY;
    }
    return NEXT_ANSWER;
}

/* Writes what the step changed. */
static next_t apply_change(deciding_t *deciding)
{
    once__records_t *records = deciding->records;
    once__op_t *op = deciding->op;
    int is_removed = deciding->step.next.state == ONCE_STATE_NONE;
    int is_new = !deciding->current.found;

    make_next(deciding);
    if (is_new && !has_room(records, &deciding->next)) {
        op->error = ONCE_E_FULL;
        return NEXT_ANSWER;
    }
    if (!is_removed && once__log_is_large(&deciding->next)) {
        return prepare_large(deciding);
    }
    op->error = publish(deciding, is_removed ? NULL : &deciding->next);
    if (op->error == ONCE__E_ROOM) {
        return NEXT_RESERVE;
    }
    if (op->error != ONCE_OK) {
        return NEXT_ANSWER; /* nothing was written that a sync could concern */
    }
    records->room -= is_new && records->room > 0;
    return NEXT_SYNC;
}

static next_t apply_event(deciding_t *deciding)
{
    once__records_t *records = deciding->records;
    const once__current_t *current = &deciding->current;
    const once__step_t *step = &deciding->step;
    once__op_t *op = deciding->op;
    int durable = !current->found || once__is_settled(records->index, current->entry.place);
    int foreign = !durable && !once__log_is_ours(records->log, current->entry.place);

    /* What is not there may have ended since the batch began: the next life of a key never begins before that. */
    deciding->clock =
        records->clock != 0 && current->found ? records->clock : once__index_now(records->index);
    once__step(records->rules, current->found ? &current->record.head : NULL, &op->event,
               deciding->clock, &deciding->step);
    op->outcome = step->outcome;
    op->now = step->now;
    op->head = step->next;
    /* A claim or a renewal that is lost promised nothing: nothing waits for a process that stands still with one. */
    if (foreign && current->record.head.state != ONCE_STATE_PENDING) {
        return may_be_dead(deciding) ? NEXT_TAKE_OVER : answer_unsettled(deciding);
    }
    /* The same claim again, granted by another process: our sync cannot stand in for that of the other one. */
    if (foreign && !step->changed && op->outcome == ONCE_OUTCOME_RUN && !records->relaxed_claims) {
        op->error = ONCE_E_NOREPLY;
        return may_be_dead(deciding) ? NEXT_TAKE_OVER : NEXT_ANSWER;
    }
    if (step->changed) {
        return apply_change(deciding);
    }
    if (current->found && step->next.state != ONCE_STATE_NONE && op->outcome != ONCE_OUTCOME_DONE) {
        answer_record(op, &current->record);
    }
    return durable ? NEXT_ANSWER : NEXT_SYNC;
}

/* What was written must be durable before it is answered, with two exceptions. */
static once__decided_t finish_change(deciding_t *deciding)
{
    const once__records_t *records = deciding->records;
    once__op_t *op = deciding->op;

    if (deciding->step.changed && op->kind == ONCE__OP_EVENT) {
        if (op->outcome != ONCE_OUTCOME_DONE && op->outcome != ONCE_OUTCOME_RUN) {
            answer_record(op, &deciding->next);
        }
        /* A lease ends with the machine anyway. */
        if (op->event.kind == ONCE__RENEW) {
            return ONCE__DECIDED_NOW;
        }
    }
    return records->relaxed_claims && op->kind == ONCE__OP_EVENT && op->event.kind == ONCE__CLAIM &&
                   op->outcome == ONCE_OUTCOME_RUN
               ? ONCE__DECIDED_NOW
               : ONCE__DECIDED_SYNC;
}

static next_t apply_get(deciding_t *deciding)
{
    static const once_filter_t all = ONCE_FILTER_INIT;
    const once__records_t *records = deciding->records;
    const once__current_t *current = &deciding->current;
    once__op_t *op = deciding->op;
    int durable = !current->found || once__is_settled(records->index, current->entry.place);

    op->now = once__index_now(records->index);
    if (!durable && !once__log_is_ours(records->log, current->entry.place)) {
        op->error = ONCE_E_NOREPLY; /* another process is about to sync it: asked for again */
        return may_be_dead(deciding) ? NEXT_TAKE_OVER : NEXT_ANSWER;
    }
    if (!current->found || !once__filter_passes(&all, &current->record, op->now)) {
        op->error = ONCE_E_NOT_FOUND;
        return NEXT_ANSWER;
    }
    op->head = current->record.head;
    answer_record(op, &current->record);
    return durable ? NEXT_ANSWER : NEXT_SYNC;
}

static int lock(once__index_t *index, const uint8_t *id)
{
    for (int i = 0; i < SPINS; i++) {
        if (once__index_try_lock(index, id)) {
            return 1;
        }
    }
    return 0;
}

/* One look at the record, and what comes of it. The shard is locked meanwhile. */
static next_t decide(deciding_t *deciding)
{
    once__op_t *op = deciding->op;
    next_t next = NEXT_ANSWER;

    op->outcome = ONCE_OUTCOME_NONE;
    op->record = NULL;
    memset(&op->head, 0, sizeof(op->head));
    op->error = load(deciding->records, op->id, &deciding->current);
    if (op->error == ONCE_OK) {
        next = op->kind == ONCE__OP_GET ? apply_get(deciding) : apply_event(deciding);
    }
    once__index_unlock(deciding->records->index, op->id);
    return next;
}

once__decided_t once__records_apply(once__records_t *records, once__op_t *op)
{
    deciding_t deciding = {.records = records, .op = op};

    for (int round = 0; round < ROUNDS; round++) {
        next_t next;
        if (!lock(records->index, op->id)) {
            return ONCE__DECIDED_LATER;
        }
        next = decide(&deciding);
        if (next == NEXT_ANSWER && op->error == ONCE_E_UNAVAILABLE) {
            read_ahead(records, &deciding.current);
            continue;
        }
        deciding.current.ahead = 0;
        if (next == NEXT_LARGE) {
            next = write_large(&deciding);
        } else if (next == NEXT_RESERVE) {
            op->error = once__log_reserve(records->log, deciding.size);
            next = op->error == ONCE_OK ? NEXT_AGAIN : NEXT_ANSWER;
        } else if (next == NEXT_TAKE_OVER) {
            take_over(&deciding);
        }
        if (next == NEXT_ANSWER) {
            return ONCE__DECIDED_NOW;
        }
        if (next == NEXT_SYNC) {
            return finish_change(&deciding);
        }
    }
    op->error = ONCE_E_NOREPLY;
    return ONCE__DECIDED_NOW;
}

/* ---------------------------------------------------------------------------------------------------------- glances */

/* The shard is locked. 1: the record is completed and durable, and its frame is in memory. */
static int find_final(once__records_t *records, const uint8_t *id, once__current_t *current)
{
    once__frame_t *frame = &current->frame;

    return once__index_find(records->index, id, &current->entry) &&
           current->entry.state == ONCE_STATE_COMPLETED &&
           once__is_settled(records->index, current->entry.place) &&
           once__reader_read(records->reader, current->entry.place, 1, frame) == ONCE_OK &&
           frame->kind == ONCE__FRAME_RECORD && memcmp(frame->id, id, ONCE_ID_SIZE) == 0;
}

static int answer_final(const once__records_t *records, once__op_t *op,
                        const once__record_t *record)
{
    once__step_t step;

    once__step(records->rules, &record->head, &op->event, records->clock, &step);
    if (step.changed ||
        (step.outcome != ONCE_OUTCOME_REPLAY && step.outcome != ONCE_OUTCOME_MISMATCH)) {
        return 0;
    }
    op->error = ONCE_OK;
    op->outcome = step.outcome;
    op->now = step.now;
    op->head = step.next;
    op->record = NULL;
    answer_record(op, record);
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
    answered = find_final(records, op->id, &current);
    once__index_unlock(records->index, op->id);
    /* The bytes are the reader's: they need no lock. */
    return answered &&
           once__reader_record(records->reader, current.entry.place, &current.frame,
                               &current.record) == ONCE_OK &&
           answer_final(records, op, &current.record);
}

/* The head is enough. A lease of another boot does not matter to a completed record. */
int once__records_recall(once__records_t *records, const once__lookup_t *look)
{
    once__current_t current;
    once__head_t head;
    int found;

    if (!once__index_try_lock(records->index, look->id)) {
        return 0;
    }
    found = find_final(records, look->id, &current);
    once__index_unlock(records->index, look->id);
    return found && once__unpack_head(&head, &current.frame) == ONCE_OK &&
           once__answers(records->rules, &head, &look->event, records->clock, ONCE_OUTCOME_REPLAY);
}
