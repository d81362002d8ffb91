#include "store/local/fsck.h"

#include <string.h>
#include <sys/file.h>

#include "base/error.h"
#include "base/url.h"
#include "core/sized.h"
#include "loop/env.h"
#include "store/local/check.h"
#include "store/local/log.h"
#include "store/local/look.h"

int once__local_url(once__url_t *url, const char *text, once_error_t *err)
{
    int code = once__url_parse(url, "store URL", text, 0, err);

    if (code != ONCE_OK) {
        return code;
    }
    if (strcmp(url->scheme, "local") != 0) {
        code = once__fail(err, ONCE_E_UNSUPPORTED, "this is for local stores only: local:PATH");
    } else if (url->path[0] == '\0') {
        code = once__fail(err, ONCE_E_CONFIG, "local store: name a directory: local:PATH");
    }
    if (code != ONCE_OK) {
        once__url_free(url);
    }
    return code;
}

int once_local_exists(const char *url, once_error_t *err)
{
    once__directory_t directory;
    once__url_t parsed;
    int code = once__local_url(&parsed, url, err);

    if (code == ONCE_OK) {
        code = once__directory_look(&directory, parsed.path, err);
        if (code == ONCE_OK) {
            once__directory_abandon(&directory);
        }
        once__url_free(&parsed);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------------ report */

static void count_records(const once__check_t *check)
{
    once_local_fsck_report_t *report = check->report;

    for (size_t i = 0; i < check->newest.size; i++) {
        const once__newest_entry_t *entry = &check->newest.entries[i];
        if (entry->segment == 0 || entry->segment < check->first) {
            continue;
        }
        report->newer += entry->newer;
        report->expired += entry->expired;
        if (!entry->expired) {
            report->pending += entry->state == ONCE_STATE_PENDING;
            report->completed += entry->state == ONCE_STATE_COMPLETED;
            report->failed += entry->state == ONCE_STATE_FAILED;
            report->unknown += entry->state == ONCE_STATE_UNKNOWN;
        }
    }
}

static void add_sizes(const once__check_t *check)
{
    once_local_fsck_report_t *report = check->report;
    once__sizes_t sizes;

    once__directory_sizes(check->directory, &sizes);
    report->spares = sizes.spares;
    report->spare_bytes = sizes.spare_bytes;
    report->quarantined = sizes.quarantined;
    report->quarantine_bytes = sizes.quarantine_bytes;
    report->index_bytes = sizes.index_bytes;
}

/* ------------------------------------------------------------------------------------------------------------- check */

/* Reads everything; `repair`: and puts it right, if that is needed. */
static int check_and_repair(once__check_t *check, int repair)
{
    int code = once__check_log(check);

    code = code == ONCE_OK ? once__check_index(check, repair) : code;
    if (code != ONCE_OK) {
        return code;
    }
    count_records(check);
    check->report->left = check->report->problems;
    return repair && check->report->problems > 0 ? once__check_repair(check) : ONCE_OK;
}

static int check_path(const char *path, const once__disk_t *disk,
                      const once_local_fsck_options_t *how, once_local_fsck_report_t *report,
                      once_error_t *err)
{
    once__directory_t directory;
    once__check_t check = {.directory = &directory, .how = how, .report = report, .err = err};
    int code = once__directory_look(&directory, path, err);

    if (code != ONCE_OK) {
        return code;
    }
    directory.disk = disk;
    check.now = once__real_env.wall_ms(once__real_env.data);
    if (how->repair) {
        code = once__directory_lock(&directory, LOCK_EX);
        if (code != ONCE_OK) {
            (void)once__fail(err, code,
                             code == ONCE_E_CONFLICT
                                 ? "local store: other programs use %.120s; stop them first"
                                 : "local store: cannot lock %.120s",
                             path);
        }
    }
    code = code == ONCE_OK ? check_and_repair(&check, how->repair) : code;
    add_sizes(&check);
    once__check_free(&check);
    once__directory_leave(&directory);
    return code;
}

/* Opens the repaired store once, which makes its index, and looks again. */
static int look_again(const char *path, const once__disk_t *disk, once_local_fsck_report_t *report,
                      once_error_t *err)
{
    static const once_local_fsck_options_t quiet = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t after = ONCE_LOCAL_FSCK_REPORT_INIT;
    once__directory_t directory;
    int code = once__directory_open_on(&directory, path, disk, err);

    if (code == ONCE_OK) {
        once__directory_close(&directory);
        code = check_path(path, disk, &quiet, &after, err);
    }
    if (code == ONCE_OK) {
        report->left = after.left;
        report->quarantined = after.quarantined;
        report->quarantine_bytes = after.quarantine_bytes;
        report->index_bytes = after.index_bytes;
    }
    return code;
}

int once_local_fsck(const char *url, const once_local_fsck_options_t *how,
                    once_local_fsck_report_t *report, once_error_t *err)
{
    return once__local_fsck(url, &once__real_disk, how, report, err);
}

int once__local_fsck(const char *url, const once__disk_t *disk,
                     const once_local_fsck_options_t *how, once_local_fsck_report_t *report,
                     once_error_t *err)
{
    once_local_fsck_options_t options = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t all = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_error_t why = {0};
    once__url_t parsed;
    int code = once__sized_read(&options, sizeof(options), ONCE__LOCAL_FSCK_OPTIONS_V1, how);

    if (code != ONCE_OK || once__sized(report) < ONCE__LOCAL_FSCK_REPORT_V1) {
        return once__fail(
            err, ONCE_E_INVALID,
            "the options or the report were not set up with ONCE_LOCAL_FSCK_..._INIT");
    }
    code = once__local_url(&parsed, url, err);
    if (code != ONCE_OK) {
        return code;
    }
    code = check_path(parsed.path, disk, &options, &all, &why);
    if (code == ONCE_OK && options.repair && all.problems > 0) {
        code = look_again(parsed.path, disk, &all, &why);
    }
    (void)once__sized_write(report, ONCE__LOCAL_FSCK_REPORT_V1, &all, sizeof(all));
    if (code != ONCE_OK) {
        (void)once__fail(err, code, "%s",
                         why.code == code && why.text[0] != '\0' ? why.text
                                                                 : once_error_text(code));
    }
    once__url_free(&parsed);
    return code;
}
