/*
 * Operations in the order in which they were submitted.
 */
#ifndef ONCE_STORE_OPLIST_H
#define ONCE_STORE_OPLIST_H

#include "store/store.h"

/* Resets the answer of an operation, before it is applied for the first time or again. */
void once__op_clear(once__op_t *op);

/*
 * What holds between calls (assert_oplist_state in oplist.c):
 *   I-1  `last` is where the next one goes: the list ends there
 *   I-2  the list is empty if that is its beginning
 */
typedef struct once__oplist {
    once__op_t *first, **last;
} once__oplist_t;

void once__oplist_init(once__oplist_t *list);
void once__oplist_add(once__oplist_t *list, once__op_t *op);

/* Moves everything from one list to the end of the other. */
void once__oplist_move(once__oplist_t *to, once__oplist_t *from);

/* Empties the list, then calls `done` for each operation, which may submit it or others again. Returns how many there were. */
int once__oplist_finish(once__oplist_t *list);

/* The same, for at most the first `limit` operations. */
int once__oplist_finish_some(once__oplist_t *list, int limit);

/* For close: answers everything with ONCE_E_CLOSED, including what is submitted meanwhile. */
void once__oplist_close(once__oplist_t *list);

#endif
