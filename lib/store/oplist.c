#include "store/oplist.h"

#include <assert.h>
#include <string.h>

void once__op_clear(once__op_t *op)
{
    op->error = ONCE_OK;
    op->outcome = ONCE_OUTCOME_NONE;
    op->now = 0;
    op->record = NULL;
    op->records = NULL;
    op->lines = NULL;
    op->count = 0;
    op->pause_ms = 0;
    memset(&op->head, 0, sizeof(op->head));
}

static void assert_oplist_state(const once__oplist_t *list)
{
    assert(*list->last == NULL);                                   /* I-1 */
    assert((list->first == NULL) == (list->last == &list->first)); /* I-2 */
}

void once__oplist_init(once__oplist_t *list)
{
    list->first = NULL;
    list->last = &list->first;
}

void once__oplist_add(once__oplist_t *list, once__op_t *op)
{
    assert_oplist_state(list);
    assert(op->done != NULL);
    op->next = NULL;
    *list->last = op;
    list->last = &op->next;
}

void once__oplist_move(once__oplist_t *to, once__oplist_t *from)
{
    assert_oplist_state(to);
    assert_oplist_state(from);
    if (from->first != NULL) {
        *to->last = from->first;
        to->last = from->last;
        once__oplist_init(from);
    }
}

int once__oplist_finish(once__oplist_t *list)
{
    once__op_t *op = list->first;
    int count = 0;

    assert_oplist_state(list);
    once__oplist_init(list);
    while (op != NULL) {
        once__op_t *next = op->next; /* done may submit the operation again */
        op->done(op);
        op = next;
        count++;
    }
    return count;
}

int once__oplist_finish_some(once__oplist_t *list, int limit)
{
    int count = 0;

    while (count < limit && list->first != NULL) {
        once__op_t *op = list->first;
        list->first = op->next;
        if (list->first == NULL) {
            list->last = &list->first;
        }
        op->done(op);
        count++;
    }
    return count;
}

void once__oplist_close(once__oplist_t *list)
{
    while (list->first != NULL) {
        for (once__op_t *op = list->first; op != NULL; op = op->next) {
            op->error = ONCE_E_CLOSED;
            op->record = NULL;
        }
        (void)once__oplist_finish(list);
    }
}
