/*
 * Singly linked lists with a tail: items are added at the end and removed at the front.
 *
 * A list is a struct with the members ONCE__LIST(type); an item has a member `next`. The macros evaluate their arguments more than
 * once. An empty list has `end == &first`: initialise it before use and never copy it.
 */
#ifndef ONCE_BASE_LIST_H
#define ONCE_BASE_LIST_H

#include <stddef.h>

#define ONCE__LIST(type)                                                                           \
    type *first, **end;                                                                            \
    size_t count

#define once__list_init(list)                                                                      \
    ((list)->first = NULL, (list)->end = &(list)->first, (void)((list)->count = 0))

#define once__list_add(list, item)                                                                 \
    ((item)->next = NULL, *(list)->end = (item), (list)->end = &(item)->next, (void)(list)->count++)

/* Removes the first item. The list must not be empty. */
#define once__list_drop(list)                                                                      \
    ((list)->first = (list)->first->next,                                                          \
     (list)->end = (list)->first != NULL ? (list)->end : &(list)->first, (void)(list)->count--)

/* Appends all items of `from`, which is then empty. */
#define once__list_move(to, from)                                                                  \
    do {                                                                                           \
        if ((from)->first != NULL) {                                                               \
            *(to)->end = (from)->first;                                                            \
            (to)->end = (from)->end;                                                               \
            (to)->count += (from)->count;                                                          \
            once__list_init(from);                                                                 \
        }                                                                                          \
    } while (0)

#endif
