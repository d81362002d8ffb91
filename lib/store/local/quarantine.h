/*
 * What is damaged and about to go is kept aside, so that nothing is lost that somebody could still make sense of.
 */
#ifndef ONCE_STORE_LOCAL_QUARANTINE_H
#define ONCE_STORE_LOCAL_QUARANTINE_H

#include "store/local/frame.h"

/*
 * Writes bytes that stood at `place` to quarantine/, durably: when it returns, they may go where they were. `directory_fd` is the
 * store's. ONCE_OK, or ONCE_E_FULL, ONCE_E_IO and errno.
 */
int once__quarantine_keep(int directory_fd, once__place_t place, const uint8_t *data, uint64_t len);

#endif
