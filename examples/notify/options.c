#include "options.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_MAX 4096

static const char help[] =
    "usage: notify --templates FOLDER --users FILE --from ADDRESS [OPTION...]\n"
    "\n"
    "Tells users of events by mail, SMS and push. Events are posted to /events, as once consume "
    "does:\n"
    "  once consume amqp://... --to http://127.0.0.1:3000/events\n"
    "\n"
    "  --listen IP:PORT      where events are posted (127.0.0.1:3000)\n"
    "  --store URL           records of what was sent (local:notify-store)\n"
    "  --ttl TIME            how long a notification is remembered after it was sent (4h)\n"
    "  --lease TIME          how long after a crash a notification is left alone (10s)\n"
    "  --templates FOLDER    one folder for each type of event, with the files users, mail, sms, "
    "push\n"
    "  --users FILE          a JSON object: {\"ID\": {\"name\": ..., \"mail\": ..., \"sms\": ..., "
    "\"push\": ...}, ...}\n"
    "  --mail retry|hold     a mail that may have been sent is sent again (retry), or never "
    "(hold)\n"
    "  --mail-url URL        smtp://HOST:PORT (STARTTLS, unless it is this machine) or "
    "smtps://HOST:PORT\n"
    "  --mail-auth FILE      USER:PASSWORD; nobody else may be able to read the file\n"
    "  --from ADDRESS        of mails\n"
    "  --sms-url URL         a provider that takes POST with Idempotency-Key and deduplicates by "
    "it\n"
    "  --sms-auth FILE       its bearer token\n"
    "  --push-url URL        the same for push messages\n"
    "  --push-auth FILE\n"
    "  --ca FILE             certificates to trust, in place of the system's\n"
    "  --timeout SECONDS     of one message (10)\n"
    "\n"
    "A channel without a URL is off. GET /metrics counts, GET /health is up. TERM and INT end it; "
    "what was begun is finished.\n";

static int complain(const char *name, const char *why)
{
    fprintf(stderr, "notify: --%s: %s (see --help)\n", name, why);
    return -1;
}

/* The first line of a file that only its owner can read. */
static int read_secret(const char *name, const char *path, char **secret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    ssize_t len = -1;

    *secret = calloc(1, SECRET_MAX);
    if (fd >= 0 && *secret != NULL && fstat(fd, &status) == 0) {
        len = read(fd, *secret, SECRET_MAX - 1);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (len <= 0) {
        return complain(name, "the file cannot be read, or is empty");
    }
    if ((status.st_mode & 077) != 0) {
        return complain(name, "others can read the file: chmod 600");
    }
    (*secret)[strcspn(*secret, "\r\n")] = '\0';
    return 0;
}

static int set_timeout(transport_t *transport, const char *text)
{
    char *end;
    double seconds = strtod(text, &end);

    if (*end != '\0' || !(seconds >= 0.1 && seconds <= 600)) {
        return complain("timeout", "seconds, 0.1 to 600");
    }
    transport->timeout_ms = (long)(seconds * 1000);
    return 0;
}

static int check(const options_t *options)
{
    int on = 0;

    for (channel_t channel = 0; channel < CHANNELS; channel++) {
        on += options->transport.routes[channel].url != NULL;
    }
    if (options->templates == NULL || options->users == NULL) {
        return complain(options->templates == NULL ? "templates" : "users", "is needed");
    }
    if (on == 0) {
        return complain("mail-url, --sms-url, --push-url", "at least one is needed");
    }
    if (strcmp(options->mail, "retry") != 0 && strcmp(options->mail, "hold") != 0) {
        return complain("mail", "retry or hold");
    }
    if (options->transport.routes[CHANNEL_MAIL].url != NULL &&
        (options->transport.from == NULL || strchr(options->transport.from, '@') == NULL ||
         strpbrk(options->transport.from, " <>\r\n\t") != NULL)) {
        return complain("from", "mails need an address to come from");
    }
    return 0;
}

static int set_route(transport_t *transport, channel_t channel, const char *url)
{
    if (route_check(channel, url) != 0) {
        return -1;
    }
    free(transport->routes[channel].url);
    transport->routes[channel].url = strdup(url);
    return 0;
}

static int set_auth(transport_t *transport, channel_t channel, const char *name, const char *path)
{
    free(transport->routes[channel].auth);
    return read_secret(name, path, &transport->routes[channel].auth);
}

/* --mail-url, --sms-auth and so on. 1: it is none of them. */
static int set_channel(transport_t *transport, const char *name, const char *value)
{
    for (channel_t channel = 0; channel < CHANNELS; channel++) {
        const char *of = channel_name(channel);
        size_t len = strlen(of);

        if (strncmp(name, of, len) == 0 && strcmp(name + len, "-url") == 0) {
            return set_route(transport, channel, value);
        }
        if (strncmp(name, of, len) == 0 && strcmp(name + len, "-auth") == 0) {
            return set_auth(transport, channel, name, value);
        }
    }
    return 1;
}

static int set_option(options_t *options, const char *name, const char *value)
{
    const struct {
        const char *name, **text;
    } texts[] = {
        {"listen", &options->listen},   {"store", &options->store},
        {"ttl", &options->ttl},         {"lease", &options->lease},
        {"mail", &options->mail},       {"templates", &options->templates},
        {"users", &options->users},     {"from", &options->transport.from},
        {"ca", &options->transport.ca},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].text = value;
            return 0;
        }
    }
    if (strcmp(name, "timeout") == 0) {
        return set_timeout(&options->transport, value);
    }
    return set_channel(&options->transport, name, value);
}

int options_read(options_t *options, int argc, char **argv)
{
    *options = (options_t){.listen = "127.0.0.1:3000",
                           .store = "local:notify-store",
                           .ttl = "4h",
                           .lease = "10s",
                           .mail = "retry",
                           .transport = {.timeout_ms = 10000}};
    for (int i = 1; i < argc; i += 2) {
        int result;

        if (strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            return 1;
        }
        if (strncmp(argv[i], "--", 2) != 0 || i + 1 == argc) {
            fprintf(stderr, "notify: %s: not an option, or its value is missing (see --help)\n",
                    argv[i]);
            return -1;
        }
        result = set_option(options, argv[i] + 2, argv[i + 1]);
        if (result != 0) {
            return result > 0 ? complain(argv[i] + 2, "there is no such option") : -1;
        }
    }
    return check(options);
}

void options_free(options_t *options)
{
    for (channel_t channel = 0; channel < CHANNELS; channel++) {
        free(options->transport.routes[channel].url);
        free(options->transport.routes[channel].auth);
    }
}
