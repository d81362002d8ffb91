#include "store/limits.h"

#include <string.h>

#include "base/error.h"
#include "base/units.h"

#define RECORDS_MOST (UINT32_MAX / 4)

int once__limits_take(once__limits_t *limits, once__url_t *url, once_error_t *err)
{
    const char *records = once__url_take(url, "max_records");
    const char *bytes = once__url_take(url, "max_bytes");

    if (records != NULL &&
        (once__number_parse(records, strlen(records), &limits->max_records) != 0 ||
         limits->max_records == 0 || limits->max_records > RECORDS_MOST)) {
        return once__fail(err, ONCE_E_CONFIG,
                          "max_records: \"%.40s\" is not a number from 1 to 1073741823", records);
    }
    if (bytes != NULL &&
        (once__size_parse(bytes, &limits->max_bytes) != 0 || limits->max_bytes == 0)) {
        return once__fail(err, ONCE_E_CONFIG,
                          "max_bytes: \"%.40s\" is not a size; use 512, 64k, 16m or 1g", bytes);
    }
    return ONCE_OK;
}
