/*
 * Reading the audit trail: all of it from the beginning, or backwards in steps.
 *
 * A store gives the lines behind a place. A step goes back from where the one before it began by about as much as a hundred entries
 * take, and reads from there to that end. If that is in the middle of a line, the line is left for the next step.
 */
#include <stdlib.h>
#include <string.h>

#include <once/experimental.h>

#include "api/audit.h"
#include "base/bytes.h"

#define STEP_BYTES 32768 /* of a step back: about a hundred entries */
#define STEP_LINES 100
#define PLACE_MAX                                                                                  \
    UINT64_C(10000000000000) /* a cursor may have been with a client; Lua writes no more digits */

/* A cursor is the place at which a step ends, one more so that it is never zero, and the hash that its last entry must have. */
#define CURSOR_PLACE 8
_Static_assert(CURSOR_PLACE + ONCE__SHA256_SIZE == ONCE_CURSOR_SIZE, "a cursor has both");

typedef struct trail {
    once__job_t job;
    once_audit_cb each;
    void *each_data;
    once__audit_link_t last; /* that was read */
    uint64_t shown;
    /* Of a step. */
    once_page_t *page; /* the caller's; NULL: the whole trail is read */
    once__audit_unit_t unit;
    int is_end_known;
    int is_partial; /* what comes first is the rest of a line */
    int is_stopped; /* by `each` */
    uint64_t end;   /* the place that the step ends at */
    uint64_t from;  /* and at which it begins, until a line is shown: then that of the first one */
    uint64_t at;    /* the place of the next line */
    uint8_t first[ONCE__SHA256_SIZE]; /* what the first entry says of the one before it */
} trail_t;

const char *once_audit_fault_name(once_audit_fault_t fault)
{
    static const char *const names[] = {"fine", "unreadable", "changed", "missing", "replaced"};

    return (size_t)fault < sizeof(names) / sizeof(names[0]) ? names[fault] : "unknown";
}

static once_audit_fault_t judge(const trail_t *trail, const once__audit_link_t *link,
                                once_slice_t json)
{
    if (!once__audit_is_whole(link, json)) {
        return ONCE_AUDIT_CHANGED;
    }
    if (trail->page != NULL && trail->shown == 0 && trail->at > 0) {
        return ONCE_AUDIT_FINE; /* the entry before it is for the next step */
    }
    if (link->number != trail->last.number + 1) {
        return ONCE_AUDIT_MISSING;
    }
    return once__equal(link->prev, trail->last.hash, ONCE__SHA256_SIZE) ? ONCE_AUDIT_FINE
                                                                        : ONCE_AUDIT_REPLACED;
}

/* The last entry of a step is the one that the first of the step before was written after. */
static int is_expected(const trail_t *trail, uint64_t next, const once__audit_link_t *link)
{
    static const uint8_t none[ONCE__SHA256_SIZE];
    const uint8_t *hash = trail->page != NULL ? trail->page->cursor + CURSOR_PLACE : none;

    return trail->page == NULL || next != trail->end || memcmp(hash, none, sizeof(none)) == 0 ||
           once__equal(hash, link->hash, ONCE__SHA256_SIZE);
}

static uint64_t place_behind(const trail_t *trail, size_t len, const once__audit_link_t *link)
{
    return trail->unit == ONCE__AUDIT_BYTES   ? trail->at + len + 1
           : trail->unit == ONCE__AUDIT_LINES ? trail->at + 1
                                              : link->number;
}

/* Returns whether to go on. */
static int show_line(trail_t *trail, const char *line, size_t len)
{
    once_t *once = trail->job.once;
    once__audit_link_t link = trail->last;
    once_audit_entry_t entry = {.fault = ONCE_AUDIT_UNREADABLE};
    uint64_t next;

    if (once__audit_follow(line, len, &link, &entry.json) == 0) {
        entry.number = link.number;
        entry.fault = judge(trail, &link, entry.json);
    }
    next = place_behind(trail, len, &link);
    if (trail->page != NULL && trail->unit == ONCE__AUDIT_NUMBERS && next > trail->end) {
        return 0; /* it is of the step before */
    }
    if (entry.fault == ONCE_AUDIT_FINE && !is_expected(trail, next, &link)) {
        entry.fault = ONCE_AUDIT_REPLACED;
    }
    if (trail->shown == 0) {
        trail->from = trail->unit == ONCE__AUDIT_NUMBERS && trail->at > 0 ? next - 1 : trail->at;
        memcpy(trail->first, link.prev, sizeof(trail->first));
    }
    entry.hash = link.hash;
    once->callbacks++;
    once->depth++;
    trail->is_stopped = trail->each(once, &entry, trail->each_data) != 0;
    once->depth--;
    trail->last = link;
    trail->at = next;
    trail->shown++;
    return !trail->is_stopped && (trail->page == NULL || next < trail->end);
}

/* Returns whether to go on. */
static int show_lines(trail_t *trail)
{
    const once__op_t *op = &trail->job.op;
    int more = !trail->job.delivered;

    for (size_t from = 0; more && from < op->count;) {
        const char *line = op->lines + from;
        const char *end = memchr(line, '\n', op->count - from);
        size_t len = end != NULL ? (size_t)(end - line) : op->count - from;
        if (trail->is_partial) {
            trail->is_partial = 0;
            trail->at += len + 1;
            more = trail->at < trail->end;
        } else {
            more = show_line(trail, line, len);
        }
        from += len + 1;
    }
    return more && op->count > 0;
}

/* The end is known: where does the step begin? */
static void begin_step(trail_t *trail)
{
    uint64_t back = trail->unit == ONCE__AUDIT_BYTES ? STEP_BYTES : STEP_LINES;

    trail->is_end_known = 1;
    trail->from = trail->at = trail->end > back ? trail->end - back : 0;
    trail->is_partial = trail->unit == ONCE__AUDIT_BYTES && trail->from > 0;
    trail->job.op.place = trail->from;
}

static void end_step(trail_t *trail)
{
    once_page_t *page = trail->page;

    page->looked = trail->shown;
    if (trail->is_stopped) {
        return;
    }
    page->end = trail->from == 0;
    memset(page->cursor, 0, sizeof(page->cursor));
    once__put64(page->cursor, trail->from + 1);
    memcpy(page->cursor + CURSOR_PLACE, trail->first, sizeof(trail->first));
}

static void trail_reply(once__job_t *job)
{
    trail_t *trail = (trail_t *)job;
    int more;

    if (job->op.error != ONCE_OK) {
        once__job_reply_plain(job);
        return;
    }
    if (trail->page != NULL && !trail->is_end_known) {
        trail->end = job->op.end;
        more = trail->end > 0;
        begin_step(trail);
    } else {
        more = show_lines(trail);
        job->op.place = job->op.end;
    }
    once__audit_forget_lines(&job->op);
    if (more) {
        once__job_well_again(job);
        once__job_submit(job);
        return;
    }
    if (trail->page != NULL && !job->delivered) { /* it is the caller's until then */
        end_step(trail);
    }
    job->answer.count = trail->shown;
    once__job_deliver(job, ONCE_OK, ONCE_OUTCOME_DONE);
    once__job_end(job);
}

static void trail_ended(once__job_t *job)
{
    once__audit_forget_lines(&job->op);
}

static int read_trail(once_t *once, once_page_t *page, once_audit_cb each, once_cb done, void *data)
{
    trail_t *trail;
    int code = once__enter(once);

    if (code != ONCE_OK) {
        return code;
    }
    trail = each != NULL ? (trail_t *)once__job_new(once, sizeof(*trail), done, data) : NULL;
    if (trail == NULL) {
        code = each == NULL ? ONCE_E_INVALID : once__no_job(once);
    } else {
        trail->each = each;
        trail->each_data = data;
        trail->unit = once->store->vt->audit_unit;
        trail->job.reply = trail_reply;
        trail->job.ended = trail_ended;
        trail->job.op.kind = ONCE__OP_AUDIT_READ;
        trail->page = page;
        if (page != NULL && once__get64(page->cursor) > 0) {
            trail->end = once__get64(page->cursor) - 1;
            trail->end = trail->end < PLACE_MAX ? trail->end : PLACE_MAX;
            begin_step(trail);
        } else if (page != NULL) {
            trail->job.op.place = UINT64_MAX;
        }
        once__job_submit(&trail->job);
    }
    once__leave(once);
    return code;
}

int once_audit_scan(once_t *once, once_audit_cb each, once_cb done, void *data)
{
    return read_trail(once, NULL, each, done, data);
}

int once_audit_page(once_t *once, once_page_t *page, once_audit_cb each, once_cb done, void *data)
{
    return page != NULL ? read_trail(once, page, each, done, data) : ONCE_E_INVALID;
}
