#include "fields.h"

#include <stdio.h>
#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define DIGITS  "0123456789"

json_t *fields_read(const request_t *request, answer_t *answer)
{
    json_t *fields = json_loadb(request->body, request->body_len, JSON_REJECT_DUPLICATES, NULL);

    if (!json_is_object(fields)) {
        answer_problem(answer, 400, "not-json", "the body is not a JSON object");
        json_decref(fields);
        return NULL;
    }
    return fields;
}

int fields_is_id(const char *text, int own)
{
    const char *rest = text + (own && text[0] == '@');

    return strlen(text) <= BANK_ID_MAX && rest[0] != '\0' &&
           strchr(LETTERS DIGITS, rest[0]) != NULL &&
           rest[strspn(rest, LETTERS DIGITS "._-")] == '\0';
}

int fields_is_uuid(const char *text)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len; i++) {
        int dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : strchr(DIGITS "abcdefABCDEF", text[i]) == NULL) {
            return 0;
        }
    }
    return len == 36;
}

static int wrong(answer_t *answer, const char *problem, const char *name, const char *why)
{
    char detail[200];

    snprintf(detail, sizeof(detail), "%s: %s", name, why);
    answer_problem(answer, 422, problem, detail);
    return -1;
}

static const char *text_of(const json_t *fields, const char *name)
{
    return json_string_value(json_object_get(fields, name));
}

int fields_account(const json_t *fields, const char *name, char out[FIELDS_ID_SIZE],
                   answer_t *answer)
{
    const char *text = text_of(fields, name);

    if (text == NULL || !fields_is_id(text, 1)) {
        return wrong(answer, "bad-account", name,
                     "an account's id is 1 to 64 letters, digits, points, dashes and underscores");
    }
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

int fields_text(const json_t *fields, const char *name, int needed, char out[FIELDS_TEXT_SIZE],
                answer_t *answer)
{
    const char *text = text_of(fields, name);

    out[0] = '\0';
    if (text == NULL && !needed && json_object_get(fields, name) == NULL) {
        return 0;
    }
    if (text == NULL || strlen(text) > BANK_TEXT_MAX || (needed && text[0] == '\0')) {
        return wrong(answer, "bad-text", name, "a text of at most 140 bytes");
    }
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

int fields_currency(const json_t *fields, char out[CURRENCY_SIZE], answer_t *answer)
{
    const char *text = text_of(fields, "currency");

    if (text == NULL || money_digits(text) < 0) {
        return wrong(answer, "unknown-currency", "currency",
                     "three capital letters that the bank knows");
    }
    memcpy(out, text, CURRENCY_SIZE);
    return 0;
}

int fields_amount(const json_t *fields, const char *name, const char *currency,
                  char out[MONEY_SIZE], answer_t *answer)
{
    const char *text = text_of(fields, name);
    const char *why;

    if (text == NULL) {
        return wrong(answer, "bad-amount", name, "an amount is a text such as \"12.50\"");
    }
    why = money_parse(text, money_digits(currency), out);
    return why != NULL ? wrong(answer, "bad-amount", name, why) : 0;
}
