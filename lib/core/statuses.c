#include "core/statuses.h"

#include <string.h>

#include "base/error.h"
#include "base/units.h"

#define SHOWN 60 /* bytes of a wrong item that an error repeats */

int once__statuses_has(const once__statuses_t *set, int status)
{
    unsigned bit = (unsigned)(status - ONCE__STATUS_MIN);

    if (status < ONCE__STATUS_MIN || status > ONCE__STATUS_MAX) {
        return 0;
    }
    return (set->bits[bit / 64] >> bit % 64 & 1) != 0;
}

void once__statuses_change(once__statuses_t *set, int first, int last, int add)
{
    for (int status = first; status <= last; status++) {
        unsigned bit = (unsigned)(status - ONCE__STATUS_MIN);
        uint64_t mask = UINT64_C(1) << bit % 64;
        set->bits[bit / 64] = add ? set->bits[bit / 64] | mask : set->bits[bit / 64] & ~mask;
    }
}

/* NNN as a number, or 0. */
static int read_status(const char *text)
{
    uint64_t status;

    if (once__number_parse(text, 3, &status) != 0 || status < ONCE__STATUS_MIN) {
        return 0;
    }
    return (int)status;
}

/* NNN, NNN-NNN or Nxx. Returns 0, or -1 if it is none of them. */
static int read_range(const char *text, size_t len, int *first, int *last)
{
    if (len == 3 && text[0] >= '1' && text[0] <= '9' && memcmp(text + 1, "xx", 2) == 0) {
        *first = (text[0] - '0') * 100;
        *last = *first + 99;
        return 0;
    }
    if (len == 3) {
        *first = *last = read_status(text);
        return *first != 0 ? 0 : -1;
    }
    if (len == 7 && text[3] == '-') {
        *first = read_status(text);
        *last = read_status(text + 4);
        return *first != 0 && *first <= *last ? 0 : -1;
    }
    return -1;
}

/* Adds or removes one item. Returns 0, or -1 if it is not a valid item. */
static int read_item(once__statuses_t *set, const char *text, size_t len, once__list_t list)
{
    int add = text[0] != '!';
    int had_408 = once__statuses_has(set, 408);
    int first, last;

    text += add ? 0 : 1;
    len -= add ? 0 : 1;
    if (list == ONCE__RECORD_LIST && len == 3 && memcmp(text, "all", 3) == 0) {
        first = ONCE__STATUS_MIN;
        last = ONCE__STATUS_MAX;
    } else if (read_range(text, len, &first, &last) != 0) {
        return -1;
    }
    once__statuses_change(set, first, last, add);
    if (list == ONCE__RECORD_LIST && add && memcmp(text, "4xx", 3) == 0) {
        once__statuses_change(set, 408, 408, had_408);
    }
    return 0;
}

int once__statuses_parse(once__statuses_t *set, const char *text, once__list_t list,
                         once_error_t *err)
{
    const char *name = list == ONCE__RECORD_LIST ? "record" : "release";
    const char *also = list == ONCE__RECORD_LIST ? "all" : "none";
    once__statuses_t result = {{0}};

    if (list == ONCE__RELEASE_LIST && strcmp(text, "none") == 0) {
        *set = result;
        return ONCE_OK;
    }
    if (text[0] == '!') {
        return once__fail(err, ONCE_E_CONFIG,
                          "%s: \"%.*s\" takes out of nothing; begin with what is in: 4xx,!404",
                          name, SHOWN, text);
    }
    for (const char *item = text;; item += strcspn(item, ",") + 1) {
        size_t len = strcspn(item, ",");
        if (read_item(&result, item, len, list) != 0) {
            return once__fail(err, ONCE_E_CONFIG,
                              "%s: \"%.*s\" is not a status; use NNN, NNN-NNN, Nxx or %s", name,
                              len < SHOWN ? (int)len : SHOWN, item, also);
        }
        if (item[len] == '\0') {
            break;
        }
    }
    *set = result;
    return ONCE_OK;
}
