/*
 * The publisher for RabbitMQ. librabbitmq blocks, so a thread of the publisher talks to the broker: messages go there and verdicts
 * come back in lists, each with an eventfd. The thread connects when there is something to send. When the connection is lost, the
 * verdict on everything in flight is `away`; the next message makes it connect again.
 *
 * What holds for the thread between two turns (assert_thread_state):
 *   I-1  what was sent and has no verdict is in flight on the present connection: without one there is none
 *   I-2  it is in the order in which it was sent
 *   I-3  there are no more of them than may be unconfirmed, and no more suspects than are remembered
 */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "broker/amqp/internal.h"

#define IN_FLIGHT   1024 /* messages in flight */
#define CONNECT_S   10
#define HEARTBEAT_S 20
#define TICK_MS     1000 /* between checks for heartbeats and for messages that are not confirmed */
#define SENT_MAX    256  /* unconfirmed at once */

static void wake(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one));
}

/* NULL: empty. */
static once__amqp_job_t *take(once__amqp_list_t *list)
{
    once__amqp_job_t *job = list->first;

    if (job != NULL) {
        once__list_drop(list);
    }
    return job;
}

/* Hands a job with its verdict to the owner. */
static void answer(once__amqp_t *amqp, once__amqp_job_t *job)
{
    pthread_mutex_lock(&amqp->lock);
    once__list_add(&amqp->answers, job);
    pthread_mutex_unlock(&amqp->lock);
    wake(amqp->base.fd);
}

/* ------------------------------------------------------------------------------------------------------ the thread */

static uint64_t clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void finish(once__amqp_t *amqp, once__amqp_job_t *job, once__broker_verdict_t verdict,
                   const char *reason)
{
    job->verdict = verdict;
    if (reason != job->reason) {
        snprintf(job->reason, sizeof(job->reason), "%s", reason);
    }
    answer(amqp, job);
}

static void say(once__amqp_t *amqp, int is_trouble, const char *sentence)
{
    once__amqp_job_t *job = calloc(1, sizeof(*job));

    if (job != NULL) {
        job->said = 1;
        finish(amqp, job, is_trouble ? ONCE__BROKER_AWAY : ONCE__BROKER_PUBLISHED, sentence);
    }
}

static once__amqp_job_t *next_job(once__amqp_t *amqp)
{
    once__amqp_job_t *job;

    pthread_mutex_lock(&amqp->lock);
    job = take(&amqp->jobs);
    pthread_mutex_unlock(&amqp->lock);
    return job;
}

static void all_away(once__amqp_t *amqp, const char *reason, int also_jobs)
{
    once__amqp_job_t *job;

    while ((job = take(&amqp->sent)) != NULL || (also_jobs && (job = next_job(amqp)) != NULL)) {
        finish(amqp, job, ONCE__BROKER_AWAY, reason);
    }
}

static void disconnect(once__amqp_t *amqp)
{
    once__amqp_disconnect(&amqp->target, amqp->connection);
    amqp->connection = NULL;
}

static void lose(once__amqp_t *amqp, const char *reason)
{
    say(amqp, 1, reason);
    disconnect(amqp);
    all_away(amqp, reason, 1);
}

/* ---------------------------------------------------------------------------------------------------------- suspects */

static int is_suspect(const once__amqp_t *amqp, const void *tag)
{
    for (size_t i = 0; i < amqp->suspect_count; i++) {
        if (amqp->suspects[i] == tag) {
            return 1;
        }
    }
    return 0;
}

/* When there are too many, the earlier ones are forgotten: the message at fault will be suspected again. */
static void suspect(once__amqp_t *amqp, void *tag)
{
    amqp->suspect_count = amqp->suspect_count < ONCE__AMQP_SUSPECTS ? amqp->suspect_count : 0;
    amqp->suspects[amqp->suspect_count++] = tag;
}

static void acquit(once__amqp_t *amqp, const void *tag)
{
    for (size_t i = 0; i < amqp->suspect_count; i++) {
        if (amqp->suspects[i] == tag) {
            amqp->suspects[i] = amqp->suspects[--amqp->suspect_count];
            return;
        }
    }
}

/* ------------------------------------------------------------------------------------------------- what RabbitMQ says */

static void confirm_one(once__amqp_t *amqp, once__amqp_job_t *job, int good)
{
    acquit(amqp, job->tag);
    if (job->returned) {
        finish(amqp, job, ONCE__BROKER_FAILED, job->reason);
    } else {
        finish(amqp, job, good ? ONCE__BROKER_PUBLISHED : ONCE__BROKER_LATER,
               good ? "" : "RabbitMQ did not accept it (nack)");
    }
}

static void confirm(once__amqp_t *amqp, uint64_t delivery, int multiple, int good)
{
    once__amqp_list_t left;
    once__amqp_job_t *job;

    once__list_init(&left);
    while ((job = take(&amqp->sent)) != NULL) {
        if (job->delivery == delivery ||
            (multiple && (job->delivery < delivery || delivery == 0))) {
            confirm_one(amqp, job, good);
        } else {
            once__list_add(&left, job);
        }
    }
    once__list_move(&amqp->sent, &left);
}

static int is_it(const once__amqp_job_t *job, amqp_bytes_t id, amqp_bytes_t routing_key)
{
    if (job->message.id.data != NULL) {
        return job->message.id.len == id.len && memcmp(job->message.id.data, id.bytes, id.len) == 0;
    }
    return strlen(job->routing_key) == routing_key.len &&
           memcmp(job->routing_key, routing_key.bytes, routing_key.len) == 0;
}

/* A message is returned before it is confirmed. Returns AMQP_STATUS_OK or another status of librabbitmq. */
static int returned(once__amqp_t *amqp, const amqp_basic_return_t *method)
{
    amqp_message_t message;
    char reason[200];
    amqp_rpc_reply_t reply;

    snprintf(reason, sizeof(reason), "RabbitMQ returned it: %d %.*s", method->reply_code,
             method->reply_text.len < 100 ? (int)method->reply_text.len : 100,
             (const char *)method->reply_text.bytes);
    reply = amqp_read_message(amqp->connection, 1, &message, 0);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        return AMQP_STATUS_CONNECTION_CLOSED;
    }
    for (once__amqp_job_t *job = amqp->sent.first; job != NULL; job = job->next) {
        if (!job->returned && is_it(job, message.properties.message_id, method->routing_key)) {
            job->returned = 1;
            snprintf(job->reason, sizeof(job->reason), "%s", reason);
            break;
        }
    }
    amqp_destroy_message(&message);
    return 0;
}

/*
 * The broker closes the channel because of one message and does not say which. If only one was in flight, it is that one;
 * otherwise each of them is sent alone the next time. For a missing exchange or permission no message is to blame.
 */
static void channel_closed(once__amqp_t *amqp, const amqp_method_t *closing)
{
    const amqp_channel_close_t *method = closing->decoded;
    char reason[256];
    int its_fault =
        method->reply_code != AMQP_NOT_FOUND && method->reply_code != AMQP_ACCESS_REFUSED;

    once__amqp_describe_close(closing, "RabbitMQ closes the channel", reason, sizeof(reason));
    if (its_fault && amqp->sent.count == 1) {
        acquit(amqp, amqp->sent.first->tag);
        finish(amqp, take(&amqp->sent), ONCE__BROKER_REFUSED, reason);
    }
    for (const once__amqp_job_t *job = amqp->sent.first; its_fault && job != NULL;
         job = job->next) {
        suspect(amqp, job->tag);
    }
    lose(amqp, reason);
}

static int take_method(once__amqp_t *amqp, const amqp_method_t *method)
{
    const amqp_basic_ack_t *ack = method->decoded;
    const amqp_basic_nack_t *nack = method->decoded;
    char reason[256];

    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD:
        confirm(amqp, ack->delivery_tag, ack->multiple, 1);
        return 0;
    case AMQP_BASIC_NACK_METHOD:
        confirm(amqp, nack->delivery_tag, nack->multiple, 0);
        return 0;
    case AMQP_BASIC_RETURN_METHOD:
        return returned(amqp, method->decoded);
    case AMQP_CHANNEL_CLOSE_METHOD:
        channel_closed(amqp, method);
        return 0;
    case AMQP_CONNECTION_CLOSE_METHOD:
        once__amqp_describe_close(method, "RabbitMQ closes the connection", reason, sizeof(reason));
        lose(amqp, reason);
        return 0;
    default:
        return 0;
    }
}

static void take_frames(once__amqp_t *amqp)
{
    struct timeval nothing = {0};
    amqp_frame_t frame;

    while (amqp->connection != NULL) {
        int status = amqp_simple_wait_frame_noblock(amqp->connection, &frame, &nothing);
        if (status == AMQP_STATUS_TIMEOUT) {
            return;
        }
        if (status == AMQP_STATUS_OK && frame.frame_type == AMQP_FRAME_METHOD) {
            status = take_method(amqp, &frame.payload.method);
        }
        if (status != AMQP_STATUS_OK && amqp->connection != NULL) {
            lose(amqp, amqp_error_string2(status));
        }
        if (amqp->connection != NULL) {
            amqp_maybe_release_buffers(amqp->connection);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ sending */

/* A suspect waits until nothing is in flight, and all others wait until the suspect has its verdict. */
static int may_send(once__amqp_t *amqp)
{
    const once__amqp_job_t *next;

    pthread_mutex_lock(&amqp->lock);
    next = amqp->jobs.first; /* only this thread takes jobs */
    pthread_mutex_unlock(&amqp->lock);
    if (amqp->connection == NULL || next == NULL || amqp->sent.count >= SENT_MAX) {
        return 0;
    }
    return amqp->sent.count == 0 ||
           (!is_suspect(amqp, next->tag) && !is_suspect(amqp, amqp->sent.first->tag));
}

static void send_jobs(once__amqp_t *amqp)
{
    while (may_send(amqp)) {
        once__amqp_job_t *job = next_job(amqp);
        const char *unfit = once__amqp_unfit(amqp, &job->message);
        int status;
        if (unfit != NULL) {
            finish(amqp, job, ONCE__BROKER_REFUSED, unfit);
            continue;
        }
        job->delivery = ++amqp->deliveries;
        job->sent_ms = clock_ms();
        once__list_add(&amqp->sent, job);
        status = once__amqp_send(amqp, job);
        if (status != AMQP_STATUS_OK) {
            lose(amqp, amqp_error_string2(status));
        }
    }
}

static void check_patience(once__amqp_t *amqp)
{
    const once__amqp_job_t *oldest = amqp->sent.first;

    if (amqp->connection != NULL && oldest != NULL &&
        clock_ms() - oldest->sent_ms > amqp->base.options.timeout_ms) {
        lose(amqp, "RabbitMQ does not confirm");
    }
}

static int has_jobs(once__amqp_t *amqp)
{
    int has;

    pthread_mutex_lock(&amqp->lock);
    has = amqp->jobs.first != NULL;
    pthread_mutex_unlock(&amqp->lock);
    return has;
}

static int connect_with_confirms(once__amqp_t *amqp, char *why, size_t size)
{
    amqp->connection = once__amqp_connect(&amqp->target, why, size);
    if (amqp->connection == NULL) {
        return -1;
    }
    amqp->deliveries = 0;
    amqp_confirm_select(amqp->connection, 1);
    if (once__amqp_check(amqp_get_rpc_reply(amqp->connection), "asking for confirms", why, size) !=
        0) {
        disconnect(amqp);
        return -1;
    }
    return 0;
}

static void connect_if_needed(once__amqp_t *amqp)
{
    char why[256];

    if (amqp->connection != NULL || !has_jobs(amqp)) {
        return;
    }
    if (connect_with_confirms(amqp, why, sizeof(why)) != 0) {
        all_away(amqp, why, 1);
    } else {
        say(amqp, 0, "connected to RabbitMQ");
    }
}

static void assert_thread_state(const once__amqp_t *amqp)
{
    const once__amqp_job_t *first = amqp->sent.first;

    assert(first == NULL || amqp->connection != NULL); /* I-1 */
    assert(first == NULL || first->next == NULL ||
           first->delivery < first->next->delivery); /* I-2 */
    assert(first == NULL || first->delivery <= amqp->deliveries);
    assert(amqp->sent.count <= SENT_MAX && amqp->suspect_count <= ONCE__AMQP_SUSPECTS); /* I-3 */
}

static void *run(void *data)
{
    once__amqp_t *amqp = data;
    uint64_t count;

    while (!atomic_load(&amqp->stop)) {
        struct pollfd polls[] = {
            {.fd = amqp->jobs_fd, .events = POLLIN},
            {.fd = amqp->connection != NULL ? atomic_load(&amqp->socket) : -1, .events = POLLIN}};
        /* Frames that librabbitmq has already read do not make the socket readable. */
        int buffered = amqp->connection != NULL && (amqp_data_in_buffer(amqp->connection) ||
                                                    amqp_frames_enqueued(amqp->connection));
        /* Not a loop of lib/loop: the socket is librabbitmq's, is replaced with every connection, and is read only here. */
        poll(polls, 2, buffered ? 0 : TICK_MS);
        (void)!read(amqp->jobs_fd, &count, sizeof(count));
        connect_if_needed(amqp);
        take_frames(amqp);
        send_jobs(amqp);
        take_frames(amqp);
        check_patience(amqp);
        assert_thread_state(amqp);
    }
    disconnect(amqp);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------- its owner */

static int amqp_publish(once__broker_publisher_t *base, const once__broker_message_t *message,
                        void *tag)
{
    once__amqp_t *amqp = (once__amqp_t *)base;
    once__amqp_job_t *job;

    if (base->pending >= base->most) {
        return -1;
    }
    job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return -1;
    }
    job->message = *message;
    job->tag = tag;
    if (once__broker_template_fill(amqp->routing_key, message, 0, job->routing_key,
                                   sizeof(job->routing_key)) != 0) {
        free(job);
        return once__broker_publisher_tell_soon(base, tag, ONCE__BROKER_REFUSED,
                                                "a routing key can have at most 255 bytes");
    }
    pthread_mutex_lock(&amqp->lock);
    once__list_add(&amqp->jobs, job);
    pthread_mutex_unlock(&amqp->lock);
    amqp->unpushed = 1;
    base->pending++;
    return 0;
}

static void amqp_push(once__broker_publisher_t *base)
{
    once__amqp_t *amqp = (once__amqp_t *)base;

    if (amqp->unpushed) {
        amqp->unpushed = 0;
        wake(amqp->jobs_fd);
    }
}

static void amqp_turn(once__broker_publisher_t *base)
{
    once__amqp_t *amqp = (once__amqp_t *)base;
    once__amqp_list_t answers;
    once__amqp_job_t *job;
    uint64_t count;

    (void)!read(base->fd, &count, sizeof(count));
    once__list_init(&answers);
    pthread_mutex_lock(&amqp->lock);
    once__list_move(&answers, &amqp->answers);
    pthread_mutex_unlock(&amqp->lock);
    while ((job = take(&answers)) != NULL) {
        if (job->said) {
            once__broker_publisher_say(base, job->verdict != ONCE__BROKER_PUBLISHED, "%s",
                                       job->reason);
        } else {
            once__broker_publisher_tell(base, job->tag, job->verdict, job->reason, 0);
        }
        free(job);
    }
}

static void amqp_wake(once__broker_publisher_t *base)
{
    wake(base->fd);
}

static void free_list(once__amqp_list_t *list)
{
    once__amqp_job_t *job;

    while ((job = take(list)) != NULL) {
        free(job);
    }
}

static void amqp_close(once__broker_publisher_t *base)
{
    once__amqp_t *amqp = (once__amqp_t *)base;
    int fd;

    if (amqp->running) {
        atomic_store(&amqp->stop, 1);
        wake(amqp->jobs_fd);
        fd = atomic_load(&amqp->socket);
        if (fd >= 0) {
            shutdown(
                fd,
                SHUT_RDWR); /* the thread may be blocked writing to a broker that does not read */
        }
        pthread_join(amqp->thread, NULL);
    }
    free_list(&amqp->jobs);
    free_list(&amqp->answers);
    free_list(&amqp->sent);
    close(base->fd);
    close(amqp->jobs_fd);
    pthread_mutex_destroy(&amqp->lock);
    free(amqp);
}

static const once__broker_publisher_ops_t ops = {amqp_publish, amqp_push, amqp_turn, amqp_wake,
                                                 amqp_close};

static int read_target(once__amqp_t *amqp, const char *ca_file)
{
    once__amqp_target_t *target = &amqp->target;

    if (once__amqp_target_read(target, &amqp->base.url) != 0) {
        return -1;
    }
    target->ca_file = target->ca_file != NULL ? target->ca_file : ca_file;
    target->authorities = "--cacert FILE, or cacert=FILE in the URL";
    target->connect_s = target->answer_s = CONNECT_S;
    target->heartbeat_s = HEARTBEAT_S;
    target->socket = &amqp->socket;
    return 0;
}

static int start(once__amqp_t *amqp, char *error, size_t size)
{
    pthread_mutex_init(&amqp->lock, NULL);
    atomic_store(&amqp->socket, -1);
    once__list_init(&amqp->jobs);
    once__list_init(&amqp->answers);
    once__list_init(&amqp->sent);
    amqp->base.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    amqp->jobs_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (amqp->base.fd < 0 || amqp->jobs_fd < 0 ||
        pthread_create(&amqp->thread, NULL, run, amqp) != 0) {
        snprintf(error, size, "a thread cannot be started");
        return -1;
    }
    amqp->running = 1;
    return 0;
}

once__broker_publisher_t *once__amqp_publisher(const once__url_t *url,
                                               const once__broker_publisher_options_t *options,
                                               char *error, size_t size)
{
    once__amqp_t *amqp = calloc(1, sizeof(*amqp));
    const char *wrong = "out of memory";

    if (amqp != NULL) {
        amqp->base.ops = &ops;
        amqp->base.options = *options;
        amqp->base.key_limit = 1;
        amqp->base.most = IN_FLIGHT;
        amqp->base.url = *url; /* the thread reads it from now on */
        amqp->routing_key = once__url_take(&amqp->base.url, "routing_key");
        amqp->routing_key = amqp->routing_key != NULL ? amqp->routing_key : "{topic}";
        amqp->base.target = amqp->routing_key;
        wrong = once__broker_template_wrong(amqp->routing_key);
        if (read_target(amqp, options->ca_file) != 0) {
            wrong = "the URL must be amqp://[USER:PASSWORD@]HOST[:PORT][/VHOST]/EXCHANGE";
        } else if (wrong == NULL && once__url_untaken(&amqp->base.url) != NULL) {
            wrong = "an amqp:// URL has the parameters routing_key, cacert, cert and key";
        }
    }
    if (wrong != NULL) {
        snprintf(error, size, "%s", wrong);
        free(amqp);
        return NULL;
    }
    if (start(amqp, error, size) != 0) {
        amqp_close(&amqp->base);
        return NULL;
    }
    return &amqp->base;
}
