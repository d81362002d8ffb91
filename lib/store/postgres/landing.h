/*
 * What becomes of operations when their batch has ended.
 */
#ifndef ONCE_STORE_POSTGRES_LANDING_H
#define ONCE_STORE_POSTGRES_LANDING_H

#include "store/postgres/traffic.h"

/* Answers all of a list with this error; it is empty afterwards. */
void once__traffic_answer_all(once__traffic_t *pg, once__oplist_t *list, int error);

/* The link's batch is committed: its operations are answered, or go on. */
void once__traffic_committed(once__traffic_t *pg, once__pg_link_t *link);

/* Certainly nothing of it was applied: they are told so, or sent again. */
void once__traffic_aborted(once__traffic_t *pg, once__pg_link_t *link);

/* How many operations wait; those after `enough` are not counted. */
unsigned once__traffic_waiting(const once__traffic_t *pg, unsigned enough);

#endif
