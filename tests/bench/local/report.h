/*
 * The table at the end: what is required, what was measured.
 */
#ifndef TESTS_BENCH_LOCAL_REPORT_H
#define TESTS_BENCH_LOCAL_REPORT_H

typedef enum verdict {
    VERDICT_NONE, /* nothing is required */
    VERDICT_OK,
    VERDICT_BELOW, /* less than wanted, but as much the disk's doing as ours: only told */
    VERDICT_SHORT, /* falls short: the run ends with an error */
} verdict_t;

/* One row. What `measured` says is formatted as by printf. */
void report(const char *what, const char *required, verdict_t verdict, const char *measured, ...)
    __attribute__((format(printf, 4, 5)));

/* A line between the rows of two subjects. */
void report_subject(const char *subject);

/* Prints everything. Returns how many rows fall short. */
unsigned report_print(void);

#endif
