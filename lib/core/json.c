#include "core/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <once/body.h>

#include "core/json_io.h"
#include "core/json_number.h"
#include "core/json_order.h"

/* Members of open objects that need no allocation. */
#define FEW_MEMBERS 48

/* An array or object that is open. */
typedef struct frame {
    uint32_t start; /* of its text: the bracket */
    uint32_t first; /* of its members on the stack */
    uint8_t object;
    uint8_t unordered; /* its members did not come in order */
} frame_t;

typedef struct job {
    once__json_io_t io;
    once__json_member_t *members; /* of all open objects */
    uint32_t member_count;
    uint32_t member_room;
    unsigned depth;
    frame_t frames[ONCE__JSON_DEPTH];
    once__json_member_t few[FEW_MEMBERS];
} job_t;

/* All functions from here on return a once__json_fault_t. Text offsets fit 32 bits: a document has at most 1 MiB, and 4 bytes
   of it (1e20) make at most 21 bytes of text, twice while an object is sorted. */
typedef once__json_fault_t fault_t;

/* -------------------------------------------------------------------------------------------------------------- memory */

static fault_t put_byte(job_t *job, char byte)
{
    return once__json_put(&job->io, &byte, 1);
}

static fault_t push_member(job_t *job)
{
    if (job->member_count == job->member_room) {
        uint32_t room = 2 * job->member_room;
        int moved = job->members != job->few;
        once__json_member_t *members =
            realloc(moved ? job->members : NULL, room * sizeof(*members));
        if (members == NULL) {
            return ONCE__JSON_MEMORY;
        }
        if (!moved) {
            memcpy(members, job->few, sizeof(job->few));
        }
        job->members = members;
        job->member_room = room;
    }
    job->member_count++;
    return ONCE__JSON_FINE;
}

/* ------------------------------------------------------------------------------------------------------------- scalars */

static fault_t put_number(job_t *job)
{
    char text[ONCE__NUMBER_SIZE];
    once__number_t number;
    size_t len =
        once__number_scan((const char *)job->io.at, (size_t)(job->io.end - job->io.at), &number);

    if (len == 0) {
        return ONCE__JSON_SYNTAX;
    }
    if (!once__number_lossless(&number)) {
        return ONCE__JSON_NUMBER;
    }
    job->io.at += len;
    return once__json_put(&job->io, text, once__number_write(&number, text));
}

static fault_t put_word(job_t *job, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(job->io.end - job->io.at) < len || memcmp(job->io.at, word, len) != 0) {
        return ONCE__JSON_SYNTAX;
    }
    job->io.at += len;
    return once__json_put(&job->io, word, len);
}

static fault_t put_scalar(job_t *job)
{
    switch (*job->io.at) {
    case '"':
        return once__json_put_string(&job->io);
    case 't':
        return put_word(job, "true");
    case 'f':
        return put_word(job, "false");
    case 'n':
        return put_word(job, "null");
    default:
        return put_number(job);
    }
}

/* ------------------------------------------------------------------------------------------------- arrays and objects */

/* The next character that is not white space; 0 at the end (a zero byte is never valid, so it can mean the end). */
static unsigned char peek(job_t *job)
{
    for (; job->io.at < job->io.end; job->io.at++) {
        unsigned char c = *job->io.at;
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            return c;
        }
    }
    return 0;
}

/* A name and its colon. */
static fault_t put_name(job_t *job, frame_t *frame)
{
    if (peek(job) != '"') {
        return ONCE__JSON_SYNTAX;
    }
    size_t start = job->io.len;
    fault_t fault = once__json_put_string(&job->io);
    if (fault == ONCE__JSON_FINE) {
        fault = push_member(job);
    }
    if (fault != ONCE__JSON_FINE) {
        return fault;
    }
    once__json_member_t *member = &job->members[job->member_count - 1];
    member->name = (uint32_t)start + 1;
    member->name_len = (uint32_t)(job->io.len - start - 2);
    member->escaped = memchr(job->io.text + member->name, '\\', member->name_len) != NULL;
    if (job->member_count - frame->first > 1 && !frame->unordered) {
        int order = once__json_name_compare(job->io.text, member - 1, member);
        if (order == 0) {
            return ONCE__JSON_DUPLICATE;
        }
        frame->unordered = order > 0;
    }
    if (peek(job) != ':') {
        return ONCE__JSON_SYNTAX;
    }
    job->io.at++;
    return put_byte(job, ':');
}

/* Rebuilds the text of an object with its members in order: first behind the text, then in its place. */
static fault_t reorder(job_t *job, const frame_t *frame)
{
    once__json_member_t *members = job->members + frame->first;
    size_t len = job->io.len - frame->start - 1;
    uint32_t i = once__json_sort(job->io.text, members, job->member_count - frame->first);

    if (i == ONCE__JSON_NO_MEMBER) {
        return ONCE__JSON_DUPLICATE;
    }
    fault_t fault = once__json_reserve(&job->io, len + 1);
    if (fault != ONCE__JSON_FINE) {
        return fault;
    }
    char *out = job->io.text + job->io.len;
    for (; i != ONCE__JSON_NO_MEMBER; i = members[i].next) {
        size_t size = members[i].end - members[i].name + 1;
        memcpy(out, job->io.text + members[i].name - 1, size);
        out[size] = ',';
        out += size + 1;
    }
    assert(out == job->io.text + job->io.len + len + 1);
    memcpy(job->io.text + frame->start + 1, job->io.text + job->io.len, len);
    return ONCE__JSON_FINE;
}

static fault_t close_frame(job_t *job)
{
    frame_t *frame = &job->frames[--job->depth];
    fault_t fault = ONCE__JSON_FINE;

    if (frame->unordered) {
        fault = reorder(job, frame);
    }
    job->member_count = frame->first;
    job->io.at++;
    return fault != ONCE__JSON_FINE ? fault : put_byte(job, frame->object ? '}' : ']');
}

/* Opens an array or object; `more` when its first value is to come, and not when it is empty. */
static fault_t open_frame(job_t *job, int *more)
{
    if (job->depth == ONCE__JSON_DEPTH) {
        return ONCE__JSON_NESTING;
    }
    frame_t *frame = &job->frames[job->depth++];
    frame->start = (uint32_t)job->io.len;
    frame->first = job->member_count;
    frame->object = *job->io.at == '{';
    frame->unordered = 0;
    fault_t fault = put_byte(job, (char)*job->io.at++);
    if (fault != ONCE__JSON_FINE) {
        return fault;
    }
    *more = peek(job) != (frame->object ? '}' : ']');
    if (!*more) {
        return close_frame(job);
    }
    return frame->object ? put_name(job, frame) : ONCE__JSON_FINE;
}

/* After a value: closes what ends here; `more` when another value is to come. */
static fault_t go_on(job_t *job, int *more)
{
    *more = 0;
    while (job->depth > 0) {
        frame_t *frame = &job->frames[job->depth - 1];
        unsigned char c = peek(job);
        fault_t fault;

        if (frame->object) {
            job->members[job->member_count - 1].end = (uint32_t)job->io.len;
        }
        if (c == ',') {
            *more = 1;
            job->io.at++;
            fault = put_byte(job, ',');
            return fault == ONCE__JSON_FINE && frame->object ? put_name(job, frame) : fault;
        }
        if (c != (frame->object ? '}' : ']')) {
            return ONCE__JSON_SYNTAX;
        }
        fault = close_frame(job);
        if (fault != ONCE__JSON_FINE) {
            return fault;
        }
    }
    return ONCE__JSON_FINE;
}

static fault_t put_document(job_t *job)
{
    int more = 1;

    while (more) {
        unsigned char c = peek(job);
        int opened = 0;
        fault_t fault;

        if (job->io.at == job->io.end) {
            return ONCE__JSON_SYNTAX;
        }
        fault = c == '{' || c == '[' ? open_frame(job, &opened) : put_scalar(job);
        if (fault == ONCE__JSON_FINE && !opened) {
            fault = go_on(job, &more);
        }
        if (fault != ONCE__JSON_FINE) {
            return fault;
        }
    }
    (void)peek(job);
    return job->io.at == job->io.end ? ONCE__JSON_FINE : ONCE__JSON_SYNTAX;
}

once__json_fault_t once__json_canonical(once_slice_t document, char **text, size_t *len)
{
    job_t job;

    *text = NULL;
    *len = 0;
    if (document.len > ONCE_BODY_JSON_MAX) {
        return ONCE__JSON_SIZE;
    }
    if (document.len == 0) {
        return ONCE__JSON_SYNTAX;
    }
    const unsigned char *start = document.data;
    job.io = (once__json_io_t){.at = start, .end = start + document.len};
    job.members = job.few;
    job.member_count = job.depth = 0;
    job.member_room = FEW_MEMBERS;

    fault_t fault = once__json_reserve(&job.io, 2 * document.len + ONCE__NUMBER_SIZE);
    if (fault == ONCE__JSON_FINE) {
        fault = put_document(&job);
    }
    if (job.members != job.few) {
        free(job.members);
    }
    if (fault != ONCE__JSON_FINE) {
        free(job.io.text);
        return fault;
    }
    *text = job.io.text;
    *len = job.io.len;
    return ONCE__JSON_FINE;
}
