/*
 * Records lie in pages that never move; a slot number names a place in them. The index is a hash table of slot numbers with
 * linear probing, at most half full. A record id is a keyed hash already, so its first bytes are the hash value. It is not a
 * once__hash_t because that takes 24 bytes for a record, and this 8 to 16.
 *
 * Slots give scanning its cursor: a record keeps its slot as long as it lives, so a scan that goes through the slots in order
 * shows nothing twice and misses nothing that stayed.
 */
#include "store/memory/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "core/audit.h"

#define AUDIT_MAX  ((size_t)64 << 20)
#define PAGE_SLOTS 1024u
#define NO_SLOT    UINT32_MAX
#define INDEX_MIN  1024u

typedef struct entry {
    once__record_t record; /* state NONE: the slot is free */
    char *key;             /* owned, like the next two */
    uint8_t *payload;
    uint8_t *texts; /* about and cause */
    uint32_t next_free;
} entry_t;

/*
 * What holds between operations (assert_table_state):
 *   I-1  every record has a slot, and every slot a page
 *   I-2  the index has as many places as a power of two, and at most half of them are taken
 *   I-3  free slots are some that were used
 *   I-4  without records nothing takes bytes
 *   I-5  no record is being written
 */
struct once__table {
    const once__rules_t *rules;
    once__limits_t limits;
    entry_t **pages;
    uint32_t page_count;
    size_t page_room;
    uint32_t used_slots; /* slots that were ever used */
    uint32_t free_slot;  /* list of free ones below used_slots */
    uint32_t *index;
    uint32_t index_size; /* power of two */
    uint64_t count, bytes;
    /* nothing can be reaped earlier: spares a full table the search */
    uint64_t none_expires_before;
    const entry_t *pinned; /* being written: not to be reaped now */
    char *secrets;
    uint8_t mark[ONCE__MARK_SIZE]; /* of these */
    once__buf_t audit;             /* lines; a place is an offset */
};

static void assert_table_state(const once__table_t *table)
{
    assert(table->count <= table->used_slots); /* I-1 */
    assert(table->used_slots <= table->page_count * PAGE_SLOTS);
    assert((table->index_size & (table->index_size - 1)) == 0); /* I-2 */
    assert(table->count <= table->index_size / 2);
    assert(table->free_slot == NO_SLOT || table->free_slot < table->used_slots); /* I-3 */
    assert(table->count > 0 || table->bytes == 0);                               /* I-4 */
    assert(table->pinned == NULL);                                               /* I-5 */
}

/* ------------------------------------------------------------------------------------------------------------ slots */

static entry_t *entry_at(const once__table_t *table, uint32_t slot)
{
    return &table->pages[slot / PAGE_SLOTS][slot % PAGE_SLOTS];
}

static int add_page(once__table_t *table)
{
    entry_t **pages = once__grow(table->pages, &table->page_room, (size_t)table->page_count + 1,
                                 sizeof(entry_t *), UINT32_MAX);

    if (pages == NULL) {
        return -1;
    }
    table->pages = pages;
    table->pages[table->page_count] = calloc(PAGE_SLOTS, sizeof(entry_t));
    if (table->pages[table->page_count] == NULL) {
        return -1;
    }
    table->page_count++;
    return 0;
}

static uint32_t take_slot(once__table_t *table)
{
    uint32_t slot = table->free_slot;

    if (slot != NO_SLOT) {
        table->free_slot = entry_at(table, slot)->next_free;
        return slot;
    }
    if (table->used_slots == table->page_count * PAGE_SLOTS && add_page(table) != 0) {
        return NO_SLOT;
    }
    return table->used_slots++;
}

static void give_slot(once__table_t *table, uint32_t slot)
{
    entry_t *entry = entry_at(table, slot);

    memset(entry, 0, sizeof(*entry));
    entry->next_free = table->free_slot;
    table->free_slot = slot;
}

/* ------------------------------------------------------------------------------------------------------------ index */

static uint32_t home(const once__table_t *table, const uint8_t *id)
{
    return once__get32(id) & (table->index_size - 1);
}

/* Where the id is in the index, or where it would go. */
static uint32_t probe(const once__table_t *table, const uint8_t *id)
{
    uint32_t i = home(table, id);

    while (table->index[i] != NO_SLOT &&
           memcmp(entry_at(table, table->index[i])->record.id, id, ONCE_ID_SIZE) != 0) {
        i = (i + 1) & (table->index_size - 1);
    }
    return i;
}

static int index_resize(once__table_t *table, uint32_t size)
{
    uint32_t *index = malloc(size * sizeof(uint32_t));

    if (index == NULL) {
        return -1;
    }
    memset(index, 0xff, size * sizeof(uint32_t));
    free(table->index);
    table->index = index;
    table->index_size = size;
    for (uint32_t slot = 0; slot < table->used_slots; slot++) {
        const once__record_t *record = &entry_at(table, slot)->record;
        if (record->head.state != ONCE_STATE_NONE) {
            table->index[probe(table, record->id)] = slot;
        }
    }
    return 0;
}

/* Removes place `hole` and moves later entries of the same run back, so that no probe ends too early. */
static void index_remove(once__table_t *table, uint32_t hole)
{
    uint32_t mask = table->index_size - 1;

    for (uint32_t i = (hole + 1) & mask; table->index[i] != NO_SLOT; i = (i + 1) & mask) {
        uint32_t want = home(table, entry_at(table, table->index[i])->record.id);
        if (((i - want) & mask) >= ((i - hole) & mask)) {
            table->index[hole] = table->index[i];
            hole = i;
        }
    }
    table->index[hole] = NO_SLOT;
}

/* ---------------------------------------------------------------------------------------------------------- records */

static entry_t *find(const once__table_t *table, const uint8_t *id)
{
    uint32_t slot = table->index[probe(table, id)];

    return slot == NO_SLOT ? NULL : entry_at(table, slot);
}

static uint64_t cost(const once__record_t *record)
{
    return sizeof(entry_t) + 2 * sizeof(uint32_t) + record->key_len + record->payload.len +
           record->about.len + record->cause.len;
}

/* Gives the record copies of these. 0, or -1: out of memory, and nothing is changed. */
static int set_texts(entry_t *entry, once_slice_t about, once_slice_t cause)
{
    uint8_t *texts = NULL;

    if (about.len > 0 || cause.len > 0) {
        texts = malloc(about.len + cause.len);
        if (texts == NULL) {
            return -1;
        }
    }
    if (about.len > 0) {
        memcpy(texts, about.data, about.len);
    }
    if (cause.len > 0) {
        memcpy(texts + about.len, cause.data, cause.len);
    }
    free(entry->texts);
    entry->texts = texts;
    entry->record.about = once__slice(texts, about.len);
    entry->record.cause = once__slice(cause.len > 0 ? texts + about.len : NULL, cause.len);
    return 0;
}

static void remove_record(once__table_t *table, const uint8_t *id)
{
    uint32_t place = probe(table, id);
    uint32_t slot = table->index[place];
    entry_t *entry;

    assert(slot != NO_SLOT);
    entry = entry_at(table, slot);
    assert(entry != table->pinned && table->bytes >= cost(&entry->record));
    table->bytes -= cost(&entry->record);
    table->count--;
    index_remove(table, place);
    free(entry->key);
    free(entry->payload);
    free(entry->texts);
    give_slot(table, slot);
}

static int is_reapable(const once__table_t *table, const once__record_t *record, uint64_t clock)
{
    static const once__event_t reap = {.kind = ONCE__REAP};
    once__step_t step;

    once__step(table->rules, &record->head, &reap, clock, &step);
    return step.outcome == ONCE_OUTCOME_DONE;
}

/* The earliest time at which the record could be reaped. */
static uint64_t reapable_from(const once__head_t *head)
{
    if (head->expires != 0) {
        return head->expires;
    }
    return head->lease_until > UINT64_MAX - head->ttl_ms ? UINT64_MAX
                                                         : head->lease_until + head->ttl_ms;
}

static uint64_t reap(once__table_t *table, uint64_t limit, uint64_t clock)
{
    uint64_t removed = 0, earliest = UINT64_MAX;

    if (clock < table->none_expires_before) {
        return 0;
    }
    for (uint32_t slot = 0; slot < table->used_slots; slot++) {
        const entry_t *entry = entry_at(table, slot);
        const once__record_t *record = &entry->record;
        if (record->head.state == ONCE_STATE_NONE) {
            continue;
        }
        if (entry == table->pinned) {
            earliest = clock; /* it may go as soon as it is not being written any more */
        } else if ((limit == 0 || removed < limit) && is_reapable(table, record, clock)) {
            uint8_t id[ONCE_ID_SIZE];
            memcpy(id, record->id, sizeof(id));
            remove_record(table, id);
            removed++;
        } else if (reapable_from(&record->head) > clock &&
                   reapable_from(&record->head) < earliest) {
            /* What stays although its time has come (hold) waits for an event, not for a time. */
            earliest = reapable_from(&record->head);
        }
    }
    table->none_expires_before = earliest;
    if (limit != 0 && removed == limit) {
        table->none_expires_before = 0;
    }
    return removed;
}

/* Room for one more record of this size? Makes some if it can. */
static int has_room(once__table_t *table, uint64_t records, uint64_t bytes, uint64_t clock)
{
    for (int try = 0; try < 2; try++) {
        if (table->count + records <= table->limits.max_records &&
            bytes <= table->limits.max_bytes && table->bytes <= table->limits.max_bytes - bytes) {
            return 1;
        }
        if (try == 0) {
            (void)reap(table, 0, clock);
        }
    }
    return 0;
}

static int insert(once__table_t *table, const once__op_t *op, const once__step_t *step)
{
    uint32_t slot;
    entry_t *entry, made;
    char *key = malloc(op->key_len + 1);

    memset(&made, 0, sizeof(made));
    if (key == NULL || set_texts(&made, op->about, op->cause) != 0 ||
        (table->count + 1 > table->index_size / 2 &&
         index_resize(table, table->index_size * 2) != 0)) {
        free(key);
        free(made.texts);
        return ONCE_E_NOMEM;
    }
    slot = take_slot(table);
    if (slot == NO_SLOT) {
        free(key);
        free(made.texts);
        return ONCE_E_NOMEM;
    }
    if (op->key_len > 0) {
        memcpy(key, op->key, op->key_len);
    }
    key[op->key_len] = '\0';
    entry = entry_at(table, slot);
    *entry = made;
    memcpy(entry->record.id, op->id, ONCE_ID_SIZE);
    memcpy(entry->record.scope_hash, op->scope_hash, ONCE_SCOPE_HASH_SIZE);
    entry->record.head = step->next;
    entry->record.key = entry->key = key;
    entry->record.key_len = op->key_len;
    table->index[probe(table, op->id)] = slot;
    table->count++;
    table->bytes += cost(&entry->record);
    return ONCE_OK;
}

static int update(once__table_t *table, entry_t *entry, const once__op_t *op,
                  const once__step_t *step)
{
    once__payload_t next = once__payload_after(step->rule, op, &entry->record.payload);
    once_slice_t about = once__about_after(step->rule, op, entry->record.about);
    uint8_t why[ONCE__WHY_MAX];
    once_slice_t cause = once__cause_after(why, step, op, &entry->record);
    uint64_t before = cost(&entry->record);
    once_slice_t key =
        once__key_after(step->rule, op, once__slice(entry->record.key, entry->record.key_len));
    int replaces = next.data != entry->record.payload.data;
    int renames = key.len != entry->record.key_len; /* erased, or there again */
    uint8_t *copy = NULL;
    char *name = NULL;

    if (replaces && next.len > 0) {
        copy = malloc(next.len);
        if (copy == NULL) {
            return ONCE_E_NOMEM;
        }
        memcpy(copy, next.data, next.len);
    }
    if (renames) {
        name = malloc(key.len + 1);
    }
    if ((renames && name == NULL) ||
        ((about.data != entry->record.about.data || cause.data != entry->record.cause.data) &&
         set_texts(entry, about, cause) != 0)) {
        free(name);
        free(copy);
        return ONCE_E_NOMEM;
    }
    if (renames) {
        memcpy(name, key.len > 0 ? key.data : "", key.len);
        name[key.len] = '\0';
        free(entry->key);
        entry->record.key = entry->key = name;
        entry->record.key_len = key.len;
    }
    if (replaces) {
        free(entry->payload);
        next.data = entry->payload = copy;
    }
    entry->record.payload = next;
    entry->record.head = step->next;
    table->bytes += cost(&entry->record);
    table->bytes -= before;
    return ONCE_OK;
}

/* ------------------------------------------------------------------------------------------------------- operations */

static int write_step(once__table_t *table, entry_t *entry, const once__op_t *op,
                      const once__step_t *step, uint64_t clock)
{
    int is_new = entry == NULL || entry->record.head.state == ONCE_STATE_NONE;

    if (step->next.state == ONCE_STATE_NONE) {
        remove_record(table, op->id);
        return ONCE_OK;
    }
    if (is_new) {
        once__record_t made = {.key_len = op->key_len, .about = op->about, .cause = op->cause};
        return has_room(table, 1, cost(&made), clock) ? insert(table, op, step) : ONCE_E_FULL;
    }
    if ((step->rule->effects & ONCE__E_PAYLOAD) && op->payload.len > entry->record.payload.len) {
        int room;
        table->pinned = entry;
        room = has_room(table, 0, op->payload.len - entry->record.payload.len, clock);
        table->pinned = NULL;
        if (!room) {
            return ONCE_E_FULL;
        }
    }
    return update(table, entry, op, step);
}

static void answer_record(once__op_t *op, const once__record_t *record)
{
    op->head = record->head;
    if (op->kind == ONCE__OP_GET || record->payload.kind != ONCE__PAYLOAD_NONE) {
        op->record = once__record_clone(record);
        /* A change that was made is answered even without its copy: lost replies are repeated, and this is one. */
        if (op->record == NULL) {
            op->error = ONCE_E_NOREPLY;
        }
    }
}

static void apply_event(once__table_t *table, once__op_t *op, uint64_t clock)
{
    entry_t *entry = find(table, op->id);
    once__step_t step;

    once__step(table->rules, entry != NULL ? &entry->record.head : NULL, &op->event, clock, &step);
    if (entry != NULL && step.changed && step.next.claim.epoch == 1 &&
        step.rule->effects & ONCE__E_GRANT) {
        /* The old record was expired: the new one has nothing of it. */
        remove_record(table, op->id);
        entry = NULL;
    }
    op->outcome = step.outcome;
    op->now = step.now;
    op->head = step.next;
    if (step.changed) {
        op->error = write_step(table, entry, op, &step, clock);
        if (op->error != ONCE_OK) {
            return;
        }
        entry = find(table, op->id);
    }
    if (reapable_from(&step.next) < table->none_expires_before) {
        table->none_expires_before = reapable_from(&step.next);
    }
    /* A completion's own response need not be sent back. */
    if (entry != NULL && op->outcome != ONCE_OUTCOME_DONE && step.next.state != ONCE_STATE_NONE) {
        answer_record(op, &entry->record);
    }
}

static void apply_get(const once__table_t *table, once__op_t *op, uint64_t clock)
{
    static const once_filter_t all = ONCE_FILTER_INIT;
    const entry_t *entry = find(table, op->id);

    op->now = clock;
    if (entry == NULL || !once__filter_passes(&all, &entry->record, clock)) {
        op->error = ONCE_E_NOT_FOUND;
        return;
    }
    answer_record(op, &entry->record);
}

static void apply_scan(const once__table_t *table, once__op_t *op, uint64_t clock)
{
    uint64_t slot = once__get64(op->cursor.bytes), begin = slot;
    uint64_t end =
        op->looks != 0 && table->used_slots > op->looks && slot < table->used_slots - op->looks
            ? slot + op->looks
            : table->used_slots;

    op->now = clock;
    op->records = calloc(op->limit, sizeof(once__record_t *));
    if (op->records == NULL) {
        op->error = ONCE_E_NOMEM;
        return;
    }
    for (; slot < end && op->count < op->limit; slot++) {
        const once__record_t *record = &entry_at(table, (uint32_t)slot)->record;
        if (!once__filter_passes(op->filter, record, clock)) {
            continue;
        }
        op->records[op->count] = once__record_clone(record);
        if (op->records[op->count] == NULL) {
            op->error = ONCE_E_NOMEM;
            return;
        }
        op->count++;
    }
    op->looks = op->looks != 0 && slot > begin ? slot - begin : op->looks;
    once__put64(op->cursor.bytes, slot);
    op->cursor.end = slot >= table->used_slots;
}

static void apply_stats(const once__table_t *table, once__op_t *op, uint64_t clock)
{
    op->now = clock;
    memset(&op->stats, 0, sizeof(op->stats));
    for (uint32_t slot = 0; slot < table->used_slots; slot++) {
        const once__record_t *record = &entry_at(table, slot)->record;
        if (record->head.state != ONCE_STATE_NONE) {
            once__stats_add(&op->stats, record, clock);
        }
    }
    op->stats.bytes = table->bytes;
    op->stats.max_records = table->limits.max_records;
    op->stats.max_bytes = table->limits.max_bytes;
}

/* A swap that finds its own text was applied before: its reply was lost. */
static int may_replace(const once__table_t *table, const once__op_t *op)
{
    if (op->kind == ONCE__OP_SECRETS_LOAD) {
        return table->secrets == NULL;
    }
    return table->secrets != NULL && strcmp(table->secrets, op->secrets_old) == 0;
}

static void apply_secrets(once__table_t *table, once__op_t *op)
{
    if (may_replace(table, op)) {
        char *copy = strdup(op->secrets_new);
        if (copy == NULL) {
            op->error = ONCE_E_NOMEM;
            return;
        }
        free(table->secrets);
        table->secrets = copy;
        if (op->mark != NULL) {
            memcpy(table->mark, op->mark, ONCE__MARK_SIZE);
        }
    } else if (op->kind == ONCE__OP_SECRETS_SWAP &&
               (table->secrets == NULL || strcmp(table->secrets, op->secrets_new) != 0)) {
        op->error = ONCE_E_CONFLICT;
        return;
    }
    memcpy(op->secrets, table->secrets, strlen(table->secrets) + 1);
}

static void add_audit(once__table_t *table, once__op_t *op)
{
    once__buf_t *audit = &table->audit;

    if (op->place != audit->len) {
        op->error = ONCE_E_CONFLICT;
    } else if (once__buf_reserve(audit, op->payload.len + 1) == NULL) {
        op->error = audit->error == ONCE_E_TOO_BIG ? ONCE_E_FULL : audit->error;
        audit->error = ONCE_OK; /* what is there can still be read */
    } else {
        (void)once__buf_add(audit, op->payload.data, op->payload.len);
        (void)once__buf_add(audit, "\n", 1);
        op->end = audit->len;
    }
}

static void read_audit(const once__table_t *table, once__op_t *op)
{
    const once__buf_t *audit = &table->audit;
    size_t len, from = op->place < audit->len ? (size_t)op->place : audit->len;

    if (op->place == UINT64_MAX) {
        from = once__audit_last_line(audit->data, audit->len);
    }
    op->end = from;
    len = audit->len - from < ONCE__AUDIT_STEP ? audit->len - from : ONCE__AUDIT_STEP;
    if (len == 0) {
        return;
    }
    len = once__audit_whole_lines(audit->data + from, len);
    op->lines = malloc(len);
    if (op->lines == NULL) {
        op->error = ONCE_E_NOMEM;
        return;
    }
    memcpy(op->lines, audit->data + from, len);
    op->count = len;
    op->end = from + len;
}

void once__table_apply(once__table_t *table, once__op_t *op, uint64_t clock)
{
    assert_table_state(table);
    op->error = ONCE_OK;
    op->outcome = ONCE_OUTCOME_NONE;
    op->record = NULL;
    op->records = NULL;
    op->lines = NULL;
    op->count = 0;
    memset(&op->head, 0, sizeof(op->head));
    switch (op->kind) {
    case ONCE__OP_EVENT:
        if (op->mark != NULL && memcmp(op->mark, table->mark, ONCE__MARK_SIZE) != 0) {
            op->error = ONCE_E_SECRET;
            break;
        }
        apply_event(table, op, clock);
        break;
    case ONCE__OP_GET:
        apply_get(table, op, clock);
        break;
    case ONCE__OP_SCAN:
        apply_scan(table, op, clock);
        break;
    case ONCE__OP_REAP:
        op->now = clock;
        op->count = reap(table, op->limit, clock);
        break;
    case ONCE__OP_STATS:
        apply_stats(table, op, clock);
        break;
    case ONCE__OP_SECRETS_LOAD:
    case ONCE__OP_SECRETS_SWAP:
        apply_secrets(table, op);
        break;
    case ONCE__OP_AUDIT_READ:
        read_audit(table, op);
        break;
    case ONCE__OP_AUDIT_ADD:
        add_audit(table, op);
        break;
    }
    assert_table_state(table);
}

void once__table_usage(const once__table_t *table, once_usage_t *usage)
{
    *usage = (once_usage_t){.records = table->count,
                            .max_records = table->limits.max_records,
                            .bytes = table->bytes,
                            .max_bytes = table->limits.max_bytes};
}

const once__record_t *once__table_peek(const once__table_t *table, const uint8_t id[ONCE_ID_SIZE])
{
    const entry_t *entry = find(table, id);

    return entry != NULL ? &entry->record : NULL;
}

once__table_t *once__table_new(const once__rules_t *rules, const once__limits_t *limits)
{
    once__table_t *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        return NULL;
    }
    table->rules = rules;
    table->limits = *limits;
    table->free_slot = NO_SLOT;
    table->audit = (once__buf_t)ONCE__BUF(AUDIT_MAX);
    if (index_resize(table, INDEX_MIN) != 0) {
        free(table);
        return NULL;
    }
    return table;
}

void once__table_free(once__table_t *table)
{
    if (table == NULL) {
        return;
    }
    for (uint32_t slot = 0; slot < table->used_slots; slot++) {
        free(entry_at(table, slot)->key);
        free(entry_at(table, slot)->payload);
        free(entry_at(table, slot)->texts);
    }
    for (uint32_t page = 0; page < table->page_count; page++) {
        free(table->pages[page]);
    }
    if (table->secrets != NULL) {
        OPENSSL_cleanse(table->secrets, strlen(table->secrets));
    }
    free(table->secrets);
    once__buf_free(&table->audit);
    free(table->pages);
    free(table->index);
    free(table);
}
