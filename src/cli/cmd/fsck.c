/*
 * once fsck: is everything in a local store as it should be?
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <once/local.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/console.h"
#include "cli/store.h"
#include "cli/text.h"
#include "cli/units.h"

#define FINDINGS_TEXT  100 /* shown */
#define FINDINGS_INDEX 5   /* of these: what is lost makes one for each record */
#define FINDINGS_JSON  1000

typedef struct settings {
    int repair;
    int json;
} settings_t;

typedef struct fsck {
    const settings_t *set;
    once__cli_progress_t progress;
    uint64_t findings, index, omitted;
    json_t *list;
} fsck_t;

/* --------------------------------------------------------------------------------------------------------- as it runs */

static json_t *finding_json(const once_local_finding_t *finding)
{
    return json_pack("{s:s, s:b, s:I, s:I, s:I, s:s}", "kind", finding->kind, "harmless",
                     finding->harmless, "segment", (json_int_t)finding->segment, "offset",
                     (json_int_t)finding->offset, "length", (json_int_t)finding->length, "text",
                     finding->text);
}

static int is_too_much(fsck_t *fsck, const once_local_finding_t *finding)
{
    if (fsck->set->json) {
        return fsck->findings++ >= FINDINGS_JSON;
    }
    if (strcmp(finding->kind, "index") == 0) {
        return fsck->index++ >= FINDINGS_INDEX;
    }
    return fsck->findings++ >= FINDINGS_TEXT;
}

static void found(const once_local_finding_t *finding, void *data)
{
    fsck_t *fsck = data;

    if (is_too_much(fsck, finding)) {
        fsck->omitted++;
    } else if (fsck->set->json) {
        (void)json_array_append_new(fsck->list, finding_json(finding));
    } else {
        once__cli_progress_clear(&fsck->progress);
        printf("%s\n", finding->text);
    }
}

static void progress(uint64_t done, uint64_t total, void *data)
{
    fsck_t *fsck = data;

    once__cli_progress_show(&fsck->progress, done, total);
}

/* ------------------------------------------------------------------------------------------------------------- report */

static const char *index_text(once_local_index_t index)
{
    switch (index) {
    case ONCE_LOCAL_INDEX_OK:
        return "agrees with the log";
    case ONCE_LOCAL_INDEX_DIFFERS:
        return "differs from the log";
    case ONCE_LOCAL_INDEX_NONE:
        return "none: the next program that opens the store makes it";
    case ONCE_LOCAL_INDEX_LEFT:
        return "not in use: the next program compares it with the log";
    }
    return "";
}

static void line(const char *name, uint64_t number, const char *note)
{
    printf("%-10s %10" PRIu64 "%s%s\n", name, number, note[0] != '\0' ? "  " : "", note);
}

/* A number with a size beside it. */
static void line_bytes(const char *name, uint64_t number, uint64_t bytes, const char *note)
{
    char text[120];

    snprintf(text, sizeof(text), "%s%s%s", once__cli_size(bytes).text, note[0] != '\0' ? ", " : "",
             note);
    line(name, number, number > 0 ? text : "");
}

static void print_report(const once_local_fsck_report_t *report)
{
    char writing[64] = "";

    if (report->writing > 0) {
        snprintf(writing, sizeof(writing), "%" PRIu64 " being written", report->writing);
    }
    line_bytes("segments", report->segments, report->segment_bytes, writing);
    line("frames", report->frames, "");
    line("pending", report->pending, "");
    line("completed", report->completed, "");
    line("failed", report->failed, "");
    line("unknown", report->unknown, "");
    line("expired", report->expired, "not yet removed");
    if (report->newer > 0) {
        line("newer", report->newer, "written by a newer version of once");
    }
    line("missing", report->missing, report->missing > 0 ? "segments" : "");
    line_bytes("damaged", report->damaged, report->damaged_bytes, "was durable, cannot be read");
    line("torn", report->torn, report->torn > 0 ? "ends that were never durable; ignored" : "");
    line_bytes("quarantine", report->quarantined, report->quarantine_bytes,
               "inspect, then remove the files");
    printf("%-10s %10s  %s\n", "index", once__cli_size(report->index_bytes).text,
           index_text(report->index));
}

static int print_json(fsck_t *fsck, const once_local_fsck_report_t *report)
{
    static const char *const index[] = {"ok", "differs", "none", "left"};
    once__cli_json_t json;

    once__cli_json_start(&json);
    once__cli_json_number(&json, "problems", report->problems);
    once__cli_json_number(&json, "left", report->left);
    once__cli_json_number(&json, "segments", report->segments);
    once__cli_json_number(&json, "segment_bytes", report->segment_bytes);
    once__cli_json_number(&json, "writing", report->writing);
    once__cli_json_number(&json, "frames", report->frames);
    once__cli_json_number(&json, "pending", report->pending);
    once__cli_json_number(&json, "completed", report->completed);
    once__cli_json_number(&json, "failed", report->failed);
    once__cli_json_number(&json, "unknown", report->unknown);
    once__cli_json_number(&json, "expired", report->expired);
    once__cli_json_number(&json, "newer", report->newer);
    once__cli_json_number(&json, "missing", report->missing);
    once__cli_json_number(&json, "damaged", report->damaged);
    once__cli_json_number(&json, "damaged_bytes", report->damaged_bytes);
    once__cli_json_number(&json, "torn", report->torn);
    once__cli_json_text(&json, "index", index[report->index]);
    once__cli_json_number(&json, "index_bytes", report->index_bytes);
    once__cli_json_number(&json, "quarantined", report->quarantined);
    once__cli_json_number(&json, "quarantine_bytes", report->quarantine_bytes);
    once__cli_json_put(&json, "lost",
                       report->lost_known ? json_pack("{s:I, s:I, s:I, s:I}", "pending",
                                                      (json_int_t)report->lost_pending, "completed",
                                                      (json_int_t)report->lost_completed, "failed",
                                                      (json_int_t)report->lost_failed, "unknown",
                                                      (json_int_t)report->lost_unknown)
                                          : json_null());
    once__cli_json_put(&json, "findings", fsck->list);
    once__cli_json_number(&json, "findings_omitted", fsck->omitted);
    fsck->list = NULL;
    return once__cli_json_print(&json);
}

static uint64_t lost(const once_local_fsck_report_t *report)
{
    return report->lost_pending + report->lost_completed + report->lost_failed +
           report->lost_unknown;
}

/* What it means for the keys whose records were there. */
static void say_lost(const once_local_fsck_report_t *report)
{
    if (!report->lost_known && report->missing + report->damaged > 0) {
        puts("lost: an unknown number of records, because there is no index. Keys whose newest "
             "state is "
             "gone\n"
             "count as never used, or are as they were before: their operations can run again.");
    } else if (lost(report) > 0) {
        printf("lost: the newest state of %" PRIu64 " records (%" PRIu64 " pending, %" PRIu64
               " completed, %" PRIu64 " failed, %" PRIu64 " unknown).\n"
               "Their keys count as never used, or are as they were before: their operations can "
               "run again.\n",
               lost(report), report->lost_pending, report->lost_completed, report->lost_failed,
               report->lost_unknown);
    }
}

static int tell(fsck_t *fsck, const once_local_fsck_report_t *report)
{
    int code = ONCE__CLI_OK;

    if (fsck->set->json) {
        code = print_json(fsck, report);
    } else {
        if (fsck->omitted > 0) {
            printf("... and %" PRIu64 " more\n", fsck->omitted);
        }
        print_report(report);
        say_lost(report);
        if (fsck->set->repair && report->problems > report->left) {
            printf("repaired %" PRIu64 " of %" PRIu64 " problems\n",
                   report->problems - report->left, report->problems);
        }
    }
    if (code == ONCE__CLI_OK && report->left > 0) {
        once__cli_say("%" PRIu64 " problems%s", report->left,
                      fsck->set->repair ? " remain"
                                        : "; copy the directory, then see \"once help fsck\"");
        return ONCE__CLI_NO;
    }
    return code;
}

static int failed(int error, const once_error_t *err)
{
    once__cli_say("cannot check the store: %s", err->text);
    if (error == ONCE_E_CONFLICT) {
        return ONCE__CLI_REFUSED;
    }
    return error == ONCE_E_CONFIG || error == ONCE_E_UNSUPPORTED ? ONCE__CLI_USAGE
                                                                 : ONCE__CLI_STORE;
}

static int run_fsck(const once__cli_call_t *call)
{
    fsck_t fsck = {.set = call->settings, .list = json_array()};
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_error_t err = {0};
    int code;

    how.repair = fsck.set->repair;
    how.found = found;
    how.progress = progress;
    how.data = &fsck;
    once__cli_progress_start(&fsck.progress);
    code = once_local_fsck(call->url, &how, &report, &err);
    once__cli_progress_clear(&fsck.progress);
    code = code == ONCE_OK ? tell(&fsck, &report) : failed(code, &err);
    json_decref(fsck.list);
    return code;
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"repair", 0, ONCE__CLI_FLAG, NULL, "repair it; no other program may be using the store",
     offsetof(settings_t, repair)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_fsck = {
    .name = "fsck",
    .operands = "[URL]",
    .summary = "check every byte of a local store, or repair it",
    .details =
        "Without --repair nothing is changed, and programs may keep using the store. Exits with 1\n"
        "if anything that was durable is missing, damaged, or not in the index.\n"
        "\n"
        "--repair accepts the loss: missing segments are struck off the manifest, damaged ranges\n"
        "and records are taken out (a copy goes to quarantine/), and the index is rebuilt.\n"
        "First stop every program that uses the store and copy the directory; restoring missing\n"
        "files from a backup loses less. Keys whose records are lost count as never used.\n",
    .store = ONCE__CLI_NEEDS_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_fsck,
};
