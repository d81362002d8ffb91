/*
 * notify: tells users of events by mail, SMS and push, each notification once. README.md says what that means for each channel.
 *
 * Start to read at delivery.c; records.c is where once is used.
 */
#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "delivery.h"
#include "log.h"
#include "options.h"
#include "server.h"

#define CLOSE_MS 10000 /* for what was sent to be recorded */

/* Before the first thread: all of them inherit it, and signals come to wait_for_end alone. */
static void block_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int serve(service_t *service, const char *address, const sigset_t *signals)
{
    server_t *server = server_start(address, service);
    int which;

    if (server == NULL) {
        return 1;
    }
    printf("notify: listening on %s\n", server_address(server));
    fflush(stdout);
    log_line(LOG_INFO, "started", "{s:s}", "listen", server_address(server));
    sigwait(signals, &which);
    log_line(LOG_INFO, "stopping", "{}");
    server_stop(server);
    log_line(LOG_INFO, "stopped", "{}");
    return 0;
}

static int start(service_t *service, const options_t *options, const sigset_t *signals)
{
    int result = 1;

    service->transport = options->transport;
    service->users = users_load(options->users);
    if (service->users != NULL && templates_load(&service->templates, options->templates) == 0 &&
        records_open(&service->records, options->store, options->ttl, options->lease,
                     options->mail) == 0) {
        result = serve(service, options->listen, signals);
    }
    records_close(&service->records, CLOSE_MS);
    templates_free(&service->templates);
    json_decref(service->users);
    return result;
}

int main(int argc, char **argv)
{
    static metrics_t metrics;
    service_t service = {.metrics = &metrics};
    options_t options;
    sigset_t signals;
    int result = options_read(&options, argc, argv);

    if (result == 0) {
        block_signals(&signals);
        curl_global_init(CURL_GLOBAL_DEFAULT);
        result = start(&service, &options, &signals);
        curl_global_cleanup();
    } else {
        result = result > 0 ? 0 : 2;
    }
    options_free(&options);
    return result;
}
