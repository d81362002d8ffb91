/*
 * Dead letters: those of the topics and queues that were named with --dlq, and publishing them again with the rules of `once dlq
 * replay`.
 *
 * A broker is asked for each look, one look or replay at a time: what is being looked at in a queue is invisible for others. With
 * Kafka a letter that was replayed is listed until all before it are; its record says what became of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/letters.h"
#include "cli/text.h"
#include "ui/ui.h"

#define LETTERS_MAX 200 /* that are listed, and that can be replayed together */

/* Which of the --dlq: its number. NULL after refusing. */
static const char *read_from(once__ui_request_t *request, const char *text)
{
    const once__cli_list_t *urls = &request->ui->set->letters;
    char *end;
    unsigned long number = strtoul(text != NULL ? text : "", &end, 10);

    if (text == NULL || end == text || *end != '\0' || number >= urls->count) {
        (void)once__ui_refuse(request, MHD_HTTP_NOT_FOUND,
                              "there are no such dead letters: name them with --dlq");
        return NULL;
    }
    return urls->items[number];
}

/* ------------------------------------------------------------------------------------------------------------- looking */

json_t *once__ui_letters(once__ui_request_t *request)
{
    const char *from = read_from(request, once__ui_parameter(request, "from"));
    json_t *letters;
    int code, more = 0;

    if (from == NULL) {
        return NULL;
    }
    if (pthread_mutex_trylock(&request->ui->asking) != 0) {
        return once__ui_refuse(request, MHD_HTTP_CONFLICT,
                               "dead letters are being read or replayed: try again in a moment");
    }
    code = once__cli_letters_json(from, request->ui->once, LETTERS_MAX, &letters, &more);
    (void)pthread_mutex_unlock(&request->ui->asking);
    if (code != ONCE__CLI_OK) {
        json_decref(letters);
        return once__ui_failed(request, code);
    }
    return json_pack("{s:o, s:b, s:i}", "letters", letters, "more", more, "limit", LETTERS_MAX);
}

/* ----------------------------------------------------------------------------------------------------------- replaying */

typedef struct chosen {
    const char *from;
    const json_t *marks; /* what was judged */
    json_t *results;     /* one for each, null until its letter was met */
    size_t at;           /* of the letter that is_chosen was asked about last */
    char said[400];      /* what went wrong last */
} chosen_t;

static int is_chosen(void *data, const once__broker_browsed_t *letter)
{
    chosen_t *chosen = data;
    once__cli_mark_t mark = once__cli_letter_mark(chosen->from, letter);
    const json_t *wanted;
    size_t i;

    json_array_foreach(chosen->marks, i, wanted)
    {
        if (strcmp(json_string_value(wanted), mark.text) == 0 &&
            json_is_null(json_array_get(chosen->results, i))) {
            chosen->at = i;
            return 1;
        }
    }
    return 0;
}

static void became(void *data, const once__broker_browsed_t *letter, int code, const char *topic)
{
    const chosen_t *chosen = data;

    (void)letter;
    (void)json_array_set_new(chosen->results, chosen->at,
                             json_pack("{s:s, s:b, s:s?, s:s?}", "mark",
                                       json_string_value(json_array_get(chosen->marks, chosen->at)),
                                       "done", code == ONCE__CLI_OK, "to",
                                       code == ONCE__CLI_OK ? topic : NULL, "why",
                                       code == ONCE__CLI_OK ? NULL : chosen->said));
}

/* Those that were not met: another person replayed them, they changed, or the broker failed before. */
static void tell_missing(const chosen_t *chosen, int code)
{
    json_t *result;
    size_t i;

    json_array_foreach(chosen->results, i, result)
    {
        if (json_is_null(result)) {
            (void)json_array_set_new(
                chosen->results, i,
                json_pack("{s:s, s:b, s:s}", "mark",
                          json_string_value(json_array_get(chosen->marks, i)), "done", 0, "why",
                          code == ONCE__CLI_STORE
                              ? chosen->said
                              : "refused: the letter is no longer there; look again"));
        }
    }
}

/* 1 to LETTERS_MAX texts. 0, or -1 after refusing. */
static int read_marks(once__ui_request_t *request, chosen_t *chosen)
{
    const json_t *mark;
    size_t i, count = json_array_size(chosen->marks);

    if (count == 0 || count > LETTERS_MAX) {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "marks: 1 to %d letters", LETTERS_MAX);
        return -1;
    }
    json_array_foreach(chosen->marks, i, mark)
    {
        if (!json_is_string(mark) || json_string_length(mark) != ONCE__CLI_MARK_SIZE - 1) {
            (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST,
                                  "a letter is named by the mark of the one that was judged");
            return -1;
        }
        (void)json_array_append_new(chosen->results, json_null());
    }
    return 0;
}

static json_t *run(once__ui_request_t *request, const once__cli_operator_t *operator, int dry,
                   chosen_t *chosen)
{
    once__ui_t *ui = request->ui;
    once__cli_replay_t replay = {.from = chosen->from,
                                 .dry_run = dry,
                                 .once = ui->replaying,
                                 .is_chosen = is_chosen,
                                 .became = became,
                                 .data = chosen};
    uint64_t count = 0;
    int code;

    (void)pthread_mutex_lock(&ui->asking);
    once__cli_hear(chosen->said, sizeof(chosen->said));
    code = dry ? ONCE__CLI_OK : once__cli_operator_act(ui->replaying, operator);
    if (code == ONCE__CLI_OK) {
        code = once__cli_replay(&replay, &count);
    }
    once__cli_hear(NULL, 0);
    (void)pthread_mutex_unlock(&ui->asking);
    if (count == 0 && (code == ONCE__CLI_STORE || code == ONCE__CLI_USAGE)) {
        (void)once__ui_failed(request, code);
        snprintf(request->why, sizeof(request->why), "%s", chosen->said);
        return NULL;
    }
    tell_missing(chosen, code);
    request->status = count > 0 ? MHD_HTTP_OK : MHD_HTTP_CONFLICT;
    return json_pack("{s:O, s:I}", "results", chosen->results, "done", (json_int_t)count);
}

/* {from, marks, note, dry_run}: each by itself, in their order at the broker. 409 if none was, or could be, published. */
json_t *once__ui_replay(once__ui_request_t *request)
{
    const json_t *dry = json_object_get(request->body, "dry_run");
    const char *from = json_string_value(json_object_get(request->body, "from"));
    chosen_t chosen = {.marks = json_object_get(request->body, "marks"), .results = json_array()};
    once__cli_operator_t operator;
    json_t *answer = NULL;

    chosen.from = read_from(request, from);
    if (chosen.from != NULL && dry != NULL && !json_is_boolean(dry)) {
        (void)once__ui_refuse(request, MHD_HTTP_BAD_REQUEST, "dry_run is true or false");
    } else if (chosen.from != NULL && once__ui_operator(request, &operator) == 0 &&
               read_marks(request, &chosen) == 0) {
        answer = run(request, &operator, json_is_true(dry), &chosen);
    }
    json_decref(chosen.results);
    return answer;
}
