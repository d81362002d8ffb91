/*
 * Tokens and sessions. A token is shown once and becomes a session; a session is a cookie, and a secret that every POST repeats.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/text.h"
#include "cli/operator.h"
#include "cli/text.h"
#include "ui/ui.h"

#define SESSIONS_MAX 512
#define OWN_MAX      8 /* sessions of one name: TOKENS_MAX names never need more than there are */
#define IDLE_MS      (12 * 3600 * UINT64_C(1000)) /* a session that nobody uses ends */
#define PRINTED_MS   (3600 * UINT64_C(1000))      /* a printed token that nobody uses ends */
#define TOKENS_MAX   64
#define TOKEN_MIN    20
#define FILE_MAX     (64 * 1024)

typedef struct token {
    char text[201];
    char name[ONCE_AUDIT_BY_MAX + 1];
    once__ui_role_t role;
    uint64_t line; /* counts lines as they appear: one that stays keeps its number */
} token_t;

struct once__ui_sessions {
    pthread_mutex_t lock;
    const once__ui_settings_t *set;
    once__ui_role_t role; /* of the printed token, and of those whom a proxy names */
    token_t tokens[TOKENS_MAX];
    size_t token_count;
    uint64_t line_count;
    uint64_t printed_ms; /* when the only token was printed; 0: the tokens are those of a file */
    once__ui_session_t sessions[SESSIONS_MAX];
};

once__ui_sessions_t *once__ui_sessions_new(const once__ui_settings_t *set)
{
    once__ui_sessions_t *sessions = calloc(1, sizeof(*sessions));

    if (sessions != NULL) {
        (void)pthread_mutex_init(&sessions->lock, NULL);
        sessions->set = set;
        sessions->role = set->role != NULL && strcmp(set->role, "operate") == 0 ? ONCE__UI_OPERATE
                                                                                : ONCE__UI_VIEW;
    }
    return sessions;
}

void once__ui_sessions_free(once__ui_sessions_t *sessions)
{
    if (sessions != NULL) {
        (void)pthread_mutex_destroy(&sessions->lock);
        explicit_bzero(sessions, sizeof(*sessions));
        free(sessions);
    }
}

/* 128 random bits would do; these are 160, as 32 letters and digits. */
static int make_secret(char text[ONCE__UI_SECRET_SIZE])
{
    uint8_t bytes[20];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return -1;
    }
    once__base32(text, bytes, sizeof(bytes));
    return 0;
}

/* It is shown, and written into the audit trail: text without control characters. */
static int is_name(const char *name)
{
    size_t len = strlen(name), at = 0, one = 1;

    while (at < len && one > 0) {
        one = once__utf8_len(name + at, len - at);
        at += one;
    }
    return len > 0 && len <= ONCE_AUDIT_BY_MAX && one > 0 && once__is_field_value(name, len);
}

static int is_secret(const char *secret, const char *text)
{
    return strlen(secret) == strlen(text) && once__equal(secret, text, strlen(secret));
}

/* ----------------------------------------------------------------------------------------------------------- tokens */

/* ROLE TOKEN NAME. Returns 0, or -1 if the line is not that. */
static int read_line(char *line, token_t *token)
{
    char *rest = line, *role = strsep(&rest, " \t"), *text = strsep(&rest, " \t");

    if (text == NULL || rest == NULL) {
        return -1;
    }
    rest += strspn(rest, " \t");
    token->role = strcmp(role, "operate") == 0 ? ONCE__UI_OPERATE
                  : strcmp(role, "view") == 0  ? ONCE__UI_VIEW
                                               : ONCE__UI_NOBODY;
    if (token->role == ONCE__UI_NOBODY || strlen(text) < TOKEN_MIN ||
        strlen(text) >= sizeof(token->text) || !is_name(rest)) {
        return -1;
    }
    memcpy(token->text, text, strlen(text) + 1);
    memcpy(token->name, rest, strlen(rest) + 1);
    return 0;
}

/* A line with another token is another line: the old token may be what somebody else has found out. */
static uint64_t line_of(once__ui_sessions_t *sessions, const token_t *token)
{
    for (size_t i = 0; i < sessions->token_count; i++) {
        const token_t *old = &sessions->tokens[i];
        if (old->role == token->role && strcmp(old->name, token->name) == 0 &&
            is_secret(old->text, token->text)) {
            return old->line;
        }
    }
    return ++sessions->line_count;
}

/* Sessions whose line is gone end with it. */
static void end_sessions(once__ui_sessions_t *sessions)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        once__ui_session_t *session = &sessions->sessions[i];
        size_t k = 0;
        while (k < sessions->token_count && sessions->tokens[k].line != session->line) {
            k++;
        }
        if (k == sessions->token_count) {
            explicit_bzero(session, sizeof(*session));
        }
    }
}

static int read_lines(once__ui_sessions_t *sessions, char *text)
{
    char *rest = text, *line;
    token_t tokens[TOKENS_MAX];
    size_t count = 0;

    for (unsigned number = 1; (line = strsep(&rest, "\n")) != NULL; number++) {
        if (line[0] == '\0' || line[0] == '#') {
            continue;
        }
        if (count == TOKENS_MAX || read_line(line, &tokens[count]) != 0) {
            once__cli_say("line %u of the token file is not ROLE TOKEN NAME: view or operate, a "
                          "token of %d characters at least, and who it is (%d lines at most)",
                          number, TOKEN_MIN, TOKENS_MAX);
            return ONCE__CLI_USAGE;
        }
        count++;
    }
    if (count == 0) {
        once__cli_say("the token file has no token: one on each line, ROLE TOKEN NAME");
        return ONCE__CLI_USAGE;
    }
    (void)pthread_mutex_lock(&sessions->lock);
    for (size_t i = 0; i < count; i++) {
        tokens[i].line = line_of(sessions, &tokens[i]);
    }
    memcpy(sessions->tokens, tokens, count * sizeof(tokens[0]));
    sessions->token_count = count;
    end_sessions(sessions);
    (void)pthread_mutex_unlock(&sessions->lock);
    explicit_bzero(tokens, sizeof(tokens));
    return ONCE__CLI_OK;
}

static int read_tokens(once__ui_sessions_t *sessions)
{
    const char *path = sessions->set->token_file;
    char *text = calloc(1, FILE_MAX + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), code = ONCE__CLI_STORE;
    struct stat about;
    ssize_t len;

    if (fd < 0 || text == NULL || fstat(fd, &about) != 0) {
        once__cli_say("cannot read %s: %s", once__cli_shown(path).text, strerror(errno));
    } else if (!S_ISREG(about.st_mode) || (about.st_mode & 077) != 0) {
        once__cli_say("%s has tokens: others must not be able to read it (chmod 600)",
                      once__cli_shown(path).text);
        code = ONCE__CLI_USAGE;
    } else {
        len = read(fd, text, FILE_MAX);
        code = len >= 0 ? read_lines(sessions, text) : ONCE__CLI_STORE;
    }
    if (text != NULL) {
        explicit_bzero(text, FILE_MAX);
    }
    free(text);
    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

int once__ui_sessions_load(once__ui_sessions_t *sessions, char token[ONCE__UI_SECRET_SIZE])
{
    const once__cli_operator_t self = {0};
    token_t *only = &sessions->tokens[0];

    token[0] = '\0';
    if (sessions->set->token_file != NULL) {
        return read_tokens(sessions);
    }
    if (sessions->set->trust_header != NULL) {
        return ONCE__CLI_OK;
    }
    if (make_secret(token) != 0) {
        once__cli_say("there is no randomness");
        return ONCE__CLI_STORE;
    }
    (void)pthread_mutex_lock(&sessions->lock);
    memcpy(only->text, token, ONCE__UI_SECRET_SIZE);
    snprintf(only->name, sizeof(only->name), "%s", once__cli_operator_name(&self).text);
    only->role = sessions->role;
    sessions->token_count = 1;
    sessions->printed_ms = once__ui_now();
    (void)pthread_mutex_unlock(&sessions->lock);
    return ONCE__CLI_OK;
}

/* --------------------------------------------------------------------------------------------------------- sessions */

static int is_live(const once__ui_session_t *session, uint64_t now)
{
    return session->role != ONCE__UI_NOBODY && now - session->used_ms < IDLE_MS;
}

/*
 * A free place; that of the person's own session that was not used for longest, if the person has many; NULL if all are other
 * people's. Nobody's session ends because somebody else signs in.
 */
static once__ui_session_t *find_place(once__ui_sessions_t *sessions, const char *name, uint64_t now)
{
    once__ui_session_t *free_place = NULL, *own = NULL;
    size_t count = 0;

    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        once__ui_session_t *session = &sessions->sessions[i];
        if (!is_live(session, now)) {
            free_place = session;
        } else if (strcmp(session->name, name) == 0) {
            own = own == NULL || session->used_ms < own->used_ms ? session : own;
            count++;
        }
    }
    return count >= OWN_MAX || free_place == NULL ? own : free_place;
}

/* Returns 0; 1: there is no place, or no randomness. */
static int begin(once__ui_sessions_t *sessions, once__ui_role_t role, const char *name,
                 uint64_t line, once__ui_session_t *out)
{
    once__ui_session_t made = {.role = role, .line = line}, *place;

    snprintf(made.name, sizeof(made.name), "%s", name);
    made.used_ms = once__ui_now();
    place = find_place(sessions, made.name, made.used_ms);
    if (place == NULL || make_secret(made.id) != 0 || make_secret(made.csrf) != 0) {
        return 1;
    }
    *place = *out = made;
    return 0;
}

int once__ui_login(once__ui_sessions_t *sessions, const char *token, once__ui_session_t *session)
{
    int code = -1;

    (void)pthread_mutex_lock(&sessions->lock);
    if (sessions->printed_ms != 0 && once__ui_now() - sessions->printed_ms >= PRINTED_MS) {
        sessions->token_count = 0;
    }
    for (size_t i = 0; i < sessions->token_count; i++) {
        const token_t *known = &sessions->tokens[i];
        if (is_secret(known->text, token)) {
            code = begin(sessions, known->role, known->name, known->line, session);
            sessions->token_count =
                code == 0 && sessions->printed_ms != 0 ? 0 : sessions->token_count;
            break;
        }
    }
    (void)pthread_mutex_unlock(&sessions->lock);
    return code;
}

static once__ui_session_t *find(once__ui_sessions_t *sessions, const char *id)
{
    uint64_t now = once__ui_now();

    for (size_t i = 0; id != NULL && i < SESSIONS_MAX; i++) {
        once__ui_session_t *session = &sessions->sessions[i];
        if (is_live(session, now) && is_secret(session->id, id)) {
            session->used_ms = now;
            return session;
        }
    }
    return NULL;
}

int once__ui_session_find(once__ui_sessions_t *sessions, const char *id,
                          once__ui_session_t *session)
{
    once__ui_session_t *found;

    (void)pthread_mutex_lock(&sessions->lock);
    found = find(sessions, id);
    if (found != NULL) {
        *session = *found;
    }
    (void)pthread_mutex_unlock(&sessions->lock);
    return found != NULL ? 0 : -1;
}

int once__ui_login_trusted(once__ui_sessions_t *sessions, const char *name, const char *id,
                           once__ui_session_t *session)
{
    once__ui_session_t *found;
    int code = 0;

    if (!is_name(name)) {
        return -1;
    }
    (void)pthread_mutex_lock(&sessions->lock);
    found = find(sessions, id);
    if (found != NULL && strcmp(found->name, name) == 0) {
        *session = *found;
    } else { /* the proxy has another person now: the session is that person's no longer */
        code = begin(sessions, sessions->role, name, 0, session);
    }
    (void)pthread_mutex_unlock(&sessions->lock);
    return code;
}

void once__ui_logout(once__ui_sessions_t *sessions, const char *id)
{
    once__ui_session_t *found;

    (void)pthread_mutex_lock(&sessions->lock);
    found = find(sessions, id);
    if (found != NULL) {
        explicit_bzero(found, sizeof(*found));
    }
    (void)pthread_mutex_unlock(&sessions->lock);
}
