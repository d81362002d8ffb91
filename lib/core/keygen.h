/*
 * The key of one step of an operation, made from the identity of its record. The public functions are in once/key.h.
 */
#ifndef ONCE_CORE_KEYGEN_H
#define ONCE_CORE_KEYGEN_H

#include <once/once.h>

/* `created` keeps a record apart from an earlier one of the same key. As once_record_derive. */
int once__key_of_step(const uint8_t id[ONCE_ID_SIZE], uint64_t created, once_slice_t step,
                      once_key_t *key, once_error_t *err);

#endif
