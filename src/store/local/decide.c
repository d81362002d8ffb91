#include "store/local/decide.h"

#include <stdlib.h>
#include <string.h>

/* The newest state of a record, and where the index has it. */
typedef struct current {
    int found;
    uint64_t cursor;
    once__entry_t entry;
    once__frame_t
        frame; /* as the log has it, and what it says: both point into the log's buffer, */
    once__record_t record; /* valid until the next read */
} current_t;

static int is_held(uint8_t state)
{
    return state == ONCE_STATE_PENDING || state == ONCE_STATE_UNKNOWN;
}

/* Decodes what a frame holds. A lease of another boot is over. */
static int decode(const once__records_t *records, once__place_t place, const once__frame_t *frame,
                  once__record_t *record)
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

/* The shard is locked. ONCE_OK also when there is none; ONCE_E_CORRUPT and the like: it cannot be known. */
static int load(const once__records_t *records, const uint8_t *id, current_t *current)
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
            return decode(records, current->entry.place, frame, &current->record);
        }
    }
    return ONCE_OK;
}

/* The segment that the next frame must not be before. */
static uint32_t not_before(const once__records_t *records, const uint8_t *id,
                           const current_t *current)
{
    uint32_t floor = once__index_floor(records->index, id);

    return current->found && current->entry.place.segment > floor ? current->entry.place.segment
                                                                  : floor;
}

/* May the frame of `next` leave out what the one of `current` says? */
static int is_end_of(const once__record_t *next, const current_t *current)
{
    const once__record_t *claim = &current->record;
    const once__fingerprint_t *a = &claim->head.fingerprint, *b = &next->head.fingerprint;

    return current->found && is_held(claim->head.state) &&
           next->head.state == ONCE_STATE_COMPLETED && claim->head.schema == next->head.schema &&
           a->secret == b->secret && a->mode == b->mode &&
           memcmp(a->mac, b->mac, sizeof(a->mac)) == 0 && claim->head.ttl_ms == next->head.ttl_ms &&
           claim->key_len == next->key_len && memcmp(claim->key, next->key, claim->key_len) == 0 &&
           memcmp(claim->scope_hash, next->scope_hash, ONCE_SCOPE_HASH_SIZE) == 0;
}

/* Appends the frame and points the index to it. */
static int publish(const once__records_t *records, const uint8_t *id, const current_t *current,
                   const once__record_t *next)
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
                                    not_before(records, id, current), &entry.place)
               : once__log_append(records->log, id, next, not_before(records, id, current),
                                  &entry.place);
    if (code != ONCE_OK) {
        return code;
    }
    entry.state = next != NULL ? next->head.state : ONCE_STATE_NONE;
    once__index_set(records->index, id, current->cursor, current->found, &entry);
    return ONCE_OK;
}

/* ----------------------------------------------------------------------------------------------------------- events */

/* The record after the step: what it was, with what the step and the operation change. */
static once__record_t next_record(const once__op_t *op, const current_t *current,
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
    } else if (step->outcome != ONCE_MISMATCH) {
        op->outcome = ONCE_BUSY;
    }
    return 0;
}

static int apply_event(once__records_t *records, once__op_t *op, const current_t *current)
{
    uint64_t clock = records->clock != 0 ? records->clock : once__index_now(records->index);
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
        op->head.state =
            ONCE_STATE_PENDING; /* how it ended is nobody's business before that is durable */
        op->head.expires = 0;
        return answer_unsettled(op, &step);
    }
    if (step.changed) {
        once__record_t next = next_record(op, current, &step);
        op->error =
            publish(records, op->id, current, step.next.state == ONCE_STATE_NONE ? NULL : &next);
        if (op->error != ONCE_OK) {
            return 0; /* nothing was written that a sync could concern */
        }
        if (op->outcome != ONCE_DONE && op->outcome != ONCE_RUN) {
            answer_record(op, &next);
        }
    } else if (current->found && step.next.state != ONCE_STATE_NONE && op->outcome != ONCE_DONE) {
        answer_record(op, &current->record);
    }
    /* A renewal is not waited for: a lease ends with the machine anyway. */
    if (step.changed && op->event.kind == ONCE__RENEW) {
        return 0;
    }
    if (records->relaxed_claims && op->event.kind == ONCE__CLAIM && op->outcome == ONCE_RUN) {
        return 0;
    }
    return step.changed || !durable;
}

static int apply_get(const once__records_t *records, once__op_t *op, const current_t *current)
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
    current_t current;
    int wait = 0;

    op->error = ONCE_OK;
    op->outcome = ONCE_NO_OUTCOME;
    op->record = NULL;
    memset(&op->head, 0, sizeof(op->head));
    once__index_lock(records->index, op->id);
    op->error = load(records, op->id, &current);
    if (op->error == ONCE_OK) {
        wait = op->kind == ONCE__OP_GET ? apply_get(records, op, &current)
                                        : apply_event(records, op, &current);
    }
    once__index_unlock(records->index, op->id);
    return wait;
}

/* ---------------------------------------------------------------------------------------------------------- glances */

/* The shard is locked. 1: what is there is final, and durable, and in memory. */
static int load_final(const once__records_t *records, const uint8_t *id, current_t *current)
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
           decode(records, *place, &current->frame, &current->record) == ONCE_OK;
}

static int answer_final(const once__records_t *records, once__op_t *op, const current_t *current)
{
    once__step_t step;

    once__step(records->rules, &current->record.head, &op->event, records->clock, &step);
    if (step.changed || (step.outcome != ONCE_REPLAY && step.outcome != ONCE_MISMATCH)) {
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
    current_t current;
    int answered;

    if (op->kind != ONCE__OP_EVENT || op->event.kind != ONCE__CLAIM ||
        !once__index_try_lock(records->index, op->id)) {
        return 0;
    }
    answered = load_final(records, op->id, &current) && answer_final(records, op, &current);
    once__index_unlock(records->index, op->id);
    return answered;
}

/* --------------------------------------------------------------------------------------------- carrying and sweeping */

/* Reads the record of an entry, durable or not. ONCE_OK; ONCE_E_NOT_FOUND: it is gone; or why it cannot be read. */
static int read_any(once__records_t *records, const once__entry_t *entry, once__record_t *record)
{
    once__frame_t frame;
    int code = once__log_read(records->log, entry->place, &frame);

    if (code == ONCE_OK && frame.kind != ONCE__FRAME_RECORD) {
        code = ONCE_E_NOT_FOUND;
    }
    return code == ONCE_OK ? decode(records, entry->place, &frame, record) : code;
}

/* The same; 1: there is one that counts now. */
static int read_entry(once__records_t *records, const once__entry_t *entry, once__record_t *record)
{
    return read_any(records, entry, record) == ONCE_OK &&
           once__log_is_durable(records->log, entry->place);
}

/*
 * For people who look: a record that is being written is there, too (a holder that renews writes all the time), but only that
 * somebody is at work on it: how it ended is nobody's business before that is durable. One that cannot be read is counted.
 */
static int see_entry(once__records_t *records, const once__entry_t *entry, once__record_t *record,
                     uint64_t *damaged)
{
    int code = read_any(records, entry, record);

    if (code != ONCE_OK) {
        *damaged += code == ONCE_E_CORRUPT || code == ONCE_E_IO;
        return 0;
    }
    if (!once__log_is_durable(records->log, entry->place)) {
        record->head.state = ONCE_STATE_PENDING;
        record->head.expires = 0;
        memset(&record->payload, 0, sizeof(record->payload));
    }
    return 1;
}

static int may_go(const once__records_t *records, const once__head_t *head)
{
    static const once__event_t reap = {.kind = ONCE__REAP};
    once__step_t step;

    once__step(records->rules, head, &reap, once__index_now(records->index), &step);
    return step.outcome == ONCE_DONE;
}

/* Moves a record that a newer version wrote: as it is, since we cannot read all of it. */
static int copy(const once__records_t *records, const current_t *current)
{
    const uint8_t *id = current->frame.id;
    once__entry_t entry = current->entry;
    int code = once__log_copy(records->log, &current->frame, &current->record.head,
                              not_before(records, id, current), &entry.place);

    if (code == ONCE_OK) {
        once__index_set(records->index, id, current->cursor, 1, &entry);
    }
    return code;
}

/* Moves one record out of the segment, or lets it go if it may. */
static int carry_one(const once__records_t *records, once__place_t place, const uint8_t *id)
{
    static const once__entry_t gone = {{0, 0}, ONCE_STATE_NONE};
    current_t current;
    int code;

    code = load(records, id, &current);
    if (code != ONCE_OK || !current.found || current.entry.place.segment != place.segment ||
        current.entry.place.offset != place.offset) {
        return code;
    }
    if (may_go(records, &current.record.head)) {
        /* No older frame of it is anywhere: this is the oldest segment. So no frame need say that it is gone. */
        once__index_set(records->index, id, current.cursor, 1, &gone);
        return ONCE_OK;
    }
    if (current.record.head.schema > ONCE__SCHEMA) {
        return copy(records, &current);
    }
    return publish(records, id, &current, &current.record);
}

static int carry_entry(once__records_t *records, uint32_t shard, const once__shard_entry_t *entry)
{
    uint8_t id[ONCE_ID_SIZE];
    once__frame_t frame;
    int code = once__log_read(records->log, entry->entry.place, &frame);

    if (code == ONCE_OK) {
        memcpy(id, frame.id, sizeof(id));
        once__index_lock(records->index, id);
        code = carry_one(records, entry->entry.place, id);
        once__index_unlock(records->index, id);
    }
    if (code == ONCE_E_CORRUPT && is_held(entry->entry.state)) {
        code = once__records_lose(records, shard, entry);
    }
    return code;
}

static int carry_shard(once__records_t *records, uint32_t shard, uint32_t segment, int everything)
{
    once__shard_entry_t *entries;
    size_t count;
    int code = once__index_shard(records->index, shard, &entries, &count);

    for (size_t i = 0; code == ONCE_OK && i < count; i++) {
        if (entries[i].entry.place.segment == segment &&
            (everything || is_held(entries[i].entry.state))) {
            code = carry_entry(records, shard, &entries[i]);
        }
    }
    free(entries);
    return code;
}

/* Bytes that must be written to carry everything that counts. */
static int weigh(once__records_t *records, uint32_t segment, uint64_t *bytes)
{
    int code = ONCE_OK;

    *bytes = 0;
    for (uint32_t shard = 0; code == ONCE_OK && shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        code = once__index_shard(records->index, shard, &entries, &count);
        for (size_t i = 0; code == ONCE_OK && i < count; i++) {
            once__place_t place = entries[i].entry.place;
            once__record_t record;
            once__frame_t frame;
            if (place.segment != segment) {
                continue;
            }
            code = once__log_read(records->log, place, &frame);
            if (code == ONCE_E_CORRUPT && is_held(entries[i].entry.state)) {
                code = ONCE_OK; /* hardly anything is left of it */
            } else if (code == ONCE_OK && (decode(records, place, &frame, &record) != ONCE_OK ||
                                           !may_go(records, &record.head))) {
                *bytes += frame.len + ONCE__FRAME_HEADER;
            }
        }
        free(entries);
    }
    return code;
}

int once__records_carry(once__records_t *records, uint32_t segment, int everything)
{
    int code = ONCE_OK;

    /* Few records may still be most of the segment: those stay where they are, or they would be written again and again. */
    if (everything) {
        uint64_t bytes;
        code = weigh(records, segment, &bytes);
        if (code == ONCE_E_CORRUPT || /* what is completed and damaged goes when it expires */
            (code == ONCE_OK && bytes > once__index_segment(records->index, segment)->size / 2)) {
            code = ONCE_E_NOT_FOUND;
        }
    }
    for (uint32_t shard = 0; code == ONCE_OK && shard < ONCE__SHARDS; shard++) {
        code = carry_shard(records, shard, segment, everything);
    }
    if (code == ONCE_OK) {
        code = once__log_sync(records->log);
    }
    if (code == ONCE_OK) {
        atomic_store(&once__index_segment(records->index, segment)->held, 0);
        if (everything) {
            atomic_store(&once__index_segment(records->index, segment)->current, 0);
        }
    }
    return code;
}

/* Takes the record out of the index if it may go. 1: it went. Frames that stay behind say the same when they are read again. */
static int sweep_one(const once__records_t *records, const uint8_t *id)
{
    static const once__entry_t gone = {{0, 0}, ONCE_STATE_NONE};
    current_t current;
    int went;

    once__index_lock(records->index, id);
    went = load(records, id, &current) == ONCE_OK && current.found &&
           may_go(records, &current.record.head);
    if (went) {
        once__index_set(records->index, id, current.cursor, 1, &gone);
    }
    once__index_unlock(records->index, id);
    return went;
}

/* How many of the shard went. `seen` grows by those that were looked at. */
static uint64_t sweep_shard(once__records_t *records, uint32_t shard, uint64_t limit,
                            uint64_t *seen)
{
    once__shard_entry_t *entries;
    uint64_t went = 0;
    size_t count;

    if (once__index_shard(records->index, shard, &entries, &count) != ONCE_OK) {
        return 0;
    }
    for (size_t i = 0; i < count && (limit == 0 || went < limit); i++) {
        once__record_t record;
        uint8_t id[ONCE_ID_SIZE];
        if (read_entry(records, &entries[i].entry, &record) && may_go(records, &record.head)) {
            memcpy(id, record.id, sizeof(id));
            went += (uint64_t)sweep_one(records, id);
        }
    }
    *seen += count;
    free(entries);
    return went;
}

uint64_t once__records_sweep(once__records_t *records, uint64_t look, uint64_t limit)
{
    uint64_t went = 0, seen = 0;

    for (uint32_t i = 0; i < ONCE__SHARDS && (look == 0 || seen < look); i++) {
        went += sweep_shard(records, records->sweep_shard, limit == 0 ? 0 : limit - went, &seen);
        if (limit != 0 && went >= limit) {
            break;
        }
        records->sweep_shard = (records->sweep_shard + 1) % ONCE__SHARDS;
    }
    return went;
}

/* -------------------------------------------------------------------------------------------------------- all records */

/* The cursor: the shard (4 bytes), and the key after which to go on in it (8), if the last byte is set. */
static int scan_shard(once__records_t *records, once__op_t *op, uint32_t *shard, uint64_t *after,
                      int *inside)
{
    once__shard_entry_t *entries;
    size_t count;
    int code = once__index_shard(records->index, *shard, &entries, &count);
    size_t i = 0;

    if (code != ONCE_OK) {
        return code;
    }
    while (*inside && i < count && entries[i].key <= *after) {
        i++;
    }
    for (; i < count && op->count < op->limit; i++) {
        once__record_t record;
        *after = entries[i].key;
        *inside = 1;
        if (!see_entry(records, &entries[i].entry, &record, &op->damaged) ||
            !once__filter_passes(op->filter, &record, op->now)) {
            continue;
        }
        op->records[op->count] = once__record_clone(&record);
        if (op->records[op->count] == NULL) {
            code = ONCE_E_NOMEM;
            break;
        }
        op->count++;
    }
    if (code == ONCE_OK && i == count) {
        (*shard)++;
        *inside = 0;
    }
    free(entries);
    return code;
}

void once__records_scan(once__records_t *records, once__op_t *op)
{
    uint32_t shard;
    uint64_t after;
    int inside = op->cursor.bytes[12];

    memcpy(&shard, op->cursor.bytes, sizeof(shard));
    memcpy(&after, op->cursor.bytes + 4, sizeof(after));
    op->error = ONCE_OK;
    op->count = 0;
    op->damaged = 0;
    once__log_forget_readers(records->log);
    op->now = once__index_now(records->index);
    op->records = calloc(op->limit, sizeof(once__record_t *));
    if (op->records == NULL) {
        op->error = ONCE_E_NOMEM;
        return;
    }
    while (op->error == ONCE_OK && shard < ONCE__SHARDS && op->count < op->limit) {
        op->error = scan_shard(records, op, &shard, &after, &inside);
    }
    memcpy(op->cursor.bytes, &shard, sizeof(shard));
    memcpy(op->cursor.bytes + 4, &after, sizeof(after));
    op->cursor.bytes[12] = (uint8_t)inside;
    op->cursor.end = shard >= ONCE__SHARDS;
}

static uint64_t count_bytes(const once__records_t *records)
{
    uint64_t bytes = 0;

    for (uint32_t n = once__index_first_segment(records->index);
         n < once__index_end_segment(records->index); n++) {
        bytes += once__index_segment(records->index, n)->size;
    }
    return bytes;
}

void once__records_stats(once__records_t *records, once__op_t *op)
{
    op->error = ONCE_OK;
    op->now = once__index_now(records->index);
    memset(&op->stats, 0, sizeof(op->stats));
    once__log_forget_readers(records->log);
    for (uint32_t shard = 0; shard < ONCE__SHARDS; shard++) {
        once__shard_entry_t *entries;
        size_t count;
        op->error = once__index_shard(records->index, shard, &entries, &count);
        if (op->error != ONCE_OK) {
            return;
        }
        for (size_t i = 0; i < count; i++) {
            once__record_t record;
            if (see_entry(records, &entries[i].entry, &record, &op->stats.damaged)) {
                once__stats_add(&op->stats, &record, op->now);
            }
        }
        free(entries);
    }
    op->stats.bytes = count_bytes(records);
}
