#include "core/about.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"

#define VERSION     1
#define HAS_SUBJECT 0x80
#define HEAD        2

static_assert(ONCE__ABOUT_ROOM(ONCE_DESCRIPTION_MAX) <= ONCE__ABOUT_MAX, "all of it fits");
static_assert(ONCE__HOLDER_MAX < HAS_SUBJECT, "a length leaves its highest bit free");

/* The control characters of C1 are two bytes of UTF-8, and terminals obey them. */
static size_t clean_len(const uint8_t *at, size_t left)
{
    size_t len = once__utf8_len(at, left);

    if (len == 1 && (*at < 0x20 || *at == 0x7f)) {
        return 0;
    }
    return len == 2 && at[0] == 0xc2 && at[1] < 0xa0 ? 0 : len;
}

size_t once__about_clean(char *out, size_t max, once_slice_t text)
{
    const uint8_t *from = text.data;
    size_t used = 0;

    for (size_t i = 0; i < text.len;) {
        size_t len = clean_len(from + i, text.len - i);
        if (used + (len > 0 ? len : 1) > max) {
            break;
        }
        if (len > 0) {
            memcpy(out + used, from + i, len);
        } else {
            out[used] = '?';
        }
        len = len > 0 ? len : 1;
        used += len;
        i += len;
    }
    return used;
}

size_t once__about_write(uint8_t *out, const once__about_t *about)
{
    size_t len = HEAD;

    if (about->description.len == 0 && about->holder.len == 0 && about->subject == NULL) {
        return 0;
    }
    out[0] = VERSION;
    len += once__about_clean((char *)out + len, ONCE__HOLDER_MAX, about->holder);
    out[1] = (uint8_t)(len - HEAD);
    if (about->subject != NULL) {
        out[1] |= HAS_SUBJECT;
        memcpy(out + len, about->subject, ONCE_SUBJECT_SIZE);
        len += ONCE_SUBJECT_SIZE;
    }
    return len + once__about_clean((char *)out + len, ONCE_DESCRIPTION_MAX, about->description);
}

int once__about_is_clean(once_slice_t text)
{
    const uint8_t *at = text.data;

    for (size_t i = 0, len; i < text.len; i += len) {
        len = clean_len(at + i, text.len - i);
        if (len == 0) {
            return 0;
        }
    }
    return 1;
}

int once__about_read(once__about_t *about, once_slice_t bytes)
{
    const uint8_t *data = bytes.data;
    size_t holder, subject;

    memset(about, 0, sizeof(*about));
    if (bytes.len == 0 || (bytes.len <= ONCE__ABOUT_MAX && data[0] > VERSION)) {
        return ONCE_OK;
    }
    if (bytes.len < HEAD || bytes.len > ONCE__ABOUT_MAX || data[0] != VERSION) {
        return ONCE_E_CORRUPT;
    }
    holder = data[1] & ~HAS_SUBJECT;
    subject = data[1] & HAS_SUBJECT ? ONCE_SUBJECT_SIZE : 0;
    if (holder > ONCE__HOLDER_MAX || bytes.len - HEAD < holder + subject ||
        bytes.len - HEAD - holder - subject > ONCE_DESCRIPTION_MAX) {
        return ONCE_E_CORRUPT;
    }
    about->holder = once__slice(data + HEAD, holder);
    about->subject = subject > 0 ? data + HEAD + holder : NULL;
    about->description =
        once__slice(data + HEAD + holder + subject, bytes.len - HEAD - holder - subject);
    if (!once__about_is_clean(about->holder) || !once__about_is_clean(about->description)) {
        memset(about, 0, sizeof(*about));
        return ONCE_E_CORRUPT;
    }
    return ONCE_OK;
}
