/*
 * The publisher for RabbitMQ, as its owner sees it. librabbitmq blocks, so a separate thread talks to the broker (thread.c):
 * messages go there and verdicts come back in lists, each with an eventfd.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/amqp/internal.h"

#define WINDOW      1024 /* messages in flight */
#define CONNECT_S   10
#define HEARTBEAT_S 20

static void wake(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one));
}

once__amqp_job_t *once__amqp_list_take(once__amqp_list_t *list)
{
    once__amqp_job_t *job = list->first;

    if (job != NULL) {
        once__list_drop(list);
    }
    return job;
}

void once__amqp_answer(once__amqp_t *amqp, once__amqp_job_t *job)
{
    pthread_mutex_lock(&amqp->lock);
    once__list_add(&amqp->answers, job);
    pthread_mutex_unlock(&amqp->lock);
    wake(amqp->base.fd);
}

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
    while ((job = once__amqp_list_take(&answers)) != NULL) {
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

    while ((job = once__amqp_list_take(list)) != NULL) {
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
        pthread_create(&amqp->thread, NULL, once__amqp_thread, amqp) != 0) {
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
        amqp->base.key_window = 1;
        amqp->base.most = WINDOW;
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
