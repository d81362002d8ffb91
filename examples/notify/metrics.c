#include "metrics.h"

#include <stdio.h>

const char *outcome_name(outcome_t outcome)
{
    static const char *const names[OUTCOMES] = {"sent",  "duplicate", "busy",   "failed",
                                                "doubt", "held",      "refused"};

    return names[outcome];
}

char *metrics_text(const metrics_t *metrics)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) {
        return NULL;
    }
    fprintf(
        out,
        "# HELP notify_events_total Events that were posted.\n# TYPE notify_events_total counter\n"
        "notify_events_total %lu\n",
        atomic_load(&metrics->events));
    fprintf(out,
            "# HELP notify_bad_events_total Events that cannot be made into notifications.\n"
            "# TYPE notify_bad_events_total counter\nnotify_bad_events_total %lu\n",
            atomic_load(&metrics->bad_events));
    fputs("# HELP notify_notifications_total What became of notifications.\n"
          "# TYPE notify_notifications_total counter\n",
          out);
    for (channel_t channel = 0; channel < CHANNELS; channel++) {
        for (outcome_t outcome = 0; outcome < OUTCOMES; outcome++) {
            fprintf(out, "notify_notifications_total{channel=\"%s\",outcome=\"%s\"} %lu\n",
                    channel_name(channel), outcome_name(outcome),
                    atomic_load(&metrics->notifications[channel][outcome]));
        }
    }
    fclose(out);
    return text;
}
