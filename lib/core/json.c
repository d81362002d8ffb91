#include "core/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <once/body.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/text.h"
#include "core/json_number.h"

#define FEW_MEMBERS 48 /* of open objects that need no allocation */
#define NO_MEMBER   0x7fffffffu

/* The document that is read, and the text that is written. */
typedef struct io {
    const unsigned char *at; /* the document */
    const unsigned char *end;
    char *text; /* grows */
    size_t len;
    size_t room;
} io_t;

/* A member in canonical text, by offsets. */
typedef struct member {
    uint32_t name; /* its first byte, after the quote */
    uint32_t name_len;
    uint32_t end;         /* the first byte after the value */
    uint32_t next : 31;   /* in order; set by sort_members */
    uint32_t escaped : 1; /* the name has a backslash */
} member_t;

/* An array or object that is open. */
typedef struct frame {
    uint32_t start; /* of its text: the bracket */
    uint32_t first; /* of its members on the stack */
    uint8_t object;
    uint8_t unordered; /* its members did not come in order */
} frame_t;

typedef struct job {
    io_t io;
    member_t *members; /* of all open objects */
    uint32_t member_count;
    size_t member_room;
    unsigned depth;
    frame_t frames[ONCE__JSON_DEPTH];
    member_t few[FEW_MEMBERS];
} job_t;

/* All functions from here on return a fault. Text offsets fit 32 bits: a document has at most 1 MiB, and 4 bytes
   of it (1e20) make at most 21 bytes of text, twice while an object is sorted. */
typedef once__json_fault_t fault_t;

/* --------------------------------------------------------------------------------------------------------- strings */

/* Makes room for `more` bytes. */
static fault_t reserve(io_t *io, size_t more)
{
    if (io->room - io->len >= more) {
        return ONCE__JSON_FINE;
    }
    char *text = once__grow(io->text, &io->room, io->len + more, 1, UINT32_MAX);
    if (text == NULL) {
        return ONCE__JSON_MEMORY;
    }
    io->text = text;
    return ONCE__JSON_FINE;
}

static fault_t put(io_t *io, const void *data, size_t len)
{
    fault_t fault = reserve(io, len);

    if (fault == ONCE__JSON_FINE) {
        memcpy(io->text + io->len, data, len);
        io->len += len;
    }
    return fault;
}

static size_t utf8_write(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Writes a character that the document escaped, in the only form that RFC 8785 allows. */
static fault_t put_character(io_t *io, uint32_t code)
{
    int escaped = code < 0x20 || code == '"' || code == '\\';
    char out[6];
    size_t len = escaped ? once__json_escape(out, (char)code) : utf8_write(out, code);

    return put(io, out, len);
}

/* Reads "\uXXXX"; returns -1 if it is malformed. */
static int32_t read_unit(io_t *io)
{
    const unsigned char *p = io->at;
    int32_t unit = 0;

    if (io->end - p < 6 || p[0] != '\\' || p[1] != 'u') {
        return -1;
    }
    for (int i = 2; i < 6; i++) {
        int digit = once__hex_digit((char)p[i]);
        if (digit < 0) {
            return -1;
        }
        unit = unit << 4 | digit;
    }
    io->at += 6;
    return unit;
}

static fault_t put_long_escape(io_t *io)
{
    int32_t unit = read_unit(io);

    if (unit < 0) {
        return ONCE__JSON_SYNTAX;
    }
    if (unit < 0xd800 || unit > 0xdfff) {
        return put_character(io, (uint32_t)unit);
    }
    int32_t low = unit < 0xdc00 ? read_unit(io) : -1;
    if (low < 0xdc00 || low > 0xdfff) {
        return ONCE__JSON_SURROGATE;
    }
    return put_character(io,
                         0x10000u + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
}

static fault_t put_escape(io_t *io)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";

    if (io->end - io->at < 2) {
        return ONCE__JSON_SYNTAX;
    }
    if (io->at[1] == 'u') {
        return put_long_escape(io);
    }
    const char *letter = memchr(letters, io->at[1], sizeof(letters) - 1);
    if (letter == NULL) {
        return ONCE__JSON_SYNTAX;
    }
    io->at += 2;
    return put_character(io, (uint32_t)values[letter - letters]);
}

/* Characters that need no escape, from `p` on. */
static const unsigned char *skip_plain(const unsigned char *p, const unsigned char *end)
{
    while (p < end && *p >= 0x20 && *p != '"' && *p != '\\') {
        size_t len = *p < 0x80 ? 1 : once__utf8_len(p, (size_t)(end - p));
        if (len == 0) {
            break;
        }
        p += len;
    }
    return p;
}

/* Reads the string at io->at (its opening quote) and writes it in canonical form, with its quotes. */
static fault_t put_string(io_t *io)
{
    const unsigned char *start = io->at++; /* the first run is copied with the quote */

    for (;;) {
        const unsigned char *stop = skip_plain(io->at, io->end);
        int quote = stop < io->end && *stop == '"';
        fault_t fault = put(io, start, (size_t)(stop - start) + (unsigned)quote);
        if (fault != ONCE__JSON_FINE) {
            return fault;
        }
        io->at = stop + quote;
        if (quote) {
            return ONCE__JSON_FINE;
        }
        if (stop == io->end || *stop < 0x20) {
            return ONCE__JSON_SYNTAX;
        }
        if (*stop != '\\') {
            return ONCE__JSON_UTF8;
        }
        fault = put_escape(io);
        if (fault != ONCE__JSON_FINE) {
            return fault;
        }
        start = io->at;
    }
}

/* ---------------------------------------------------------------------------------------------- the order of names */

/*
 * Byte order of UTF-8 is the order of code points. UTF-16 differs from it in one place: characters beyond U+FFFF (first byte
 * f0 to f4) are surrogates there, which come before U+E000 to U+FFFF (first byte ee or ef).
 */
static int weight(unsigned char byte)
{
    if (byte >= 0xf0) {
        return byte - 2;
    }
    return byte >= 0xee ? byte + 5 : byte;
}

static unsigned char short_escape(char letter)
{
    switch (letter) {
    case 'b':
        return '\b';
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'f':
        return '\f';
    case 'r':
        return '\r';
    default:
        return (unsigned char)letter; /* " and \ */
    }
}

/* The next byte of a name's canonical text with escapes undone. The only long ones there are \u0000 to \u001f. */
static unsigned char next_byte(const char **at)
{
    const char *p = *at;

    if (p[0] != '\\') {
        *at = p + 1;
        return (unsigned char)p[0];
    }
    if (p[1] != 'u') {
        *at = p + 2;
        return short_escape(p[1]);
    }
    int high = once__hex_digit(p[4]), low = once__hex_digit(p[5]);
    assert(high >= 0 && low >= 0); /* we have written them */
    *at = p + 6;
    return (unsigned char)(high << 4 | low);
}

static int compare_escaped(const char *a, const char *a_end, const char *b, const char *b_end)
{
    while (a < a_end && b < b_end) {
        int difference = weight(next_byte(&a)) - weight(next_byte(&b));
        if (difference != 0) {
            return difference;
        }
    }
    return (a < a_end) - (b < b_end);
}

/* < 0, 0, > 0. Names are in canonical text: 0 means the same name. */
static int compare_names(const char *text, const member_t *a, const member_t *b)
{
    const char *x = text + a->name, *y = text + b->name;
    size_t shorter = a->name_len < b->name_len ? a->name_len : b->name_len;

    if (a->escaped || b->escaped) {
        return compare_escaped(x, x + a->name_len, y, y + b->name_len);
    }
    for (size_t i = 0; i < shorter; i++) {
        if (x[i] != y[i]) {
            return weight((unsigned char)x[i]) - weight((unsigned char)y[i]);
        }
    }
    return (a->name_len > shorter) - (b->name_len > shorter);
}

typedef struct sorter {
    const char *text;
    member_t *members;
    int duplicate;
} sorter_t;

static int compare(sorter_t *sorter, uint32_t a, uint32_t b)
{
    int order = compare_names(sorter->text, &sorter->members[a], &sorter->members[b]);

    /* Two equal names are neighbours in the end, and no sort can place neighbours without comparing them. */
    sorter->duplicate |= order == 0;
    return order;
}

/* Merges two lists, neither empty. */
static uint32_t merge(sorter_t *sorter, uint32_t a, uint32_t b)
{
    member_t *members = sorter->members;
    member_t head = {.next = NO_MEMBER}, *last = &head;

    while (a != NO_MEMBER && b != NO_MEMBER) {
        uint32_t *from = compare(sorter, a, b) <= 0 ? &a : &b;
        last->next = *from;
        last = &members[*from];
        *from = last->next;
    }
    last->next = a != NO_MEMBER ? a : b;
    return head.next;
}

/* Links the members from `first` on that are in order already; returns the index after them. */
static uint32_t link_run(sorter_t *sorter, uint32_t first, uint32_t count)
{
    member_t *members = sorter->members;
    uint32_t i = first;

    for (; i + 1 < count && compare(sorter, i, i + 1) < 0; i++) {
        members[i].next = i + 1;
    }
    members[i].next = NO_MEMBER;
    return i + 1;
}

/*
 * Links `count` (1 or more) members in order; returns the index of the first, NO_MEMBER when two have the same name. Merge sort:
 * O(count log count) comparisons in any order, `count` if they are already sorted.
 */
static uint32_t sort_members(const char *text, member_t *members, size_t count)
{
    sorter_t sorter = {text, members, 0};
    uint32_t lists[32]; /* lists[i] is empty or merged from 2^i runs */
    unsigned used = 0;

    assert(count > 0 && count < NO_MEMBER);
    for (uint32_t at = 0; at < count;) {
        uint32_t list = at;
        unsigned i = 0;
        at = link_run(&sorter, at, (uint32_t)count);
        for (; i < used && lists[i] != NO_MEMBER; i++) {
            list = merge(&sorter, lists[i], list);
            lists[i] = NO_MEMBER;
        }
        if (i == used) {
            used++;
        }
        lists[i] = list;
    }
    uint32_t all = NO_MEMBER;
    for (unsigned i = 0; i < used; i++) {
        if (lists[i] != NO_MEMBER) {
            all = all == NO_MEMBER ? lists[i] : merge(&sorter, lists[i], all);
        }
    }
    return sorter.duplicate ? NO_MEMBER : all;
}

/* --------------------------------------------------------------------------------------------------------- members */

static fault_t put_byte(job_t *job, char byte)
{
    return put(&job->io, &byte, 1);
}

static fault_t push_member(job_t *job)
{
    if (job->member_count == job->member_room) {
        int moved = job->members != job->few;
        member_t *members = once__grow(moved ? job->members : NULL, &job->member_room,
                                       job->member_count + 1, sizeof(*members), NO_MEMBER);
        if (members == NULL) {
            return ONCE__JSON_MEMORY;
        }
        if (!moved) {
            memcpy(members, job->few, sizeof(job->few));
        }
        job->members = members;
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
    return put(&job->io, text, once__number_write(&number, text));
}

static fault_t put_word(job_t *job, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(job->io.end - job->io.at) < len || memcmp(job->io.at, word, len) != 0) {
        return ONCE__JSON_SYNTAX;
    }
    job->io.at += len;
    return put(&job->io, word, len);
}

static fault_t put_scalar(job_t *job)
{
    switch (*job->io.at) {
    case '"':
        return put_string(&job->io);
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
    fault_t fault = put_string(&job->io);
    if (fault == ONCE__JSON_FINE) {
        fault = push_member(job);
    }
    if (fault != ONCE__JSON_FINE) {
        return fault;
    }
    member_t *member = &job->members[job->member_count - 1];
    member->name = (uint32_t)start + 1;
    member->name_len = (uint32_t)(job->io.len - start - 2);
    member->escaped = memchr(job->io.text + member->name, '\\', member->name_len) != NULL;
    if (job->member_count - frame->first > 1 && !frame->unordered) {
        int order = compare_names(job->io.text, member - 1, member);
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
    member_t *members = job->members + frame->first;
    size_t len = job->io.len - frame->start - 1;
    uint32_t i = sort_members(job->io.text, members, job->member_count - frame->first);

    if (i == NO_MEMBER) {
        return ONCE__JSON_DUPLICATE;
    }
    fault_t fault = reserve(&job->io, len + 1);
    if (fault != ONCE__JSON_FINE) {
        return fault;
    }
    char *out = job->io.text + job->io.len;
    for (; i != NO_MEMBER; i = members[i].next) {
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
    job.io = (io_t){.at = start, .end = start + document.len};
    job.members = job.few;
    job.member_count = job.depth = 0;
    job.member_room = FEW_MEMBERS;

    fault_t fault = reserve(&job.io, 2 * document.len + ONCE__NUMBER_SIZE);
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
