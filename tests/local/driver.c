/*
 * A process that uses a store as its standard input says, line by line: tests and campaigns run several of them, stop and kill
 * them. Uses the public interface alone, and defines some functions of the C library itself, so that its disk can stall and so
 * that it can stop or die at chosen points.
 *
 *   TAG open URL               TAG close
 *   TAG claim KEY [id=HEX32] [POLICY...]
 *   TAG complete KEY LEN|@FILE TAG release KEY   TAG early KEY   TAG doubt KEY   TAG renew KEY   TAG drop KEY
 *   TAG get KEY                TAG id KEY        TAG reap        TAG stats       TAG trouble
 *   TAG pairs PREFIX FROM TO LEN [POLICY...]                claim and complete each key
 *   TAG claims PREFIX FROM TO [POLICY...]                   claim each key; what is granted stays held
 *   TAG load FILE SEED IN_FLIGHT LEN                         random work until `unload`; FILE gets a line for each answer
 *   TAG unload                 TAG count                     answers of `load` so far, in flight, errors
 *   TAG check FILE             asks for the keys of FILE, lines "KEY EPOCH LEN" (completed) or "KEY EPOCH -" (granted, no more is
 *                              known): "ok ASKED" or "bad NUMBER OF ASKED: the first one"
 *   TAG fsck URL               "PROBLEMS INDEX: the first one", INDEX as once_local_index_t
 *   TAG stall off|all|TEXT     syncs of files whose path has TEXT wait until `off`
 *   TAG trap stop|die lock|clock|read|flock|any N            at the N-th unlocking of a shared mutex, look at the clock, end of a
 *                              read of the log (of which nothing is in memory until then), exclusive flock() of a segment, or any
 *                              of the first and of the calls that change files
 *
 * Each is answered by a line "TAG ANSWER". Lines that begin with "!" are events: "! stalled PATH", "! trapped".
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>
#include <execinfo.h>

#include <once/local.h>
#include <once/once.h>

#define KEY_SIZE 128
#define BODY_MAX (4u << 20)
#define HELD_MAX 20000
#define HOT_KEYS 40
#define RECENT   4096

/* ---------------------------------------------------------------------------------------------------- what it says */

static pthread_mutex_t output_lock = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    char line[1024];
    va_list args;
    int len;

    va_start(args, format);
    len = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    len = len < (int)sizeof(line) - 1 ? len : (int)sizeof(line) - 2;
    line[len++] = '\n';
    (void)pthread_mutex_lock(&output_lock);
    if (write(STDOUT_FILENO, line, (size_t)len) != len) {
        _exit(3);
    }
    (void)pthread_mutex_unlock(&output_lock);
}

/* -------------------------------------------------------------------------------- in place of the C library's functions */

static pthread_mutex_t stall_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stall_over = PTHREAD_COND_INITIALIZER;
static char stall[64]; /* empty: none; "all" */

static _Atomic int trap_left; /* steps until it springs; 0: not set */
static _Atomic int trap_signal;
static _Atomic int trap_kind; /* LOCK, CLOCK, READ, FLOCK or ANY */
enum { TRAP_LOCK, TRAP_CLOCK, TRAP_CALL, TRAP_READ, TRAP_FLOCK, TRAP_ANY };

static void step(int kind);

static void wait_for_disk(int fd)
{
    char link[64], path[512] = "";

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    (void)!readlink(link, path, sizeof(path) - 1);
    (void)pthread_mutex_lock(&stall_lock);
    if (stall[0] != '\0' && (strcmp(stall, "all") == 0 || strstr(path, stall) != NULL)) {
        say("! stalled %s", path);
        while (stall[0] != '\0') {
            (void)pthread_cond_wait(&stall_over, &stall_lock);
        }
    }
    (void)pthread_mutex_unlock(&stall_lock);
}

/* A disk that lies: to see that the campaign notices. */
static int does_nothing(void)
{
    return getenv("DRIVER_UNSYNCED") != NULL;
}

int fdatasync(int fd)
{
    step(TRAP_CALL);
    wait_for_disk(fd);
    return does_nothing() ? 0 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    step(TRAP_CALL);
    wait_for_disk(fd);
    return does_nothing() ? 0 : (int)syscall(SYS_fsync, fd);
}

static int is_log(int fd)
{
    char link[64], path[512] = "";

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    (void)!readlink(link, path, sizeof(path) - 1);
    return strstr(path, ".log") != NULL;
}

int flock(int fd, int how)
{
    if (trap_left > 0 && trap_kind == TRAP_FLOCK && (how & LOCK_EX) != 0 && is_log(fd)) {
        step(TRAP_FLOCK);
    }
    return (int)syscall(SYS_flock, fd, how);
}

/* With a trap for reads, nothing of the log is in memory, and the trap springs behind a read from the disk. */
static int is_log_read(int fd)
{
    return trap_left > 0 && trap_kind == TRAP_READ && is_log(fd);
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    if (is_log_read(fd)) {
        errno = EAGAIN;
        return -1;
    }
    return syscall(SYS_preadv2, fd, parts, count, offset, 0L, flags);
}

ssize_t pread(int fd, void *bytes, size_t len, off_t offset)
{
    int trapped = is_log_read(fd);
    ssize_t got = syscall(SYS_pread64, fd, bytes, len, offset);

    if (trapped) {
        step(TRAP_READ);
    }
    return got;
}

/* The id of the boot is read from the file that DRIVER_BOOT_ID names. */
int open(const char *path, int flags, ...)
{
    const char *boot = getenv("DRIVER_BOOT_ID");
    va_list args;
    unsigned mode = 0;

    va_start(args, flags);
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
        mode = va_arg(args, unsigned);
    }
    va_end(args);
    path = boot != NULL && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? boot : path;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    step(TRAP_CALL);
    return syscall(SYS_pwrite64, fd, bytes, len, offset);
}

int ftruncate(int fd, off_t len)
{
    step(TRAP_CALL);
    return (int)syscall(SYS_ftruncate, fd, len);
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    step(TRAP_CALL);
    return (int)syscall(SYS_fallocate, fd, mode, offset, len);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    step(TRAP_CALL);
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int unlinkat(int fd, const char *path, int flags)
{
    step(TRAP_CALL);
    return (int)syscall(SYS_unlinkat, fd, path, flags);
}

/* Dies before the call. */
static void step(int kind)
{
    if (trap_left > 0 &&
        (trap_kind == TRAP_ANY ? kind == TRAP_LOCK || kind == TRAP_CALL : trap_kind == kind) &&
        --trap_left == 0) {
        say("! trapped");
        (void)raise(trap_signal); /* this thread goes no further */
    }
}

int clock_gettime(clockid_t id, struct timespec *at)
{
    static _Atomic long long boot = -1; /* seconds that this boot is younger */
    int code = (int)syscall(SYS_clock_gettime, id, at);

    if (id == CLOCK_BOOTTIME) {
        if (boot < 0) {
            const char *text = getenv("DRIVER_BOOTED_AFTER");
            boot = text != NULL ? atoll(text) : 0;
        }
        at->tv_sec -= boot;
    } else if (id == CLOCK_REALTIME) { /* somebody has set the time of day */
        const char *text = getenv("DRIVER_WALL_STEP");
        at->tv_sec += text != NULL ? atoll(text) : 0;
    }
    step(TRAP_CLOCK);
    return code;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static int (*real)(pthread_mutex_t *);

    if (real == NULL) {
        real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    }
    if ((mutex->__data.__kind & 128) != 0) { /* shared by processes */
        step(TRAP_LOCK);
    }
    return real(mutex);
}

/* -------------------------------------------------------------------------------------------------------- the handle */

static once_t *once;
static once_policy_t *policies[16];
static char *policy_texts[16];

static const once_policy_t *policy_of(const char *text)
{
    once_error_t err;

    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        if (policy_texts[i] != NULL && strcmp(policy_texts[i], text) == 0) {
            return policies[i];
        }
        if (policy_texts[i] == NULL) {
            policy_texts[i] = strdup(text);
            policies[i] = once_policy_new();
            if (once_policy_parse(policies[i], text, &err) != ONCE_OK) {
                say("! policy %s", err.text);
                exit(2);
            }
            return policies[i];
        }
    }
    exit(2);
}

static struct {
    char key[KEY_SIZE];
    once_claim_t *claim;
} held[HELD_MAX];

static void hold(const char *key, once_claim_t *claim)
{
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (held[i].claim == NULL) {
            (void)snprintf(held[i].key, KEY_SIZE, "%s", key);
            held[i].claim = claim;
            return;
        }
    }
    once_claim_drop(claim);
}

static once_claim_t *take_held(const char *key)
{
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (held[i].claim != NULL && strcmp(held[i].key, key) == 0) {
            once_claim_t *claim = held[i].claim;
            held[i].claim = NULL;
            return claim;
        }
    }
    return NULL;
}

static once_claim_t *held_claim(const char *key)
{
    once_claim_t *claim = take_held(key);

    if (claim != NULL) {
        hold(key, claim);
    }
    return claim;
}

/* The body of a key and epoch, which nothing compresses: `len` bytes at most BODY_MAX. */
static const uint8_t *body_of(const char *key, uint32_t epoch, size_t len)
{
    static uint8_t body[BODY_MAX];
    uint64_t x = 0x9e3779b97f4a7c15u * (epoch + 1);

    for (const char *c = key; *c != '\0'; c++) {
        x = (x ^ (uint8_t)*c) * 0x100000001b3u;
    }
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        body[i] = (uint8_t)(x >> 32);
    }
    return body;
}

static uint32_t sum_of(const uint8_t *bytes, size_t len)
{
    uint32_t sum = 2166136261u;

    for (size_t i = 0; i < len; i++) {
        sum = (sum ^ bytes[i]) * 16777619u;
    }
    return sum;
}

/* Is the body the one that a process completed the key with? */
static int is_right_body(const char *key, const once_record_t *record)
{
    once_response_t response = ONCE_RESPONSE_INIT;

    return once_record_response(record, &response) == ONCE_OK && response.status == 201 &&
           response.body.len <= BODY_MAX &&
           memcmp(response.body.data, body_of(key, once_record_epoch(record), response.body.len),
                  response.body.len) == 0;
}

/* Everything that an answer says, as text. */
static const char *told(once_answer_t *answer)
{
    static char text[160];
    const once_record_t *record = once_answer_record(answer);
    once_response_t response = ONCE_RESPONSE_INIT;
    int code = once_answer_error(answer);

    if (code != ONCE_OK) {
        (void)snprintf(text, sizeof(text), "error %s", once_error_name(code));
    } else if (record == NULL) {
        (void)snprintf(text, sizeof(text), "%s", once_outcome_name(once_answer_outcome(answer)));
    } else if (once_record_response(record, &response) == ONCE_OK) {
        (void)snprintf(text, sizeof(text), "%s %s epoch=%u status=%d len=%zu sum=%08x",
                       once_outcome_name(once_answer_outcome(answer)),
                       once_state_name(once_record_state(record)), once_record_epoch(record),
                       response.status, response.body.len,
                       sum_of(response.body.data, response.body.len));
    } else {
        (void)snprintf(text, sizeof(text), "%s %s epoch=%u",
                       once_outcome_name(once_answer_outcome(answer)),
                       once_state_name(once_record_state(record)), once_record_epoch(record));
    }
    return text;
}

/* ------------------------------------------------------------------------------------------------------ single calls */

typedef struct call {
    char tag[32];
    char key[KEY_SIZE];
} call_t;

static call_t *call_new(const char *tag, const char *key)
{
    call_t *call = calloc(1, sizeof(*call));

    (void)snprintf(call->tag, sizeof(call->tag), "%s", tag);
    (void)snprintf(call->key, sizeof(call->key), "%s", key != NULL ? key : "");
    return call;
}

static void on_answer(once_t *handle, once_answer_t *answer, void *data)
{
    call_t *call = data;
    const once_stats_t *stats =
        once_answer_error(answer) == ONCE_OK ? once_answer_stats(answer) : NULL;

    if (once_answer_outcome(answer) == ONCE_OUTCOME_RUN) {
        once_claim_t *claim = once_answer_take_claim(answer);
        say("%s run epoch=%u", call->tag, once_claim_epoch(claim));
        hold(call->key, claim);
    } else if (stats != NULL) {
        say("%s ok records=%llu bytes=%llu segments=%llu damaged=%llu", call->tag,
            (unsigned long long)(stats->pending + stats->completed + stats->failed +
                                 stats->unknown),
            (unsigned long long)stats->bytes, (unsigned long long)stats->segments,
            (unsigned long long)stats->damaged);
    } else {
        say("%s %s", call->tag, told(answer));
    }
    free(call);
}

static void submitted(call_t *call, int code)
{
    if (code != ONCE_OK) {
        say("%s error %s", call->tag, once_error_name(code));
        free(call);
    }
}

static once_slice_t slice(const char *text)
{
    return (once_slice_t){text, strlen(text)};
}

static int begin(const char *key, const char *policy, const uint8_t *claim_id, once_cb cb,
                 void *data)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.key = slice(key);
    ask.policy = policy_of(policy);
    ask.claim_id = claim_id;
    return once_begin(once, &ask, cb, data);
}

static int complete(once_claim_t *claim, const char *key, const char *what, once_cb cb, void *data)
{
    once_response_t response = ONCE_RESPONSE_INIT;
    static uint8_t file[BODY_MAX];
    int code;

    response.status = 201;
    if (what[0] == '@') {
        int fd = open(what + 1, O_RDONLY);
        ssize_t len = read(fd, file, sizeof(file));
        response.body = (once_slice_t){file, len > 0 ? (size_t)len : 0};
        (void)close(fd);
    } else {
        size_t len = (size_t)atoll(what);
        response.body = (once_slice_t){body_of(key, once_claim_epoch(claim), len), len};
    }
    code = once_claim_complete(claim, &response, cb, data);
    if (code != ONCE_OK) {
        once_claim_drop(claim);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------- many at once */

typedef struct many {
    char tag[32], prefix[64], policy[128];
    unsigned long next, end;
    size_t len;
    int completes;
    unsigned in_flight;
    unsigned counts[16], errors, error_codes[64];
} many_t;

typedef struct one {
    many_t *many;
    char key[KEY_SIZE];
} one_t;

static void many_more(many_t *many);

static void many_end(many_t *many)
{
    char text[800];
    int len = snprintf(text, sizeof(text), "%s", many->tag);

    for (int i = 0; i < 16; i++) {
        if (many->counts[i] != 0) {
            len += snprintf(text + len, sizeof(text) - (size_t)len, " %s=%u",
                            once_outcome_name((once_outcome_t)i), many->counts[i]);
        }
    }
    for (int i = 0; i < 64; i++) {
        if (many->error_codes[i] != 0) {
            len += snprintf(text + len, sizeof(text) - (size_t)len, " %s=%u", once_error_name(-i),
                            many->error_codes[i]);
        }
    }
    say("%s", text);
    free(many);
}

static void one_end(one_t *one)
{
    many_t *many = one->many;

    free(one);
    many->in_flight--;
    many_more(many);
}

static void many_count(many_t *many, once_answer_t *answer, int code)
{
    code = answer != NULL ? once_answer_error(answer) : code;
    if (code != ONCE_OK) {
        many->error_codes[-code & 63]++;
    } else {
        many->counts[once_answer_outcome(answer) & 15]++;
    }
}

static void on_completed(once_t *handle, once_answer_t *answer, void *data)
{
    one_t *one = data;

    many_count(one->many, answer, ONCE_OK);
    one_end(one);
}

static void on_claimed(once_t *handle, once_answer_t *answer, void *data)
{
    one_t *one = data;
    many_t *many = one->many;

    many_count(many, answer, ONCE_OK);
    if (once_answer_outcome(answer) == ONCE_OUTCOME_RUN) {
        once_claim_t *claim = once_answer_take_claim(answer);
        char len[24];
        (void)snprintf(len, sizeof(len), "%zu", many->len);
        if (!many->completes) {
            hold(one->key, claim);
        } else if (complete(claim, one->key, len, on_completed, one) == ONCE_OK) {
            return;
        }
    }
    one_end(one);
}

static void many_more(many_t *many)
{
    static _Thread_local int depth;

    if (depth > 0 && many->next != many->end) {
        return; /* the loop below goes on */
    }
    depth++;
    while (many->next != many->end && many->in_flight < 256) {
        one_t *one = calloc(1, sizeof(*one));
        int code;
        one->many = many;
        (void)snprintf(one->key, sizeof(one->key), "%s%lu", many->prefix, many->next++);
        many->in_flight++;
        code = begin(one->key, many->policy, NULL, on_claimed, one);
        if (code != ONCE_OK) {
            many_count(many, NULL, code);
            many->in_flight--;
            free(one);
        }
    }
    depth--;
    if (many->in_flight == 0 && many->next == many->end) {
        many_end(many);
    }
}

/* ------------------------------------------------------------------------------------------------------- random work */

/*
 * Keys: fresh ones, which belong to this process alone and are completed, under hold; and hot ones, which all processes claim and
 * release in turn. Lines of the file (one write each, before anything further is done about the key):
 *   G KEY EPOCH        granted            C KEY EPOCH LEN   completion acknowledged (its body depends on key and epoch)
 *   R KEY EPOCH        release acknowledged
 *   P KEY EPOCH ...    was answered with a replay, busy or unknown: nothing granted
 *   E KEY 0 CODE       an error
 *   X KEY EPOCH ...    a replay whose body is not that of the key and epoch
 */
static struct {
    int fd;
    unsigned in_flight, limit;
    size_t len;
    char name[32]; /* in its keys */
    uint64_t seed, next;
    unsigned long long answers, errors;
    char recent[RECENT][KEY_SIZE]; /* completed: asked for again now and then */
    unsigned recent_count;
    int on;
} load = {.fd = -1};

typedef struct job {
    char key[KEY_SIZE];
    uint32_t epoch; /* that it was granted, or that the record has */
    int is_hot;
    size_t len;
} job_t;

static uint64_t roll(uint64_t sides)
{
    load.seed ^= load.seed << 13, load.seed ^= load.seed >> 7, load.seed ^= load.seed << 17;
    return load.seed % sides;
}

static void note(const char *what, const job_t *job, const char *more)
{
    char line[256];
    int len = snprintf(line, sizeof(line), "%s %s %u%s\n", what, job->key, job->epoch, more);

    if (write(load.fd, line, (size_t)len) != len) {
        _exit(3);
    }
}

static void job_end(job_t *job)
{
    free(job);
    load.in_flight--;
}

static void on_job_ended(once_t *handle, once_answer_t *answer, void *data)
{
    job_t *job = data;
    char more[64];

    if (once_answer_error(answer) != ONCE_OK) {
        load.errors++;
    } else if (once_answer_outcome(answer) == ONCE_OUTCOME_DONE ||
               once_answer_outcome(answer) == ONCE_OUTCOME_ALREADY) {
        (void)snprintf(more, sizeof(more), " %zu", job->len);
        note(job->is_hot ? "R" : "C", job, job->is_hot ? "" : more);
        load.answers++;
        if (!job->is_hot) {
            (void)snprintf(load.recent[roll(RECENT)], KEY_SIZE, "%s", job->key);
        }
    } else {
        note("L", job, "");
    }
    job_end(job);
}

static void on_job(once_t *handle, once_answer_t *answer, void *data)
{
    job_t *job = data;
    const once_record_t *record;
    char more[200];

    if (once_answer_error(answer) != ONCE_OK) {
        load.errors++;
        (void)snprintf(more, sizeof(more), " %s", once_error_name(once_answer_error(answer)));
        note("E", job, more);
        job_end(job);
    } else if (once_answer_outcome(answer) == ONCE_OUTCOME_RUN) {
        once_claim_t *claim = once_answer_take_claim(answer);
        int code;
        job->epoch = once_claim_epoch(claim);
        note("G", job, "");
        load.answers++;
        if (job->is_hot) {
            code = once_claim_release(claim, 503, slice(""), on_job_ended, job);
            if (code != ONCE_OK) {
                once_claim_drop(claim);
            }
        } else if (roll(50) == 0) { /* held for ever: as if its holder had gone */
            once_claim_drop(claim);
            code = 1;
        } else {
            char len[24];
            job->len = roll(20) == 0 ? roll(load.len * 20 + 1) : roll(load.len + 1);
            (void)snprintf(len, sizeof(len), "%zu", job->len);
            code = complete(claim, job->key, len, on_job_ended, job);
        }
        if (code != ONCE_OK) {
            job_end(job);
        }
    } else {
        record = once_answer_record(answer);
        job->epoch = record != NULL ? once_record_epoch(record) : 0;
        (void)snprintf(more, sizeof(more), " %s", told(answer));
        note(once_answer_outcome(answer) == ONCE_OUTCOME_REPLAY && !is_right_body(job->key, record)
                 ? "X"
                 : "P",
             job, more);
        load.answers++;
        job_end(job);
    }
}

static void load_more(void)
{
    while (load.on && load.in_flight < load.limit) {
        job_t *job = calloc(1, sizeof(*job));
        uint64_t what = roll(10);
        const char *policy = "recover=hold lease=20s ttl=30d";

        if (what == 0) {
            job->is_hot = 1;
            (void)snprintf(job->key, KEY_SIZE, "hot-%u", (unsigned)roll(HOT_KEYS));
            policy = "recover=retry lease=1s ttl=30d";
        } else if (what == 1 && load.recent[0][0] != '\0') {
            const char *recent = load.recent[roll(RECENT)];
            (void)snprintf(job->key, KEY_SIZE, "%s", recent[0] != '\0' ? recent : load.recent[0]);
        } else if (what == 2) { /* goes away again: for compaction */
            (void)snprintf(job->key, KEY_SIZE, "short-%s-%llu", load.name,
                           (unsigned long long)load.next++);
            policy = "recover=retry lease=20s ttl=1s";
        } else {
            (void)snprintf(job->key, KEY_SIZE, "key-%s-%llu", load.name,
                           (unsigned long long)load.next++);
        }
        load.in_flight++;
        if (begin(job->key, policy, NULL, on_job, job) != ONCE_OK) {
            load.errors++;
            job_end(job);
            break;
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ checks */

static struct {
    FILE *file;
    char tag[32], first[300];
    unsigned in_flight;
    unsigned long asked, bad;
} check;

typedef struct expected {
    char key[KEY_SIZE];
    unsigned epoch;
    long len; /* -1: granted, and nobody knows what became of it */
} expected_t;

static void check_more(void);

static void on_checked(once_t *handle, once_answer_t *answer, void *data)
{
    expected_t *expected = data;
    once_outcome_t outcome = once_answer_outcome(answer);
    const once_record_t *record =
        once_answer_error(answer) == ONCE_OK ? once_answer_record(answer) : NULL;
    int right = outcome == ONCE_OUTCOME_REPLAY && record != NULL &&
                is_right_body(expected->key, record) &&
                once_record_epoch(record) == expected->epoch;

    if (expected->len < 0) {
        right = right || outcome == ONCE_OUTCOME_BUSY || outcome == ONCE_OUTCOME_UNKNOWN;
    } else if (right) {
        once_response_t response = ONCE_RESPONSE_INIT;
        right = once_record_response(record, &response) == ONCE_OK &&
                response.body.len == (size_t)expected->len;
    }
    if (!right && check.bad++ == 0) {
        (void)snprintf(check.first, sizeof(check.first), "%s epoch=%u len=%ld: %s", expected->key,
                       expected->epoch, expected->len, told(answer));
    }
    if (outcome == ONCE_OUTCOME_RUN) {
        once_claim_drop(once_answer_take_claim(answer));
    }
    check.in_flight--;
    free(expected);
}

static void check_more(void)
{
    while (check.file != NULL && check.in_flight < 256) {
        expected_t *expected = calloc(1, sizeof(*expected));
        char len[32];
        if (fscanf(check.file, "%127s %u %31s", expected->key, &expected->epoch, len) != 3) {
            free(expected);
            break;
        }
        expected->len = len[0] == '-' ? -1 : atol(len);
        check.asked++;
        check.in_flight++;
        if (begin(expected->key, "recover=hold lease=20s ttl=30d", NULL, on_checked, expected) !=
            ONCE_OK) {
            check.in_flight--;
            check.bad++;
            free(expected);
        }
    }
    if (check.file != NULL && check.in_flight == 0) {
        if (check.bad == 0) {
            say("%s ok %lu", check.tag, check.asked);
        } else {
            say("%s bad %lu of %lu: %s", check.tag, check.bad, check.asked, check.first);
        }
        (void)fclose(check.file);
        memset(&check, 0, sizeof(check));
    }
}

/* ---------------------------------------------------------------------------------------------------------- commands */

/* The rest of the line, with one space between words. */
static void rest(char out[128], char **place)
{
    char *word;

    out[0] = '\0';
    while ((word = strtok_r(NULL, " ", place)) != NULL) {
        size_t len = strlen(out);
        (void)snprintf(out + len, 128 - len, "%s%s", len != 0 ? " " : "", word);
    }
}

static int hex16(uint8_t out[16], const char *text)
{
    for (int i = 0; i < 16; i++) {
        unsigned value;
        if (sscanf(text + 2 * i, "%2x", &value) != 1) {
            return 0;
        }
        out[i] = (uint8_t)value;
    }
    return 1;
}

static void do_claim(const char *tag, char **place)
{
    const char *key = strtok_r(NULL, " ", place);
    char policy[128];
    uint8_t id[16];
    int has_id = 0;

    rest(policy, place);
    if (strncmp(policy, "id=", 3) == 0) {
        char *space = strchr(policy, ' ');
        has_id = hex16(id, policy + 3);
        memmove(policy, space != NULL ? space + 1 : "", space != NULL ? strlen(space) : 1);
    }
    call_t *call = call_new(tag, key);
    submitted(call, begin(key, policy, has_id ? id : NULL, on_answer, call));
}

static void do_write(const char *tag, const char *verb, char **place)
{
    const char *key = strtok_r(NULL, " ", place), *what = strtok_r(NULL, " ", place);
    once_claim_t *claim = strcmp(verb, "renew") == 0 ? held_claim(key) : take_held(key);
    call_t *call;

    if (claim == NULL) {
        say("%s none", tag);
        return;
    }
    if (strcmp(verb, "drop") == 0) {
        once_claim_drop(claim);
        say("%s ok", tag);
        return;
    }
    call = call_new(tag, key);
    submitted(call, strcmp(verb, "complete") == 0
                        ? complete(claim, key, what != NULL ? what : "0", on_answer, call)
                    : strcmp(verb, "release") == 0
                        ? once_claim_release(claim, 503, slice(""), on_answer, call)
                    : strcmp(verb, "early") == 0
                        ? once_claim_release_early(claim, 429, slice(""), on_answer, call)
                    : strcmp(verb, "doubt") == 0
                        ? once_claim_doubt(claim, slice("timeout"), on_answer, call)
                        : once_claim_renew(claim, on_answer, call));
}

static void do_id(const char *tag, const char *verb, const char *key)
{
    uint8_t id[ONCE_ID_SIZE];
    char text[2 * ONCE_ID_SIZE + 1];
    int code = once_record_id_of(once, slice(""), slice(key), id);
    call_t *call;

    if (code != ONCE_OK) {
        say("%s error %s", tag, once_error_name(code));
        return;
    }
    if (strcmp(verb, "get") == 0) {
        call = call_new(tag, key);
        submitted(call, once_record_get(once, id, on_answer, call));
        return;
    }
    for (int i = 0; i < ONCE_ID_SIZE; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", id[i]);
    }
    say("%s %s", tag, text);
}

static void do_many(const char *tag, int completes, char **place)
{
    many_t *many = calloc(1, sizeof(*many));

    (void)snprintf(many->tag, sizeof(many->tag), "%s", tag);
    (void)snprintf(many->prefix, sizeof(many->prefix), "%s", strtok_r(NULL, " ", place));
    many->next = strtoul(strtok_r(NULL, " ", place), NULL, 10);
    many->end = strtoul(strtok_r(NULL, " ", place), NULL, 10);
    many->completes = completes;
    if (completes) {
        many->len = strtoul(strtok_r(NULL, " ", place), NULL, 10);
    }
    rest(many->policy, place);
    many_more(many);
}

static void do_stall(const char *tag, const char *what)
{
    (void)pthread_mutex_lock(&stall_lock);
    (void)snprintf(stall, sizeof(stall), "%s", strcmp(what, "off") == 0 ? "" : what);
    (void)pthread_cond_broadcast(&stall_over);
    (void)pthread_mutex_unlock(&stall_lock);
    say("%s ok", tag);
}

static void do_load(const char *tag, char **place)
{
    load.fd = open(strtok_r(NULL, " ", place), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    (void)snprintf(load.name, sizeof(load.name), "%s", strtok_r(NULL, " ", place));
    load.seed = strtoull(load.name, NULL, 10) * 2654435761u + 1;
    load.limit = (unsigned)strtoul(strtok_r(NULL, " ", place), NULL, 10);
    load.len = strtoul(strtok_r(NULL, " ", place), NULL, 10);
    load.on = 1;
    say("%s ok", tag);
}

static void on_finding(const once_local_finding_t *finding, void *data)
{
    char *first = data;

    if (!finding->harmless && first[0] == '\0') {
        (void)snprintf(first, 300, "%s: %s", finding->kind, finding->text);
    }
}

static void do_fsck(const char *tag, const char *url)
{
    once_local_fsck_options_t how = ONCE_LOCAL_FSCK_OPTIONS_INIT;
    once_local_fsck_report_t report = ONCE_LOCAL_FSCK_REPORT_INIT;
    once_error_t err = {0};
    char first[300] = "";

    how.found = on_finding;
    how.data = first;
    if (once_local_fsck(url, &how, &report, &err) != ONCE_OK) {
        say("%s error %s %s", tag, once_error_name(err.code), err.text);
    } else {
        say("%s %llu %d: %s", tag, (unsigned long long)report.problems, (int)report.index, first);
    }
}

static void run(char *line)
{
    char *place = NULL, text[300];
    const char *tag = strtok_r(line, " ", &place), *verb = strtok_r(NULL, " ", &place);
    once_error_t err = {0};
    call_t *call;

    if (strcmp(verb, "open") == 0) {
        int code = once_open(strtok_r(NULL, " ", &place), NULL, &once, &err);
        if (code == ONCE_OK) {
            say("%s ok", tag);
        } else {
            say("%s error %s %s", tag, once_error_name(code), err.text);
        }
    } else if (strcmp(verb, "close") == 0) {
        say("%s %d", tag, once_close(once, 10000));
        once = NULL;
    } else if (strcmp(verb, "claim") == 0) {
        do_claim(tag, &place);
    } else if (strcmp(verb, "get") == 0 || strcmp(verb, "id") == 0) {
        do_id(tag, verb, strtok_r(NULL, " ", &place));
    } else if (strcmp(verb, "reap") == 0) {
        call = call_new(tag, NULL);
        submitted(call, once_store_reap(once, 0, on_answer, call));
    } else if (strcmp(verb, "stats") == 0) {
        call = call_new(tag, NULL);
        submitted(call, once_store_stats(once, on_answer, call));
    } else if (strcmp(verb, "trouble") == 0) {
        (void)once_store_trouble(once, text, sizeof(text));
        say("%s trouble %s", tag, text);
    } else if (strcmp(verb, "pairs") == 0 || strcmp(verb, "claims") == 0) {
        do_many(tag, strcmp(verb, "pairs") == 0, &place);
    } else if (strcmp(verb, "load") == 0) {
        do_load(tag, &place);
    } else if (strcmp(verb, "fsck") == 0) {
        do_fsck(tag, strtok_r(NULL, " ", &place));
    } else if (strcmp(verb, "check") == 0) {
        (void)snprintf(check.tag, sizeof(check.tag), "%s", tag);
        check.file = fopen(strtok_r(NULL, " ", &place), "r");
    } else if (strcmp(verb, "unload") == 0) {
        load.on = 0;
        say("%s ok", tag);
    } else if (strcmp(verb, "count") == 0) {
        say("%s %llu %u %llu", tag, load.answers, load.in_flight, load.errors);
    } else if (strcmp(verb, "stall") == 0) {
        do_stall(tag, strtok_r(NULL, " ", &place));
    } else if (strcmp(verb, "trap") == 0) {
        trap_signal = strcmp(strtok_r(NULL, " ", &place), "stop") == 0 ? SIGSTOP : SIGKILL;
        const char *kind = strtok_r(NULL, " ", &place);
        trap_kind = strcmp(kind, "lock") == 0    ? TRAP_LOCK
                    : strcmp(kind, "clock") == 0 ? TRAP_CLOCK
                    : strcmp(kind, "read") == 0  ? TRAP_READ
                    : strcmp(kind, "flock") == 0 ? TRAP_FLOCK
                                                 : TRAP_ANY;
        trap_left = atoi(strtok_r(NULL, " ", &place));
        say("%s ok", tag);
    } else {
        do_write(tag, verb, &place);
    }
}

/* Reads what is there, and does whole lines. 0: there is no more. */
static int read_commands(void)
{
    static char buffer[65536];
    static size_t len;
    ssize_t got = read(STDIN_FILENO, buffer + len, sizeof(buffer) - len - 1);
    char *line = buffer, *end;

    if (got <= 0) {
        return 0;
    }
    len += (size_t)got;
    buffer[len] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        run(line);
        line = end + 1;
    }
    len = strlen(line);
    memmove(buffer, line, len + 1);
    return 1;
}

/* Says where it was. */
static void on_fault(int number)
{
    void *frames[64];

    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

int main(void)
{
    (void)signal(SIGSEGV, on_fault);
    (void)signal(SIGBUS, on_fault);
    (void)signal(SIGABRT, on_fault);
    for (;;) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = once != NULL ? once_fd(once) : -1, .events = POLLIN}};
        load_more();
        check_more();
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            return 2;
        }
        if (once != NULL && (fds[1].revents & POLLIN) != 0) {
            (void)once_dispatch(once);
        }
        if ((fds[0].revents & (POLLIN | POLLHUP)) != 0 && !read_commands()) {
            return 0; /* as killed: the handle stays open */
        }
    }
}
