/*
 * Operations in the order in which they were submitted.
 */
#ifndef ONCE_STORE_OPLIST_H
#define ONCE_STORE_OPLIST_H

#include "store/store.h"

/* Before an operation is applied, or once more: as if nobody had answered it. */
void once__op_clear(once__op_t *op);

typedef struct once__oplist {
    once__op_t *first, **last;
} once__oplist_t;

void once__oplist_init(once__oplist_t *list);
void once__oplist_add(once__oplist_t *list, once__op_t *op);

/* Moves everything from one list to the end of the other. */
void once__oplist_move(once__oplist_t *to, once__oplist_t *from);

/* Calls done for each; that may submit them, or others, again. Returns how many there were. The list is empty before the first. */
int once__oplist_finish(once__oplist_t *list);

/* The same for the first of them, at most `limit`. */
int once__oplist_finish_some(once__oplist_t *list, int limit);

/* Answers everything, also what is submitted meanwhile, with ONCE_E_CLOSED: for close. */
void once__oplist_close(once__oplist_t *list);

#endif
