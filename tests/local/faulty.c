#include "faulty.h"

#include "support/testing.h"

#include <string.h>

faulty_t the;

int faulty_start(void **state)
{
    once_t *first;

    memset(&the, 0, sizeof(the));
    place_make(the.base);
    place_join(the.store, the.base, "store");
    first = place_open(the.store, QUERY, NULL);
    (void)get(first, "nothing"); /* the secrets are there now */
    assert_int_equal(once_close(first, 5000), ONCE_OK);
    disk_init(&the.disk, the.store);
    the.once = place_open(the.store, QUERY, &the.disk.hooks);
    return 0;
}

int faulty_end(void **state)
{
    the.disk.fail_sync = 0;
    (void)once_close(the.once, 0);
    disk_free(&the.disk);
    place_remove(the.base);
    return 0;
}
