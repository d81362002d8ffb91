#include "report.h"

#include <stdarg.h>
#include <stdio.h>

#define ROWS 80

typedef struct row {
    const char *what, *required; /* NULL `required`: `what` is a subject */
    verdict_t verdict;
    char measured[100];
} row_t;

static row_t rows[ROWS];
static unsigned count;

void report(const char *what, const char *required, verdict_t verdict, const char *measured, ...)
{
    row_t *row = &rows[count < ROWS - 1 ? count++ : count];
    va_list values;

    row->what = what;
    row->required = required;
    row->verdict = verdict;
    va_start(values, measured);
    (void)vsnprintf(row->measured, sizeof(row->measured), measured, values);
    va_end(values);
}

void report_subject(const char *subject)
{
    report(subject, NULL, VERDICT_NONE, "%s", "");
}

unsigned report_print(void)
{
    static const char *const marks[] = {"", "ok", "below", "SHORT"};
    unsigned shorts = 0;

    (void)printf("\n%-66s %-14s %-44s\n", "", "required", "measured");
    for (unsigned i = 0; i < count; i++) {
        const row_t *row = &rows[i];
        if (row->required == NULL) {
            (void)printf("%s\n", row->what);
        } else {
            (void)printf("  %-64s %-14s %-44s %s\n", row->what, row->required, row->measured,
                         marks[row->verdict]);
        }
        shorts += row->verdict == VERDICT_SHORT;
    }
    return shorts;
}
