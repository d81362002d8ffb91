#include "money.h"

#include <stdio.h>
#include <string.h>

#define WHOLE_MAX 15 /* digits before the point: numeric(20, 4) holds them, and their sums */

static struct {
    char code[4];
    int digits;
} known[MONEY_CURRENCIES_MAX];
static size_t known_count;

int money_know(const char *code, int digits)
{
    if (known_count == MONEY_CURRENCIES_MAX || strlen(code) != 3 || digits < 0 || digits > 4) {
        return -1;
    }
    memcpy(known[known_count].code, code, 4);
    known[known_count].digits = digits;
    known_count++;
    return 0;
}

int money_digits(const char *code)
{
    for (size_t i = 0; i < known_count; i++) {
        if (strcmp(known[i].code, code) == 0) {
            return known[i].digits;
        }
    }
    return -1;
}

const char *money_parse(const char *text, int digits, char out[MONEY_SIZE])
{
    size_t whole = strspn(text, "0123456789");
    int has_point = text[whole] == '.';
    const char *fraction = text + whole + has_point;
    size_t behind = has_point ? strspn(fraction, "0123456789") : 0;

    if (whole == 0 || fraction[behind] != '\0' || (has_point && behind == 0) ||
        (text[0] == '0' && whole > 1)) {
        return "an amount is digits, or digits, a point and digits";
    }
    if (whole > WHOLE_MAX) {
        return "the amount is too large";
    }
    if (behind > (size_t)digits) {
        return "the currency has fewer digits behind the point";
    }
    if (strspn(text, "0.") == strlen(text)) {
        return "the amount must be greater than zero";
    }
    snprintf(out, MONEY_SIZE, "%.*s%s%.*s%.*s", (int)whole, text, digits > 0 ? "." : "",
             (int)behind, fraction, digits - (int)behind, "0000");
    return NULL;
}
