#include "cli/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define COLUMNS_MAX 16

struct once__cli_cell {
    char *text;
    once__cli_colour_t colour;
};

/*
 * What holds between calls:
 *   I-1  there are columns, and their widths fit where they are measured
 *   I-2  every cell that counts is in memory that is there
 *   I-3  when it is printed, unless memory was short, every row is complete
 */
static void assert_table_state(const once__cli_table_t *table)
{
    assert(table->columns > 0 && table->columns <= COLUMNS_MAX); /* I-1 */
    assert(table->count <= table->room);                         /* I-2 */
    assert(table->count == 0 || table->cells != NULL);
    assert(table->count == 0 || table->cells[table->count - 1].text != NULL);
}

void once__cli_table_start(once__cli_table_t *table, const char *const *heads, size_t columns)
{
    memset(table, 0, sizeof(*table));
    table->heads = heads;
    table->columns = columns;
    assert_table_state(table);
}

static int make_room(once__cli_table_t *table)
{
    struct once__cli_cell *cells = once__grow(table->cells, &table->room, table->count + 1,
                                              sizeof(cells[0]), SIZE_MAX / sizeof(cells[0]));

    if (cells == NULL) {
        return -1;
    }
    table->cells = cells;
    return 0;
}

void once__cli_table_add(once__cli_table_t *table, const char *format, ...)
{
    char *cell = NULL;
    va_list values;

    assert_table_state(table);
    if (table->broken || make_room(table) != 0) {
        table->broken = 1;
        return;
    }
    va_start(values, format);
    if (vasprintf(&cell, format, values) < 0) {
        cell = NULL;
        table->broken = 1;
    }
    va_end(values);
    if (cell != NULL) {
        table->cells[table->count++] = (struct once__cli_cell){cell, ONCE__CLI_PLAIN};
    }
}

void once__cli_table_colour(once__cli_table_t *table, once__cli_colour_t colour)
{
    if (!table->broken && table->count > 0) {
        table->cells[table->count - 1].colour = colour;
    }
}

static int is_right(const char *head)
{
    return head[0] == '>';
}

static const char *title(const char *head)
{
    return is_right(head) ? head + 1 : head;
}

static void measure(const once__cli_table_t *table, int widths[COLUMNS_MAX])
{
    for (size_t i = 0; i < table->columns; i++) {
        widths[i] = (int)strlen(title(table->heads[i]));
    }
    for (size_t i = 0; i < table->count; i++) {
        int len = (int)strlen(table->cells[i].text);
        if (len > widths[i % table->columns]) {
            widths[i % table->columns] = len;
        }
    }
}

/* The last column is not filled up: no space at the end of a line. */
static void print_cell(const once__cli_table_t *table, size_t column, int width, const char *text,
                       once__cli_colour_t colour)
{
    int last = column + 1 == table->columns;

    if (colour != ONCE__CLI_PLAIN) {
        fputs(once__cli_colour(stdout, colour), stdout);
    }
    if (is_right(table->heads[column])) {
        printf("%*s", width, text);
    } else {
        printf("%-*s", last ? 0 : width, text);
    }
    if (colour != ONCE__CLI_PLAIN) {
        fputs(once__cli_colour(stdout, ONCE__CLI_PLAIN), stdout);
    }
    fputs(last ? "\n" : "  ", stdout);
}

int once__cli_table_print(once__cli_table_t *table)
{
    int widths[COLUMNS_MAX] = {0};
    int broken = table->broken;

    assert_table_state(table);
    assert(broken || table->count % table->columns == 0); /* I-3 */
    measure(table, widths);
    for (size_t i = 0; i < table->columns && !broken; i++) {
        print_cell(table, i, widths[i], title(table->heads[i]), ONCE__CLI_BOLD);
    }
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns;
        if (!broken) {
            print_cell(table, column, widths[column], table->cells[i].text, table->cells[i].colour);
        }
        free(table->cells[i].text);
    }
    free(table->cells);
    memset(table, 0, sizeof(*table));
    return broken ? -1 : 0;
}
