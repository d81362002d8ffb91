/* Why an event was not done: what the answer says (RFC 9457), and with it the dead letter that once consume makes of it. */
#ifndef EXAMPLES_NOTIFY_PROBLEM_H
#define EXAMPLES_NOTIFY_PROBLEM_H

#define PROBLEM_BAD_EVENT "bad-event" /* it will never be different: 400 and 422 */
#define PROBLEM_REFUSED   "refused"   /* a channel refused it for good: 422 */
#define PROBLEM_HELD      "held"   /* a mail may have been sent, and must not be sent twice: 422 */
#define PROBLEM_FAILED    "failed" /* a channel did not do it this time: 503 */
#define PROBLEM_STOPPING  "stopping" /* 503 */

typedef struct problem {
    int status;
    const char *name;
    char detail[240]; /* no addresses, no payload */
} problem_t;

/* Always returns -1: for `return problem_set(...)`. */
int problem_set(problem_t *problem, int status, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* As application/problem+json; to be freed. */
char *problem_json(const problem_t *problem);

#endif
