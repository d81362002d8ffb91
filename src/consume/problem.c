#include "consume/problem.h"

#include <jansson.h>
#include <string.h>

void once__consume_problem_words(const char *body, size_t len, char *out, size_t size)
{
    json_t *problem = json_loadb(body, len, 0, NULL);
    const char *text = json_string_value(json_object_get(problem, "detail"));
    size_t used = 0;

    if (text == NULL) {
        text = json_string_value(json_object_get(problem, "title"));
    }
    for (; text != NULL && *text != '\0' && used + 1 < size; text++) {
        /* It becomes a header of a message and a line of a log. */
        out[used++] = *text >= 0x20 && *text < 0x7f ? *text : '?';
    }
    out[used] = '\0';
    json_decref(problem);
}
