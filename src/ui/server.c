/*
 * Requests of browsers: which are heard, and who sent them. What is asked for is answered elsewhere.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "cli/text.h"
#include "service/http.h"
#include "ui/ui.h"

#define CONNECTIONS_MAX 64
#define IDLE_S          10    /* of a connection on which nothing comes */
#define REQUEST_MS      10000 /* from the end of one request to the end of the next one */
#define HEADERS_MAX     (32 * 1024)
#define BODY_MAX        (512 * 1024)
#define ORIGINS_MAX     (ONCE__CLI_LIST_MAX + 3)
#define TOO_MANY        "too many people are signed in: one of them has to sign out"

/* A connection, to be ended when it has taken too long. libmicrohttpd measures silence only. */
typedef struct line {
    int fd;            /* -1: the place is free */
    uint64_t since_ms; /* 0: it is being answered, which takes as long as store and broker take */
} line_t;

struct once__ui_server {
    once__ui_t *ui;
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock; /* of the lines */
    line_t lines[CONNECTIONS_MAX + 1];
    char cookie[24]; /* its name has the port: two pages on one host have a session each */
    char hosts[ORIGINS_MAX][300]; /* what the page may be called: HOST[:PORT] */
    char origins[ORIGINS_MAX][300];
    size_t host_count;
};

/* A POST in the making. */
typedef struct upload {
    once__buf_t body;
} upload_t;

static const struct {
    const char *method, *path;
    once__ui_role_t role; /* at least */
    once__ui_handler_t *handler;
} routes[] = {
    {"GET", "/api/records", ONCE__UI_VIEW, once__ui_records},
    {"GET", "/api/record", ONCE__UI_VIEW, once__ui_record},
    {"GET", "/api/response", ONCE__UI_VIEW, once__ui_response},
    {"GET", "/api/audit", ONCE__UI_VIEW, once__ui_audit},
    {"GET", "/api/stats", ONCE__UI_VIEW, once__ui_stats},
    {"GET", "/api/metrics", ONCE__UI_VIEW, once__ui_metrics},
    {"GET", "/api/outbox", ONCE__UI_VIEW, once__ui_outbox},
    {"GET", "/api/letters", ONCE__UI_VIEW, once__ui_letters},
    {"POST", "/api/settle", ONCE__UI_OPERATE, once__ui_settle},
    {"POST", "/api/erase", ONCE__UI_OPERATE, once__ui_erase},
    {"POST", "/api/outbox/retry", ONCE__UI_OPERATE, once__ui_retry},
    {"POST", "/api/outbox/drop", ONCE__UI_OPERATE, once__ui_drop},
    {"POST", "/api/letters/replay", ONCE__UI_OPERATE, once__ui_replay},
};

uint64_t once__ui_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

json_t *once__ui_refuse(once__ui_request_t *request, unsigned status, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    (void)vsnprintf(request->why, sizeof(request->why), format, values);
    va_end(values);
    request->status = status;
    return NULL;
}

json_t *once__ui_failed(once__ui_request_t *request, int code)
{
    static const unsigned statuses[] = {
        [ONCE__CLI_NO] = MHD_HTTP_CONFLICT,
        [ONCE__CLI_USAGE] = MHD_HTTP_BAD_REQUEST,
        [ONCE__CLI_STORE] = MHD_HTTP_SERVICE_UNAVAILABLE,
        [ONCE__CLI_NOT_FOUND] = MHD_HTTP_NOT_FOUND,
        [ONCE__CLI_REFUSED] = MHD_HTTP_CONFLICT,
    };

    request->status = code > 0 && (size_t)code < sizeof(statuses) / sizeof(statuses[0])
                          ? statuses[code]
                          : MHD_HTTP_INTERNAL_SERVER_ERROR;
    return NULL;
}

const char *once__ui_parameter(const once__ui_request_t *request, const char *name)
{
    const char *value =
        MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* ---------------------------------------------------------------------------------------------------------- answers */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              const char *text, size_t len, enum MHD_ResponseMemoryMode mode,
                              const char *cookie)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
         "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
    };
    struct MHD_Response *response =
        text != NULL ? MHD_create_response_from_buffer(len, (void *)(uintptr_t)text, mode) : NULL;
    enum MHD_Result result;

    if (response == NULL) {
        return MHD_NO;
    }
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        (void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
    }
    (void)MHD_add_response_header(response, "Content-Type", type);
    if (cookie != NULL) {
        (void)MHD_add_response_header(response, "Set-Cookie", cookie);
    }
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/* Takes `json` over. Every byte beyond ASCII is escaped. */
static enum MHD_Result answer_json(struct MHD_Connection *connection, unsigned status, json_t *json,
                                   const char *cookie)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

    json_decref(json);
    return answer(connection, status, "application/json", text, text != NULL ? strlen(text) : 0,
                  MHD_RESPMEM_MUST_FREE, cookie);
}

static enum MHD_Result answer_error(struct MHD_Connection *connection, unsigned status,
                                    const char *why)
{
    return answer_json(connection, status, json_pack("{s:s}", "error", why), NULL);
}

static enum MHD_Result answer_file(struct MHD_Connection *connection, const char *path)
{
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *name = strcmp(path, "/") == 0 ? "index.html" : path + 1;

    for (size_t i = 0; i < once__ui_files_count; i++) {
        const once__ui_file_t *file = &once__ui_files[i];
        const char *type = "text/plain";
        for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
            type = strstr(name, types[k][0]) != NULL ? types[k][1] : type;
        }
        if (strcmp(file->name, name) == 0) {
            return answer(connection, MHD_HTTP_OK, type, file->text, strlen(file->text),
                          MHD_RESPMEM_PERSISTENT, NULL);
        }
    }
    return answer_error(connection, MHD_HTTP_NOT_FOUND, "there is no such page");
}

/* ----------------------------------------------------------------------------------------------------- who may ask */

/* A name that leads here although it is not ours is how other pages reach this one (DNS rebinding). */
static const char *origin_of(const once__ui_server_t *server, const char *host)
{
    for (size_t i = 0; host != NULL && i < server->host_count; i++) {
        if (strcasecmp(server->hosts[i], host) == 0) {
            return server->origins[i];
        }
    }
    return NULL;
}

static int is_origin(const once__ui_server_t *server, const char *origin)
{
    for (size_t i = 0; origin != NULL && i < server->host_count; i++) {
        if (strcasecmp(server->origins[i], origin) == 0) {
            return 1;
        }
    }
    return 0;
}

static void add_origin(once__ui_server_t *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_origin(once__ui_server_t *server, const char *format, ...)
{
    char *origin = server->origins[server->host_count];
    va_list values;

    va_start(values, format);
    (void)vsnprintf(origin, sizeof(server->origins[0]), format, values);
    va_end(values);
    (void)snprintf(server->hosts[server->host_count], sizeof(server->hosts[0]), "%s",
                   strstr(origin, "://") + 3);
    server->host_count++;
}

static int find_session(const once__ui_server_t *server, struct MHD_Connection *connection,
                        once__ui_session_t *who)
{
    const char *trust = server->ui->set->trust_header;
    const char *name = trust != NULL ? header(connection, trust) : NULL;
    const char *id = MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, server->cookie);

    if (once__ui_session_find(server->ui->sessions, id, who) != 0) {
        return -1;
    }
    /* The proxy has the last word: without its header, or with another name in it, the cookie is worth nothing. */
    return trust == NULL || (name != NULL && strcmp(name, who->name) == 0) ? 0 : -1;
}

typedef struct cookie {
    char text[400];
} cookie_t;

static cookie_t cookie_of(const once__ui_server_t *server, struct MHD_Connection *connection,
                          const char *id)
{
    const char *origin = origin_of(server, header(connection, "Host"));
    cookie_t cookie;

    (void)snprintf(cookie.text, sizeof(cookie.text),
                   "%s=%s; Path=%s/; HttpOnly; SameSite=Strict%s%s", server->cookie, id,
                   server->ui->prefix,
                   origin != NULL && strncasecmp(origin, "https:", 6) == 0 ? "; Secure" : "",
                   id[0] == '\0' ? "; Max-Age=0" : "");
    return cookie;
}

static json_t *session_json(const once__ui_server_t *server, const once__ui_session_t *who)
{
    const once__ui_t *ui = server->ui;
    json_t *letters = json_array();

    for (size_t i = 0; i < ui->set->letters.count; i++) {
        (void)json_array_append_new(
            letters, json_string(once__cli_shown_url(ui->set->letters.items[i]).text));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:o}", "role",
                     who->role == ONCE__UI_OPERATE ? "operate" : "view", "name", who->name, "csrf",
                     who->csrf, "version", ONCE_VERSION, "store", once__cli_shown_url(ui->url).text,
                     "postgres", strncmp(ui->url, "postgres", 8) == 0, "letters", letters);
}

static enum MHD_Result answer_session(const once__ui_server_t *server,
                                      struct MHD_Connection *connection)
{
    const once__ui_t *ui = server->ui;
    const char *trust = ui->set->trust_header;
    const char *name = trust != NULL ? header(connection, trust) : NULL;
    const char *id = MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, server->cookie);
    once__ui_session_t who = {0};
    int code;

    if (find_session(server, connection, &who) == 0) {
        return answer_json(connection, MHD_HTTP_OK, session_json(server, &who), NULL);
    }
    code = name != NULL ? once__ui_login_trusted(ui->sessions, name, id, &who) : -1;
    if (code == 0) {
        return answer_json(connection, MHD_HTTP_OK, session_json(server, &who),
                           cookie_of(server, connection, who.id).text);
    }
    if (code > 0) {
        return answer_error(connection, MHD_HTTP_SERVICE_UNAVAILABLE, TOO_MANY);
    }
    return answer_error(connection, MHD_HTTP_UNAUTHORIZED,
                        trust != NULL ? "the proxy did not say who you are" : "a token is needed");
}

static enum MHD_Result answer_login(const once__ui_server_t *server,
                                    struct MHD_Connection *connection, const json_t *body)
{
    const char *token = json_string_value(json_object_get(body, "token"));
    once__ui_session_t who;
    int code = token != NULL ? once__ui_login(server->ui->sessions, token, &who) : -1;

    if (code > 0) {
        return answer_error(connection, MHD_HTTP_SERVICE_UNAVAILABLE, TOO_MANY);
    }
    if (code != 0) {
        return answer_error(connection, MHD_HTTP_UNAUTHORIZED,
                            "this token is not known, or was used already");
    }
    return answer_json(connection, MHD_HTTP_OK, session_json(server, &who),
                       cookie_of(server, connection, who.id).text);
}

static int is_csrf(struct MHD_Connection *connection, const once__ui_session_t *who)
{
    const char *given = header(connection, "X-Once-Csrf");

    return given != NULL && strlen(given) == strlen(who->csrf) &&
           once__equal(given, who->csrf, strlen(given));
}

/* ---------------------------------------------------------------------------------------------------------- requests */

static enum MHD_Result run_route(const once__ui_server_t *server, struct MHD_Connection *connection,
                                 size_t route, const once__ui_session_t *who, json_t *body)
{
    once__ui_request_t request = {.ui = server->ui,
                                  .connection = connection,
                                  .who = *who,
                                  .body = body,
                                  .status = MHD_HTTP_OK};
    char said[sizeof(request.why)];
    json_t *json;

    once__cli_hear(said, sizeof(said));
    json = routes[route].handler(&request);
    once__cli_hear(NULL, 0);
    if (json != NULL) {
        return answer_json(connection, request.status, json, NULL);
    }
    if (request.status == MHD_HTTP_OK) {
        request.status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
    return answer_error(connection, request.status,
                        request.why[0] != '\0' ? request.why
                        : said[0] != '\0'      ? said
                                               : "out of memory");
}

static enum MHD_Result answer_api(const once__ui_server_t *server,
                                  struct MHD_Connection *connection, const char *method,
                                  const char *path, json_t *body)
{
    once__ui_session_t who = {0};
    int known = find_session(server, connection, &who) == 0;
    int is_post = strcmp(method, "POST") == 0;

    if (!is_post && strcmp(path, "/api/session") == 0) {
        return answer_session(server, connection);
    }
    if (is_post && strcmp(path, "/api/login") == 0) {
        return answer_login(server, connection, body);
    }
    if (!known) {
        return answer_error(connection, MHD_HTTP_UNAUTHORIZED, "the session has ended");
    }
    if (is_post && !is_csrf(connection, &who)) {
        return answer_error(connection, MHD_HTTP_FORBIDDEN,
                            "the request did not come from the page: load it again");
    }
    if (is_post && strcmp(path, "/api/logout") == 0) {
        once__ui_logout(server->ui->sessions, who.id);
        return answer_json(connection, MHD_HTTP_OK, json_object(),
                           cookie_of(server, connection, "").text);
    }
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(routes[i].path, path) != 0 || strcmp(routes[i].method, method) != 0) {
            continue;
        }
        if (who.role < routes[i].role) {
            return answer_error(connection, MHD_HTTP_FORBIDDEN, "you may look, not decide");
        }
        return run_route(server, connection, i, &who, body);
    }
    return answer_error(connection, MHD_HTTP_NOT_FOUND, "there is nothing of this name");
}

/* The path behind the prefix; NULL: it is not below it. */
static const char *below_prefix(const once__ui_t *ui, const char *path)
{
    size_t len = strlen(ui->prefix);

    return strncmp(path, ui->prefix, len) == 0 && path[len] == '/' ? path + len : NULL;
}

static enum MHD_Result finish(const once__ui_server_t *server, struct MHD_Connection *connection,
                              const char *method, const char *path, const upload_t *upload)
{
    json_t *body = NULL;
    enum MHD_Result result;

    if (upload->body.error != ONCE_OK) {
        return answer_error(connection, MHD_HTTP_CONTENT_TOO_LARGE, "too long");
    }
    if (strcmp(method, "POST") == 0) {
        body = json_loadb(upload->body.data != NULL ? upload->body.data : "", upload->body.len,
                          JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(body)) {
            json_decref(body);
            return answer_error(connection, MHD_HTTP_BAD_REQUEST, "the body is not a JSON object");
        }
    }
    result = strncmp(path, "/api/", 5) == 0 ? answer_api(server, connection, method, path, body)
                                            : answer_file(connection, path);
    json_decref(body);
    return result;
}

typedef struct repeats {
    const char *trust;
    int hosts, names, lengths, encodings;
} repeats_t;

static enum MHD_Result count_header(void *data, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    repeats_t *repeats = data;

    (void)kind;
    (void)value;
    repeats->hosts += strcasecmp(name, "Host") == 0;
    repeats->lengths += strcasecmp(name, "Content-Length") == 0;
    repeats->encodings += strcasecmp(name, "Transfer-Encoding") == 0;
    repeats->names += repeats->trust != NULL && strcasecmp(name, repeats->trust) == 0;
    return MHD_YES;
}

/*
 * Two that differ are understood in one way here and in another by a proxy: which request it is, where it ends, and who sent it
 * (a client's own name before the one that the proxy has added).
 */
static int is_ambiguous(const once__ui_server_t *server, struct MHD_Connection *connection)
{
    repeats_t repeats = {.trust = server->ui->set->trust_header};

    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, count_header, &repeats);
    return repeats.hosts > 1 || repeats.names > 1 || repeats.lengths + repeats.encodings > 1;
}

/* What is refused before a body is read. Returns 0, or the status. */
static unsigned refusal(const once__ui_server_t *server, struct MHD_Connection *connection,
                        const char *method, const char *path, const char **why)
{
    const char *origin = header(connection, "Origin"), *type = header(connection, "Content-Type");
    const char *site = header(connection, "Sec-Fetch-Site");
    int is_post = strcmp(method, "POST") == 0, is_api = strncmp(path, "/api/", 5) == 0;

    if (is_ambiguous(server, connection)) {
        *why = "a header that must be there once is repeated";
        return MHD_HTTP_BAD_REQUEST;
    }
    if (origin_of(server, header(connection, "Host")) == NULL) {
        *why = "this page has another name; behind a proxy, give its address with --origin";
        return MHD_HTTP_MISDIRECTED_REQUEST;
    }
    if (!is_post && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        *why = "GET and POST only";
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    }
    if (is_api && ((origin != NULL || is_post) && !is_origin(server, origin))) {
        *why = "the request comes from another page";
        return MHD_HTTP_FORBIDDEN;
    }
    if (is_api && site != NULL && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0) {
        *why = "the request comes from another page";
        return MHD_HTTP_FORBIDDEN;
    }
    if (is_post && (!is_api || type == NULL || strncmp(type, "application/json", 16) != 0)) {
        *why = "a POST is JSON";
        return MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    }
    return 0;
}

static line_t *line_of(once__ui_server_t *server, int fd)
{
    for (size_t i = 0; i < sizeof(server->lines) / sizeof(server->lines[0]); i++) {
        if (server->lines[i].fd == fd) {
            return &server->lines[i];
        }
    }
    return NULL;
}

static int fd_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    return info != NULL ? info->connect_fd : -1;
}

/* From now on its time counts; 0: it does not. */
static void set_since(once__ui_server_t *server, struct MHD_Connection *connection, uint64_t since)
{
    line_t *line;

    (void)pthread_mutex_lock(&server->lock);
    line = line_of(server, fd_of(connection));
    if (line != NULL) {
        line->since_ms = since;
    }
    (void)pthread_mutex_unlock(&server->lock);
}

static enum MHD_Result handle(void *data, struct MHD_Connection *connection, const char *whole,
                              const char *method, const char *version, const char *bytes,
                              size_t *len, void **state)
{
    once__ui_server_t *server = data;
    const char *path = below_prefix(server->ui, whole), *why = NULL;
    upload_t *upload = *state;
    enum MHD_Result result;
    unsigned status;

    (void)version;
    if (upload == NULL) { /* the header is there, and a body is yet to come */
        *state = upload = calloc(1, sizeof(*upload));
        if (upload == NULL) {
            return MHD_NO;
        }
        upload->body.max = BODY_MAX;
        status = refusal(server, connection, method, path != NULL ? path : "", &why);
        if (status != 0) {
            return answer_error(connection, status, why);
        }
        return MHD_YES;
    }
    if (*len > 0) {
        (void)once__buf_add(&upload->body, bytes, *len); /* the error stays */
        *len = 0;
        return MHD_YES;
    }
    if (path == NULL) {
        return answer_error(connection, MHD_HTTP_NOT_FOUND,
                            "the page is below its prefix, with a /");
    }
    set_since(server, connection, 0);
    result = finish(server, connection, strcmp(method, "HEAD") == 0 ? "GET" : method, path, upload);
    set_since(server, connection, once__ui_now());
    return result;
}

/* ------------------------------------------------------------------------------------------------------ connections */

static void connected(void *data, struct MHD_Connection *connection, void **context,
                      enum MHD_ConnectionNotificationCode what)
{
    once__ui_server_t *server = data;
    int fd = fd_of(connection), begins = what == MHD_CONNECTION_NOTIFY_STARTED;
    line_t *line;

    (void)context;
    (void)pthread_mutex_lock(&server->lock);
    line = line_of(server, begins ? -1 : fd);
    if (line != NULL) {
        line->fd = begins ? fd : -1;
        line->since_ms = once__ui_now();
    }
    (void)pthread_mutex_unlock(&server->lock);
}

static void completed(void *data, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode why)
{
    upload_t *upload = *state;

    (void)why;
    if (upload != NULL) {
        if (upload->body.data != NULL) {
            explicit_bzero(upload->body.data, upload->body.len);
        }
        once__buf_free(&upload->body);
        free(upload);
    }
    set_since(data, connection, once__ui_now());
}

void once__ui_server_tick(once__ui_server_t *server)
{
    uint64_t now = once__ui_now();

    (void)pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < sizeof(server->lines) / sizeof(server->lines[0]); i++) {
        const line_t *line = &server->lines[i];
        if (line->fd >= 0 && line->since_ms != 0 && now - line->since_ms > REQUEST_MS) {
            (void)shutdown(line->fd, SHUT_RDWR); /* its thread notices, and closes it */
        }
    }
    (void)pthread_mutex_unlock(&server->lock);
}

static int is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    return address->ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                                         : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* Bound before the first request can come: the page's names have the port. Returns the descriptor, or -1. */
static int bind_to(struct sockaddr_storage *address, unsigned *port)
{
    int is_v6 = address->ss_family == AF_INET6, one = 1;
    socklen_t len = is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, (struct sockaddr *)address, len) != 0 || listen(fd, CONNECTIONS_MAX) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &len) != 0) {
        int error = errno;
        (void)(fd >= 0 && close(fd));
        errno = error;
        return -1;
    }
    *port = ntohs(is_v6 ? ((struct sockaddr_in6 *)address)->sin6_port
                        : ((struct sockaddr_in *)address)->sin_port);
    return fd;
}

static void name_origins(once__ui_server_t *server, const char *listen, unsigned port)
{
    const once__cli_list_t *more = &server->ui->set->origins;
    const char *colon = strrchr(listen, ':');

    (void)snprintf(server->cookie, sizeof(server->cookie), "once_ui_%u", port);
    add_origin(server, "http://%.*s:%u", colon != NULL ? (int)(colon - listen) : 9,
               colon != NULL ? listen : "127.0.0.1", port);
    add_origin(server, "http://localhost:%u", port);
    for (size_t i = 0; i < more->count; i++) {
        add_origin(server, "%s", more->items[i]);
    }
}

static once__ui_server_t *new_server(once__ui_t *ui)
{
    once__ui_server_t *server = calloc(1, sizeof(*server));

    if (server == NULL) {
        once__cli_say("out of memory");
        return NULL;
    }
    server->ui = ui;
    (void)pthread_mutex_init(&server->lock, NULL);
    for (size_t i = 0; i < sizeof(server->lines) / sizeof(server->lines[0]); i++) {
        server->lines[i].fd = -1;
    }
    return server;
}

once__ui_server_t *once__ui_server_start(once__ui_t *ui, unsigned *port)
{
    const char *listen = ui->set->listen != NULL ? ui->set->listen : "127.0.0.1:8090";
    once__ui_server_t *server;
    struct sockaddr_storage address;
    int fd;

    if (once__service_http_address(listen, &address) != 0) {
        once__cli_say("--listen needs PORT, IP:PORT or [IPV6]:PORT, not %s",
                      once__cli_shown(listen).text);
        return NULL;
    }
    if (!is_loopback(&address) && ui->set->origins.count == 0) {
        once__cli_say("the page has no TLS: it listens on loopback, unless --origin says at which "
                      "address a proxy serves it");
        return NULL;
    }
    server = new_server(ui);
    if (server == NULL) {
        return NULL;
    }
    fd = bind_to(&address, port);
    if (fd >= 0) {
        name_origins(server, listen, *port);
        errno = 0;
        /* A thread for each: requests that wait for a store which does not answer must not keep the page from saying so. */
        server->daemon = MHD_start_daemon(
            MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL,
            NULL, handle, server, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS_MAX, MHD_OPTION_NOTIFY_CONNECTION,
            connected, server, MHD_OPTION_NOTIFY_COMPLETED, completed, server, MHD_OPTION_END);
    }
    if (server->daemon == NULL) {
        once__cli_say("cannot listen at %s: %s", once__cli_shown(listen).text,
                      errno != 0 ? strerror(errno) : "libmicrohttpd refuses");
        once__ui_server_stop(server);
        return NULL;
    }
    return server;
}

void once__ui_server_stop(once__ui_server_t *server)
{
    if (server != NULL) {
        if (server->daemon != NULL) {
            MHD_stop_daemon(server->daemon);
        }
        (void)pthread_mutex_destroy(&server->lock);
        free(server);
    }
}
