/*
 * The audit trail of the store (once/audit.h): decisions of people leave an entry before they are made, and one after.
 */
#ifndef ONCE_API_AUDIT_H
#define ONCE_API_AUDIT_H

#include "api/job.h"

/*
 * Submits an event that a person decided: the intent is added to the trail, then the event is applied, then its result is added.
 * If the intent cannot be added, nothing is changed. On ONCE_OK the job owns `memory`.
 */
int once__audit_event(once_t *once, const once__event_t *event, const uint8_t *id,
                      const once__payload_t *payload, uint8_t *memory, once_cb cb, void *data);

/* Frees the lines that an operation has read. */
void once__audit_forget_lines(once__op_t *op);

/* admin.c: the answer to an event whose reply was lost at first may be that to our own earlier attempt. */
void once__admin_recognise(once__job_t *job);

#endif
