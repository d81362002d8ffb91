#include "store/local/decide.h"

#include <string.h>

#include "base/bytes.h"

#define ROUNDS          64  /* of one operation, each after something was waited for */
#define SPINS           64  /* for a lock that is held for a microsecond */
#define TAKE_OVER_MS    5   /* between two attempts at one segment */
#define SEGMENTS_PER_MS 256 /* more segments are counted less often, unless new keys wait for it */

/* What is done after the shard was unlocked. */
typedef enum next {
    NEXT_ANSWER,
    NEXT_SYNC,      /* answer after the sync */
    NEXT_READ,      /* read the frame from the disk, decide again */
    NEXT_RESERVE,   /* make room, decide again */
    NEXT_TAKE_OVER, /* see to a writer that may have died, decide again */
    NEXT_NOTE,      /* note what is about to be erased, decide again */
} next_t;

/* An operation that is being decided. `frame` and `record` point into memory of the reader, valid until its next read. */
typedef struct deciding {
    once__records_t *records;
    once__op_t *op;

    /* The record as the index and the log have it. */
    once__entry_t entry;
    uint64_t number; /* of the segment that it leads to: slots are used again */
    int has_entry;
    int found;             /* it has an entry, and that is not of a removed record */
    int is_ahead;          /* `frame` was read from there before the shard was locked ... */
    int code_ahead;        /* ... with this result */
    once__frame_t frame;   /* if `has_entry` */
    once__weight_t weight; /* of `frame`, as it is counted */
    once__record_t record; /* if `found` */

    /* What becomes of it. */
    uint64_t clock;
    once__step_t step;
    once__record_t next; /* after the step */
    uint64_t version;    /* from which on it is noted as erased */
    uint32_t size;       /* of the frame that found no room */
    int took_over;       /* was tried */
} deciding_t;

/* ---------------------------------------------------------------------------------------------------------- reading */

/* As once__frame_weight, without unpacking the head again if the record has it as it was written. */
static once__weight_t weigh(const deciding_t *deciding, const once__segment_t *segment)
{
    once__weight_t weight = {deciding->frame.size, 0};

    if (deciding->found && (segment->other_boot || deciding->record.head.schema > ONCE__SCHEMA)) {
        return once__frame_weight(&deciding->frame, deciding->entry.state);
    }
    if (deciding->found) {
        weight.until = once__index_kept_until(&deciding->record.head);
    }
    return weight;
}

/* Is the frame that was read one of the record, and of the kind that its entry says? */
static int is_expected(const deciding_t *deciding)
{
    const once__frame_t *frame = &deciding->frame;

    return memcmp(frame->id, deciding->op->id, ONCE_ID_SIZE) == 0 &&
           (frame->kind == ONCE__FRAME_RECORD ||
            (frame->kind == ONCE__FRAME_REMOVED && !deciding->found));
}

/*
 * The record as it is now; the shard is locked. ONCE_OK, also if there is none; ONCE_E_UNAVAILABLE: the frame is on the disk; or
 * why it cannot be known.
 */
static int load(deciding_t *deciding)
{
    const once__records_t *records = deciding->records;
    once__place_t before = deciding->entry.place, place;
    once__segment_t *segment;
    int code = deciding->code_ahead;

    deciding->weight = (once__weight_t){0, 0};
    deciding->has_entry = once__index_find(records->index, deciding->op->id, &deciding->entry);
    deciding->found = deciding->has_entry && deciding->entry.state != ONCE_STATE_NONE;
    if (!deciding->has_entry) {
        return ONCE_OK;
    }
    place = deciding->entry.place;
    segment = once__index_segment(records->index, place.slot);
    if (!deciding->is_ahead || deciding->number != atomic_load(&segment->number) ||
        !once__is_same_place(before, place)) {
        deciding->number = atomic_load(&segment->number);
        code = once__reader_read(records->reader, place, 1, &deciding->frame);
    }
    if (code == ONCE_OK && !is_expected(deciding)) {
        code = ONCE_E_CORRUPT;
    }
    if (code == ONCE_OK && deciding->found) {
        code = once__reader_record(records->reader, place, &deciding->frame, &deciding->record);
        code = code == ONCE_E_NEWER ? ONCE_OK : code; /* the rules say busy */
    }
    if (code == ONCE_E_CORRUPT) {
        atomic_store(&segment->damaged, 1);
    }
    if (code == ONCE_OK) {
        deciding->weight = weigh(deciding, segment);
    }
    return code == ONCE_E_NOT_FOUND ? ONCE_E_IO : code;
}

/* From the disk; the shard is not locked. load() uses it if the entry still leads there. */
static void read_ahead(deciding_t *deciding)
{
    deciding->code_ahead =
        once__reader_read(deciding->records->reader, deciding->entry.place, 0, &deciding->frame);
    deciding->is_ahead = 1;
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
            records->bytes + once__log_first_size(records->log_config->segment_size) >
                limits->max_bytes);
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

/*
 * Of a frame that is appended now: 0, if all earlier ones of the record are in the same segment. A frame that is not durable may be
 * gone after a power cut: what it covers in its own segment is then covered by this one.
 */
static uint64_t since(const deciding_t *deciding)
{
    const once__records_t *records = deciding->records;
    const once__place_t *place = &deciding->entry.place;
    const once__segment_t *segment;
    uint64_t version, first;

    if (!deciding->has_entry ||
        (deciding->frame.since == 0 && place->slot == once__log_slot(records->log))) {
        return 0;
    }
    version = deciding->frame.since != 0 ? deciding->frame.since : deciding->frame.version;
    segment = once__index_segment(records->index, place->slot);
    first = atomic_load(&segment->first_version);
    return place->offset >= atomic_load(&segment->synced) && first != 0 && first < version
               ? first
               : version;
}

static void enter(const deciding_t *deciding, const once__record_t *next, once__place_t place,
                  uint32_t size)
{
    once__entry_t entry = {place, next != NULL ? next->head.state : ONCE_STATE_NONE};
    once__weight_t weight = {size, next != NULL ? once__index_kept_until(&next->head) : 0};

    once__index_set(deciding->records->index, deciding->op->id, &entry, weight,
                    deciding->has_entry ? &deciding->entry : NULL, deciding->weight);
}

/* Appends the frame of `next` (NULL: removed) and enters it. */
static next_t publish(deciding_t *deciding, const once__record_t *next)
{
    const once__records_t *records = deciding->records;
    once__op_t *op = deciding->op;
    once__place_t place;

    if (!deciding->has_entry) {
        op->error = once__index_make_room(records->index, op->id);
    }
    if (op->error == ONCE_OK) {
        op->error =
            once__log_append(records->log, op->id, next,
                             once__index_next_version(records->index, op->id, deciding->clock),
                             since(deciding), &place, &deciding->size);
    }
    if (op->error != ONCE_OK) { /* nothing was written that a sync could concern */
        return op->error == ONCE__E_ROOM ? NEXT_RESERVE : NEXT_ANSWER;
    }
    enter(deciding, next, place, deciding->size);
    return NEXT_SYNC;
}

/* ----------------------------------------------------------------------------------------------------------- events */

/* The record after the step: what it was, with what the step and the operation change. */
static void make_next(deciding_t *deciding)
{
    const once__step_t *step = &deciding->step;
    const once__op_t *op = deciding->op;
    once__record_t *next = &deciding->next;
    once_slice_t key;

    if (!deciding->found ||
        (step->next.claim.epoch == 1 && step->rule->effects & ONCE__E_GRANT)) { /* anew */
        *next = (once__record_t){.key_len = 0};
        memcpy(next->id, op->id, ONCE_ID_SIZE);
        memcpy(next->scope_hash, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
    } else {
        *next = deciding->record;
    }
    key = once__key_after(step->rule, op, once__slice(next->key, next->key_len));
    next->key = key.data;
    next->key_len = key.len;
    next->cause = once__cause_after(deciding->records->why, step, op, next);
    next->payload = once__payload_after(step->rule, op, &next->payload);
    next->about = once__about_after(step->rule, op, next->about);
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

/*
 * A frame of another writer is not synced. That writer may have died: it is looked after, but not again and again. `error` is the
 * answer if it lives.
 */
static next_t await_writer(deciding_t *deciding, int error)
{
    const once__records_t *records = deciding->records;

    if (deciding->took_over || (deciding->entry.place.slot == records->tried_slot &&
                                once__index_now(records->index) < records->tried_until)) {
        deciding->op->error = error;
        return NEXT_ANSWER;
    }
    deciding->took_over = 1;
    return NEXT_TAKE_OVER;
}

/* It may wait for a lock of a process that was stopped: the next attempt comes no sooner than after as long. */
static void take_over(const deciding_t *deciding)
{
    once__records_t *records = deciding->records;
    uint64_t begun = once__index_now(records->index), ended;

    records->tried_slot = deciding->entry.place.slot;
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
    int is_claim = op->event.kind == ONCE__CLAIM;

    op->head = deciding->record.head;
    op->head.state = ONCE_STATE_PENDING;
    op->head.expires = 0;
    if (is_claim && op->outcome != ONCE_OUTCOME_MISMATCH) {
        op->outcome = ONCE_OUTCOME_BUSY;
    }
    return await_writer(deciding, is_claim ? ONCE_OK : ONCE_E_NOREPLY);
}

/* No text of the record was written before this version: not in its own frames, and not in a dictionary. */
static uint64_t written_since(const deciding_t *deciding)
{
    const once__index_t *index = deciding->records->index;
    uint64_t created = deciding->record.head.created << 20;
    uint64_t first =
        atomic_load(&once__index_segment(index, deciding->entry.place.slot)->first_version);

    if (deciding->frame.since != 0 && deciding->frame.since < first) {
        first = deciding->frame.since;
    }
    return created < first ? created : first;
}

/* Writes what the step changed. */
static next_t apply_change(deciding_t *deciding)
{
    once__records_t *records = deciding->records;
    int is_removed = deciding->step.next.state == ONCE_STATE_NONE;
    next_t next;

    if (deciding->step.rule->effects & ONCE__E_ERASE) {
        deciding->version = written_since(deciding);
        if (deciding->version < records->erasing.from) {
            return NEXT_NOTE;
        }
    }
    make_next(deciding);
    if (!deciding->found && !has_room(records, &deciding->next)) {
        deciding->op->error = ONCE_E_FULL;
        return NEXT_ANSWER;
    }
    next = publish(deciding, is_removed ? NULL : &deciding->next);
    records->room -= next == NEXT_SYNC && !deciding->found && records->room > 0;
    return next;
}

static next_t apply_event(deciding_t *deciding, int is_durable, int is_foreign)
{
    const once__records_t *records = deciding->records;
    const once__step_t *step = &deciding->step;
    once__op_t *op = deciding->op;

    /* What is not there may have ended since the batch began: the next life of a key never begins before that. */
    deciding->clock =
        records->clock != 0 && deciding->found ? records->clock : once__index_now(records->index);
    once__step(records->rules, deciding->found ? &deciding->record.head : NULL, &op->event,
               deciding->clock, &deciding->step);
    op->outcome = step->outcome;
    op->now = step->now;
    op->head = step->next;
    /* A claim or a renewal that is lost promised nothing: nothing waits for a process that stands still with one. */
    if (is_foreign && deciding->record.head.state != ONCE_STATE_PENDING) {
        return answer_unsettled(deciding);
    }
    /* The same claim again, granted by another process: our sync cannot stand in for that of the other one. */
    if (is_foreign && !step->changed && op->outcome == ONCE_OUTCOME_RUN &&
        !records->relaxed_claims) {
        return await_writer(deciding, ONCE_E_NOREPLY);
    }
    if (step->changed) {
        return apply_change(deciding);
    }
    if (deciding->found && step->next.state != ONCE_STATE_NONE &&
        op->outcome != ONCE_OUTCOME_DONE) {
        answer_record(op, &deciding->record);
    }
    return is_durable ? NEXT_ANSWER : NEXT_SYNC;
}

static next_t apply_get(deciding_t *deciding, int is_durable, int is_foreign)
{
    static const once_filter_t all = ONCE_FILTER_INIT;
    once__op_t *op = deciding->op;

    op->now = once__index_now(deciding->records->index);
    if (is_foreign) {
        return await_writer(deciding, ONCE_E_NOREPLY);
    }
    if (!deciding->found || !once__filter_passes(&all, &deciding->record, op->now)) {
        op->error = ONCE_E_NOT_FOUND;
        return NEXT_ANSWER;
    }
    op->head = deciding->record.head;
    answer_record(op, &deciding->record);
    return is_durable ? NEXT_ANSWER : NEXT_SYNC;
}

/* One look at the record, and what comes of it. The shard is locked meanwhile. */
static next_t decide(deciding_t *deciding)
{
    const once__records_t *records = deciding->records;
    once__op_t *op = deciding->op;
    int is_durable, is_foreign;

    op->outcome = ONCE_OUTCOME_NONE;
    op->record = NULL;
    memset(&op->head, 0, sizeof(op->head));
    op->error = load(deciding);
    if (op->error != ONCE_OK) {
        return op->error == ONCE_E_UNAVAILABLE ? NEXT_READ : NEXT_ANSWER;
    }
    is_durable = !deciding->found || once__is_settled(records->index, deciding->entry.place);
    is_foreign = !is_durable && deciding->entry.place.slot != once__log_slot(records->log);
    return op->kind == ONCE__OP_GET ? apply_get(deciding, is_durable, is_foreign)
                                    : apply_event(deciding, is_durable, is_foreign);
}

void once__records_expect(const once__records_t *records, const once__op_t *first)
{
    for (const once__op_t *op = first; op != NULL; op = op->next) {
        for (size_t at = 64; at < offsetof(once__op_t, filter); at += 64) {
            __builtin_prefetch((const char *)op + at, 1);
        }
        once__index_expect_shard(records->index, op->id);
    }
    for (const once__op_t *op = first; op != NULL; op = op->next) {
        once__index_expect(records->index, op->id);
    }
}

static int lock(once__index_t *index, const uint8_t *id)
{
    for (int i = 0; i < SPINS; i++) {
        if (once__index_lock(index, id, 0) == ONCE_OK) {
            return 1;
        }
    }
    return 0;
}

/* What was written must be durable before it is answered, but for renewals: a lease ends with the machine. And as was asked for. */
static once__decided_t finish(deciding_t *deciding)
{
    once__op_t *op = deciding->op;
    int is_event = op->kind == ONCE__OP_EVENT;

    if (is_event && deciding->step.changed && op->outcome != ONCE_OUTCOME_DONE &&
        op->outcome != ONCE_OUTCOME_RUN) {
        answer_record(op, &deciding->next);
    }
    return is_event && ((deciding->step.changed && op->event.kind == ONCE__RENEW) ||
                        (deciding->records->relaxed_claims && op->event.kind == ONCE__CLAIM &&
                         op->outcome == ONCE_OUTCOME_RUN))
               ? ONCE__DECIDED_NOW
               : ONCE__DECIDED_SYNC;
}

/*
 * There is no room for the frame. That the outcome of a held record is not known is true without one: only its own claim or an
 * operator can end it, and the next process that asks finds the same.
 */
static void answer_unwritten(const deciding_t *deciding)
{
    once__op_t *op = deciding->op;

    if (op->error == ONCE_E_FULL && op->outcome == ONCE_OUTCOME_UNKNOWN &&
        deciding->record.head.recover == ONCE_RECOVER_HOLD) {
        op->error = ONCE_OK;
    }
}

once__decided_t once__records_apply(once__records_t *records, once__op_t *op)
{
    deciding_t
        deciding; /* not zeroed as a whole: it is large, and this is done for each operation */

    deciding.records = records;
    deciding.op = op;
    deciding.entry = (once__entry_t){{0, 0}, ONCE_STATE_NONE};
    deciding.number = 0;
    deciding.is_ahead = deciding.took_over = 0;
    deciding.code_ahead = ONCE_OK;
    for (int round = 0; round < ROUNDS; round++) {
        next_t next;
        if (!lock(records->index, op->id)) {
            return ONCE__DECIDED_LATER;
        }
        next = decide(&deciding);
        once__index_unlock(records->index, op->id);
        deciding.is_ahead = 0;
        switch (next) {
        case NEXT_ANSWER:
            return ONCE__DECIDED_NOW;
        case NEXT_SYNC:
            return finish(&deciding);
        case NEXT_READ:
            read_ahead(&deciding);
            break;
        case NEXT_RESERVE:
            op->error = once__log_reserve(records->log, deciding.size);
            if (op->error != ONCE_OK) {
                answer_unwritten(&deciding);
                return ONCE__DECIDED_NOW;
            }
            break;
        case NEXT_TAKE_OVER:
            take_over(&deciding);
            break;
        case NEXT_NOTE:
            op->error =
                once__erasing_note(&records->erasing, records->log_config, deciding.version);
            if (op->error != ONCE_OK) {
                return ONCE__DECIDED_NOW;
            }
            break;
        }
    }
    op->error = ONCE_E_NOREPLY;
    return ONCE__DECIDED_NOW;
}

/* ---------------------------------------------------------------------------------------------------------- glances */

/* The frame of a record that is completed and durable, if it is in memory and the shard's lock is free. 1 or 0. */
static int find_final(once__records_t *records, const uint8_t *id, once__entry_t *entry,
                      once__frame_t *frame)
{
    int found;

    if (once__index_lock(records->index, id, 0) != ONCE_OK) {
        return 0;
    }
    found = once__index_find(records->index, id, entry) && entry->state == ONCE_STATE_COMPLETED &&
            once__is_settled(records->index, entry->place) &&
            once__reader_read(records->reader, entry->place, 1, frame) == ONCE_OK &&
            frame->kind == ONCE__FRAME_RECORD && memcmp(frame->id, id, ONCE_ID_SIZE) == 0;
    once__index_unlock(records->index, id);
    return found;
}

int once__records_glance(once__records_t *records, once__op_t *op)
{
    once__entry_t entry;
    once__frame_t frame;
    once__record_t record;
    once__step_t step;

    if (op->kind != ONCE__OP_EVENT || op->event.kind != ONCE__CLAIM ||
        !find_final(records, op->id, &entry, &frame) ||
        once__reader_record(records->reader, entry.place, &frame, &record) != ONCE_OK) {
        return 0;
    }
    once__step(records->rules, &record.head, &op->event, records->clock, &step);
    if (step.changed ||
        (step.outcome != ONCE_OUTCOME_REPLAY && step.outcome != ONCE_OUTCOME_MISMATCH)) {
        return 0;
    }
    op->error = ONCE_OK;
    op->outcome = step.outcome;
    op->now = step.now;
    op->head = step.next;
    op->record = NULL;
    answer_record(op, &record);
    return 1;
}

/* The head is enough. A lease of another boot does not matter to a completed record. */
int once__records_recall(once__records_t *records, const once__lookup_t *look)
{
    once__entry_t entry;
    once__frame_t frame;
    once__head_t head;

    return find_final(records, look->id, &entry, &frame) &&
           once__unpack_head(&head, &frame) == ONCE_OK &&
           once__answers(records->rules, &head, &look->event, records->clock, ONCE_OUTCOME_REPLAY);
}
