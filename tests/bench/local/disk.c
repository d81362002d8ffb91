/*
 * Bytes of disk for a completed record, claim and completion together.
 */
#include <stdio.h>

#include "cost.h"
#include "load.h"
#include "report.h"
#include "sections.h"

#define RECORDS 100000 /* so that the first segments, which are small, do not count much */

static double bytes_for(const settings_t *settings, load_kind_t kind, const char *parameters)
{
    load_t load = {.kind = kind};
    char path[PATH_ROOM], segments[PATH_ROOM + 16];
    double bytes;

    path_of(path, settings, "disk");
    (void)snprintf(segments, sizeof(segments), "%s/segments", path);
    load_open(&load, path, parameters);
    load_run(&load, RECORDS, 128);
    load_close(&load);
    bytes = (double)bytes_in(segments) / RECORDS;
    load_remove(path);
    return bytes;
}

void section_disk(const settings_t *settings)
{
    report_subject("bytes of disk per completed record (key of 36 bytes, one header)");
    for (load_kind_t kind = LOAD_SIMILAR; kind <= LOAD_RANDOM; kind++) {
        double bytes = bytes_for(settings, kind, "?reap=off");
        double small = bytes_for(settings, kind, "?reap=off&compress=1");
        verdict_t verdict = kind != LOAD_SIMILAR ? VERDICT_NONE
                            : bytes <= 450       ? VERDICT_OK
                                                 : VERDICT_SHORT;
        report(load_kind_names[kind], kind == LOAD_SIMILAR ? "<= 450" : "-", verdict,
               "%.0f  (with compress=1: %.0f)", bytes, small);
    }
}
