/*
 * A JSON pointer, followed while a document streams. The document is read as
 * RFC 8259 has it: what is not valid has no value, because a backend that is
 * less strict might see another one.
 */
#include "ngx_http_once_seek.h"

#include <string.h>


enum {
    ONCE_SEEK_VALUE = 0,       /* a value must follow */
    ONCE_SEEK_FIRST_VALUE,     /* a value, or the end of the array */
    ONCE_SEEK_NAME,            /* a name must follow */
    ONCE_SEEK_FIRST_NAME,      /* a name, or the end of the object */
    ONCE_SEEK_COLON,
    ONCE_SEEK_AFTER,           /* a comma, or the end of the container */
    ONCE_SEEK_STRING,
    ONCE_SEEK_ESCAPE,          /* after a backslash */
    ONCE_SEEK_HEX,             /* after \u */
    ONCE_SEEK_PAIR,            /* the second half of a pair must follow */
    ONCE_SEEK_PAIR_U,
    ONCE_SEEK_WORD,            /* true, false, null */
    ONCE_SEEK_MINUS,           /* the parts of a number */
    ONCE_SEEK_ZERO,
    ONCE_SEEK_INTEGER,
    ONCE_SEEK_POINT,
    ONCE_SEEK_FRACTION,
    ONCE_SEEK_E,
    ONCE_SEEK_E_SIGN,
    ONCE_SEEK_EXPONENT,
    ONCE_SEEK_DONE,            /* the document is complete */
    ONCE_SEEK_BROKEN
};


/* ------------------------------------------------------------- the pointer */

static uint64_t
ngx_http_once_seek_index(const unsigned char *data, size_t len)
{
    size_t    i;
    uint64_t  n;

    if (len == 0 || len > 9 || (len > 1 && data[0] == '0')) {
        return UINT64_MAX;
    }

    for (i = 0, n = 0; i < len; i++) {

        if (data[i] < '0' || data[i] > '9') {
            return UINT64_MAX;
        }

        n = n * 10 + (uint64_t) (data[i] - '0');
    }

    return n;
}


const char *
ngx_http_once_seek_parse(ngx_http_once_path_t *path, unsigned char *text,
    size_t len)
{
    size_t                 in, out;
    ngx_http_once_name_t  *name;

    path->n = 0;

    if (len == 0 || text[0] != '/') {
        return "a JSON pointer begins with /";
    }

    in = 0;
    out = 0;

    while (in < len) {

        if (path->n == NGX_HTTP_ONCE_SEEK_NAMES) {
            return "a JSON pointer has at most 16 names here";
        }

        name = &path->name[path->n++];
        name->data = text + out;
        in++;                                  /* the slash */

        for ( /* void */ ; in < len && text[in] != '/'; in++) {

            if (text[in] != '~') {
                text[out++] = text[in];
                continue;
            }

            in++;

            if (in == len || (text[in] != '0' && text[in] != '1')) {
                return "~ in a JSON pointer must be followed by 0 or 1";
            }

            text[out++] = (text[in] == '0') ? '~' : '/';
        }

        name->len = (size_t) (text + out - name->data);
        name->index = ngx_http_once_seek_index(name->data, name->len);
    }

    return NULL;
}


/* ------------------------------------------------------------ the document */

void
ngx_http_once_seek_init(ngx_http_once_seek_t *seek,
    const ngx_http_once_path_t *path)
{
    memset(seek, 0, sizeof(ngx_http_once_seek_t));

    seek->path = path;
    seek->state = ONCE_SEEK_VALUE;
    seek->leads = 1;
}


static void
ngx_http_once_seek_keep(ngx_http_once_seek_t *seek, unsigned char c)
{
    if (seek->len < NGX_HTTP_ONCE_SEEK_VALUE) {
        seek->value[seek->len++] = c;
    }
}


/* A byte of a string, decoded. */

static void
ngx_http_once_seek_byte(ngx_http_once_seek_t *seek, unsigned char c)
{
    const ngx_http_once_name_t  *name;

    if (!seek->string_is_name) {

        if (seek->keeps) {
            ngx_http_once_seek_keep(seek, c);
        }

        return;
    }

    if (!seek->same) {
        return;
    }

    name = &seek->path->name[seek->matched - 1];

    if (seek->pos < name->len && name->data[seek->pos] == c) {
        seek->pos++;

    } else {
        seek->same = 0;
    }
}


/* A character as UTF-8. */

static void
ngx_http_once_seek_char(ngx_http_once_seek_t *seek, unsigned c)
{
    if (c < 0x80) {
        ngx_http_once_seek_byte(seek, (unsigned char) c);
        return;
    }

    if (c < 0x800) {
        ngx_http_once_seek_byte(seek, (unsigned char) (0xc0 | (c >> 6)));

    } else {

        if (c < 0x10000) {
            ngx_http_once_seek_byte(seek, (unsigned char) (0xe0 | (c >> 12)));

        } else {
            ngx_http_once_seek_byte(seek, (unsigned char) (0xf0 | (c >> 18)));
            ngx_http_once_seek_byte(seek,
                             (unsigned char) (0x80 | ((c >> 12) & 0x3f)));
        }

        ngx_http_once_seek_byte(seek,
                                (unsigned char) (0x80 | ((c >> 6) & 0x3f)));
    }

    ngx_http_once_seek_byte(seek, (unsigned char) (0x80 | (c & 0x3f)));
}


static int
ngx_http_once_seek_in_object(const ngx_http_once_seek_t *seek)
{
    return (int) ((seek->objects >> (seek->depth - 1)) & 1);
}


/*
 * Containers that the path leads into are open from the outermost on: the
 * document itself is the first. A name of the path belongs to each.
 */

static int
ngx_http_once_seek_on_path(const ngx_http_once_seek_t *seek)
{
    return seek->depth && seek->depth == seek->matched;
}


/* The next child of a container on the path: does the path lead there? */

static void
ngx_http_once_seek_child(ngx_http_once_seek_t *seek, int leads)
{
    uint32_t  bit;

    seek->leads = leads;

    if (!leads) {
        return;
    }

    bit = (uint32_t) 1 << (seek->matched - 1);

    if (seek->seen & bit) {
        seek->result = NGX_HTTP_ONCE_SEEK_TWICE;
    }

    seek->seen |= bit;
}


static void
ngx_http_once_seek_element(ngx_http_once_seek_t *seek)
{
    unsigned  level;

    seek->leads = 0;

    if (ngx_http_once_seek_on_path(seek)) {
        level = seek->matched - 1;
        ngx_http_once_seek_child(seek, seek->index[level]++
                                       == seek->path->name[level].index);
    }
}


static void
ngx_http_once_seek_after(ngx_http_once_seek_t *seek)
{
    seek->keeps = 0;
    seek->leads = 0;
    seek->state = seek->depth ? ONCE_SEEK_AFTER : ONCE_SEEK_DONE;
}


/* A string or a number is complete. */

static void
ngx_http_once_seek_kept(ngx_http_once_seek_t *seek)
{
    if (seek->keeps && seek->result == NGX_HTTP_ONCE_SEEK_NONE
        && !seek->fraction)
    {
        seek->result = NGX_HTTP_ONCE_SEEK_FOUND;
    }

    ngx_http_once_seek_after(seek);
}


static void
ngx_http_once_seek_open(ngx_http_once_seek_t *seek, int is_object)
{
    uint64_t  bit;

    if (seek->depth == NGX_HTTP_ONCE_SEEK_LEVELS) {
        seek->state = ONCE_SEEK_BROKEN;
        return;
    }

    bit = (uint64_t) 1 << seek->depth;
    seek->objects = is_object ? (seek->objects | bit) : (seek->objects & ~bit);

    if (seek->leads && seek->depth < seek->path->n) {
        seek->index[seek->depth] = 0;
        seek->seen &= ~((uint32_t) 1 << seek->depth);
        seek->matched = seek->depth + 1;
    }

    seek->depth++;
    seek->leads = 0;

    if (is_object) {
        seek->state = ONCE_SEEK_FIRST_NAME;
        return;
    }

    seek->state = ONCE_SEEK_FIRST_VALUE;
    ngx_http_once_seek_element(seek);
}


static void
ngx_http_once_seek_close(ngx_http_once_seek_t *seek, int is_object)
{
    if (ngx_http_once_seek_in_object(seek) != is_object) {
        seek->state = ONCE_SEEK_BROKEN;
        return;
    }

    if (seek->matched == seek->depth) {
        seek->matched--;
    }

    seek->depth--;
    ngx_http_once_seek_after(seek);
}


static void
ngx_http_once_seek_string(ngx_http_once_seek_t *seek, int is_name)
{
    seek->state = ONCE_SEEK_STRING;
    seek->string_is_name = is_name;
    seek->high = 0;
    seek->pos = 0;
    seek->same = is_name && ngx_http_once_seek_on_path(seek);
}


static void
ngx_http_once_seek_string_end(ngx_http_once_seek_t *seek)
{
    if (!seek->string_is_name) {
        ngx_http_once_seek_kept(seek);
        return;
    }

    ngx_http_once_seek_child(seek,
                             seek->same
                             && seek->pos
                                == seek->path->name[seek->matched - 1].len);
    seek->state = ONCE_SEEK_COLON;
}


/* The first byte of a value. */

static void
ngx_http_once_seek_value(ngx_http_once_seek_t *seek, unsigned char c)
{
    if (c == '{' || c == '[') {
        ngx_http_once_seek_open(seek, c == '{');
        return;
    }

    seek->keeps = seek->leads && seek->depth == seek->path->n;
    seek->fraction = 0;

    if (seek->keeps) {
        seek->len = 0;
    }

    switch (c) {

    case '"':
        ngx_http_once_seek_string(seek, 0);
        return;

    case 't':
    case 'f':
    case 'n':
        seek->rest = (c == 't') ? "rue" : (c == 'f') ? "alse" : "ull";
        seek->keeps = 0;
        seek->state = ONCE_SEEK_WORD;
        return;

    case '-':
        seek->state = ONCE_SEEK_MINUS;
        break;

    case '0':
        seek->state = ONCE_SEEK_ZERO;
        break;

    default:
        if (c < '1' || c > '9') {
            seek->state = ONCE_SEEK_BROKEN;
            return;
        }

        seek->state = ONCE_SEEK_INTEGER;
    }

    if (seek->keeps) {
        ngx_http_once_seek_keep(seek, c);
    }
}


/* A byte after the first one of a number. Returns 0 if it is not part of it. */

static int
ngx_http_once_seek_number(ngx_http_once_seek_t *seek, unsigned char c)
{
    int  digit, state;

    digit = (c >= '0' && c <= '9');
    state = seek->state;

    switch (state) {

    case ONCE_SEEK_MINUS:
        state = (c == '0') ? ONCE_SEEK_ZERO
                : digit ? ONCE_SEEK_INTEGER : ONCE_SEEK_BROKEN;
        break;

    case ONCE_SEEK_ZERO:
    case ONCE_SEEK_INTEGER:
        if (digit) {
            state = (state == ONCE_SEEK_ZERO) ? ONCE_SEEK_BROKEN : state;

        } else if (c == '.') {
            state = ONCE_SEEK_POINT;

        } else if (c == 'e' || c == 'E') {
            state = ONCE_SEEK_E;

        } else {
            return 0;
        }

        break;

    case ONCE_SEEK_POINT:
        state = digit ? ONCE_SEEK_FRACTION : ONCE_SEEK_BROKEN;
        break;

    case ONCE_SEEK_FRACTION:
        if (!digit) {
            if (c != 'e' && c != 'E') {
                return 0;
            }

            state = ONCE_SEEK_E;
        }

        break;

    case ONCE_SEEK_E:
        state = digit ? ONCE_SEEK_EXPONENT
                : (c == '+' || c == '-') ? ONCE_SEEK_E_SIGN : ONCE_SEEK_BROKEN;
        break;

    case ONCE_SEEK_E_SIGN:
        state = digit ? ONCE_SEEK_EXPONENT : ONCE_SEEK_BROKEN;
        break;

    default: /* ONCE_SEEK_EXPONENT */
        if (!digit) {
            return 0;
        }
    }

    seek->fraction |= (state == ONCE_SEEK_POINT || state == ONCE_SEEK_E);
    seek->state = state;

    if (seek->keeps) {
        ngx_http_once_seek_keep(seek, c);
    }

    return 1;
}


static void
ngx_http_once_seek_escape(ngx_http_once_seek_t *seek, unsigned char c)
{
    static const char  from[] = "\"\\/bfnrt";
    static const char  to[] = "\"\\/\b\f\n\r\t";

    const char  *p;

    if (c == 'u') {
        seek->state = ONCE_SEEK_HEX;
        seek->code = 0;
        seek->digits = 0;
        return;
    }

    p = c ? strchr(from, c) : NULL;

    if (p == NULL) {
        seek->state = ONCE_SEEK_BROKEN;
        return;
    }

    seek->state = ONCE_SEEK_STRING;
    ngx_http_once_seek_byte(seek, (unsigned char) to[p - from]);
}


static void
ngx_http_once_seek_hex(ngx_http_once_seek_t *seek, unsigned char c)
{
    unsigned  n;

    if (c >= '0' && c <= '9') {
        n = c - '0';

    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        n = (c | 0x20) - 'a' + 10U;

    } else {
        seek->state = ONCE_SEEK_BROKEN;
        return;
    }

    seek->code = seek->code * 16 + n;

    if (++seek->digits < 4) {
        return;
    }

    n = seek->code;
    seek->state = ONCE_SEEK_STRING;

    if (seek->high) {

        if (n < 0xdc00 || n > 0xdfff) {
            seek->state = ONCE_SEEK_BROKEN;
            return;
        }

        n = 0x10000 + ((seek->high - 0xd800) << 10) + (n - 0xdc00);
        seek->high = 0;

    } else if (n >= 0xd800 && n <= 0xdbff) {
        seek->high = n;
        seek->state = ONCE_SEEK_PAIR;
        return;

    } else if (n >= 0xdc00 && n <= 0xdfff) {
        seek->state = ONCE_SEEK_BROKEN;
        return;
    }

    ngx_http_once_seek_char(seek, n);
}


/* Inside of a string, a word or a number. Returns 0 if the byte is not. */

static int
ngx_http_once_seek_inside(ngx_http_once_seek_t *seek, unsigned char c)
{
    switch (seek->state) {

    case ONCE_SEEK_STRING:
        if (c == '"') {
            ngx_http_once_seek_string_end(seek);

        } else if (c == '\\') {
            seek->state = ONCE_SEEK_ESCAPE;

        } else if (c < 0x20) {
            seek->state = ONCE_SEEK_BROKEN;

        } else {
            ngx_http_once_seek_byte(seek, c);
        }

        return 1;

    case ONCE_SEEK_ESCAPE:
        ngx_http_once_seek_escape(seek, c);
        return 1;

    case ONCE_SEEK_HEX:
        ngx_http_once_seek_hex(seek, c);
        return 1;

    case ONCE_SEEK_PAIR:
        seek->state = (c == '\\') ? ONCE_SEEK_PAIR_U : ONCE_SEEK_BROKEN;
        return 1;

    case ONCE_SEEK_PAIR_U:
        seek->state = (c == 'u') ? ONCE_SEEK_HEX : ONCE_SEEK_BROKEN;
        seek->code = 0;
        seek->digits = 0;
        return 1;

    case ONCE_SEEK_WORD:
        if ((unsigned char) *seek->rest != c) {
            seek->state = ONCE_SEEK_BROKEN;

        } else if (*++seek->rest == '\0') {
            ngx_http_once_seek_after(seek);
        }

        return 1;

    default:
        if (seek->state < ONCE_SEEK_MINUS || seek->state > ONCE_SEEK_EXPONENT)
        {
            return 0;
        }

        if (ngx_http_once_seek_number(seek, c)) {
            return 1;
        }

        ngx_http_once_seek_kept(seek);
        return 0;
    }
}


/* Between values. */

static void
ngx_http_once_seek_between(ngx_http_once_seek_t *seek, unsigned char c)
{
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        return;
    }

    switch (seek->state) {

    case ONCE_SEEK_FIRST_VALUE:
        if (c == ']') {
            ngx_http_once_seek_close(seek, 0);
            return;
        }

        /* fall through */

    case ONCE_SEEK_VALUE:
        ngx_http_once_seek_value(seek, c);
        return;

    case ONCE_SEEK_FIRST_NAME:
        if (c == '}') {
            ngx_http_once_seek_close(seek, 1);
            return;
        }

        /* fall through */

    case ONCE_SEEK_NAME:
        if (c == '"') {
            ngx_http_once_seek_string(seek, 1);
            return;
        }

        break;

    case ONCE_SEEK_COLON:
        if (c == ':') {
            seek->state = ONCE_SEEK_VALUE;
            return;
        }

        break;

    case ONCE_SEEK_AFTER:
        if (c == '}' || c == ']') {
            ngx_http_once_seek_close(seek, c == '}');
            return;
        }

        if (c != ',') {
            break;
        }

        if (ngx_http_once_seek_in_object(seek)) {
            seek->state = ONCE_SEEK_NAME;

        } else {
            seek->state = ONCE_SEEK_VALUE;
            ngx_http_once_seek_element(seek);
        }

        return;

    default:
        break;
    }

    seek->state = ONCE_SEEK_BROKEN;
}


/* A string that is not of interest: the next byte that is. */

static const unsigned char *
ngx_http_once_seek_skip(const unsigned char *p, const unsigned char *last)
{
    while (p < last && *p != '"' && *p != '\\' && *p >= 0x20) {
        p++;
    }

    return p;
}


void
ngx_http_once_seek_add(ngx_http_once_seek_t *seek, const unsigned char *data,
    size_t len)
{
    const unsigned char  *p, *last;

    last = data + len;

    for (p = data; p < last; p++) {

        if (seek->state == ONCE_SEEK_STRING && !seek->keeps && !seek->same) {
            p = ngx_http_once_seek_skip(p, last);

            if (p == last) {
                return;
            }
        }

        if (!ngx_http_once_seek_inside(seek, *p)) {
            ngx_http_once_seek_between(seek, *p);
        }

        if (seek->state == ONCE_SEEK_BROKEN) {
            return;
        }
    }
}


ngx_http_once_seek_e
ngx_http_once_seek_end(ngx_http_once_seek_t *seek)
{
    /* a number ends where the document does */

    if (seek->depth == 0
        && (seek->state == ONCE_SEEK_ZERO || seek->state == ONCE_SEEK_INTEGER
            || seek->state == ONCE_SEEK_FRACTION
            || seek->state == ONCE_SEEK_EXPONENT))
    {
        seek->state = ONCE_SEEK_DONE;
    }

    return seek->state == ONCE_SEEK_DONE
           ? (ngx_http_once_seek_e) seek->result : NGX_HTTP_ONCE_SEEK_BAD;
}
