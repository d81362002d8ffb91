/*
 * What the journal has of an intent. A record whose key is the name says where the intent stands: pending and failed while it is
 * open, completed with the final answer. Its fingerprint is that of the request, and the idempotency key is made of its id and the
 * time of its first claim. When a server forgets the key is in the notes of claims that were given back, and a process that finds
 * it in an older one writes it again: the oldest notes are dropped. A second record, of another scope, has the request itself
 * (keep_request).
 */
#include <errno.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "base/uuid.h"
#include "client/internal.h"

const char *once__client_scope(int is_key, int is_request)
{
    static const char *const scopes[2][2] = {{"call name", "request name"},
                                             {"call key", "request key"}};

    return scopes[is_key != 0][is_request != 0];
}

once_ask_t once__client_ask(const once__client_call_t *call, int is_request)
{
    once_ask_t ask = ONCE_ASK_INIT;

    ask.scope = once__slice_of(once__client_scope(call->is_key, is_request));
    ask.key = once__slice_of(call->name);
    ask.method = once__slice_of(call->method);
    ask.target = once__slice_of(call->target);
    ask.bytes = once__slice(call->body, call->body_len);
    ask.policy = call->policy;
    ask.description = once__slice_of(call->what);
    return ask;
}

int once__client_key_of(const once_record_t *record, char out[ONCE_KEY_TEXT_SIZE])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    once_key_t key;
    int code = once_record_derive(record, once__slice_of("once call"), &key, NULL);

    if (code == ONCE_OK) {
        SHA256((const unsigned char *)key.text, key.len, digest);
        once__uuid4(out, digest); /* some servers take nothing but a UUID, or limit the length */
    }
    return code;
}

void once__client_pack(const once__client_call_t *call, once_header_t *headers,
                       once_response_t *response)
{
    size_t count = 0;

    headers[count++] = (once_header_t){once__slice_of("method"), once__slice_of(call->method)};
    headers[count++] = (once_header_t){once__slice_of("url"), once__slice_of(call->url)};
    headers[count++] = (once_header_t){once__slice_of("until"), once__slice_of(call->until_text)};
    headers[count++] = (once_header_t){once__slice_of("keep"), once__slice_of(call->keep_text)};
    for (size_t i = 0; i < call->line_count; i++) {
        const once__client_line_t *line = &call->lines[i];
        headers[count++] =
            line->is_credential
                ? (once_header_t){once__slice_of("credential"),
                                  once__slice(line->text, line->name_len)}
                : (once_header_t){once__slice_of("header"), once__slice_of(line->text)};
    }
    response->headers = headers;
    response->header_count = count;
    response->body = once__slice(call->body, call->body_len);
}

/* ------------------------------------------------------------------------------------------------ when a key is forgotten */

#define EXPIRES " expires="

void once__client_note(char out[ONCE__CLIENT_NOTE_SIZE], const char *how, uint64_t expires)
{
    if (expires == UINT64_MAX) {
        snprintf(out, ONCE__CLIENT_NOTE_SIZE, "%s", how);
    } else {
        snprintf(out, ONCE__CLIENT_NOTE_SIZE, "%s" EXPIRES "%" PRIu64, how, expires);
    }
}

static uint64_t read_note(once_slice_t note)
{
    const char *at = note.len > 0 ? memmem(note.data, note.len, EXPIRES, strlen(EXPIRES)) : NULL;
    uint64_t expires = UINT64_MAX;

    if (at != NULL) {
        size_t skip = (size_t)(at - (const char *)note.data) + strlen(EXPIRES);
        if (once__number_parse((const char *)note.data + skip, note.len - skip, &expires) != 0) {
            return UINT64_MAX;
        }
    }
    return expires;
}

uint64_t once__client_noted(const once_record_t *record, uint64_t *newest)
{
    once_attempt_t attempt = ONCE_ATTEMPT_INIT;
    uint64_t earliest = *newest = UINT64_MAX;

    for (unsigned n = 0; once_record_attempt(record, n, &attempt) == ONCE_OK; n++) {
        uint64_t expires = read_note(attempt.cause);
        *newest = n == 0 ? expires : *newest;
        earliest = expires < earliest ? expires : earliest;
    }
    return earliest;
}

/* ------------------------------------------------------------------------------------------------------ where it lies */

/* Makes the directory and those above it, all of them private. What exists stays as it is. */
static int make_directories(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')) != NULL; at++) {
        int bad;
        *at = '\0';
        bad = mkdir(path, 0700) != 0 && errno != EEXIST;
        *at = '/';
        if (bad) {
            return -1;
        }
    }
    return 0;
}

static char *url_of(const char *path)
{
    char *url = malloc(3 * strlen(path) + sizeof("local:"));
    size_t len = strlen("local:");

    if (url != NULL) {
        memcpy(url, "local:", len);
        for (; *path != '\0'; path++) {
            if (*path == '/') {
                url[len++] = '/';
            } else {
                len += once__percent_encode(url + len, *path);
            }
        }
        url[len] = '\0';
    }
    return url;
}

static int state_directory(char *path, size_t size, once_error_t *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len;

    if (state != NULL && state[0] == '/') {
        len = snprintf(path, size, "%s/once/call", state);
    } else if (home != NULL && home[0] == '/') {
        len = snprintf(path, size, "%s/.local/state/once/call", home);
    } else {
        return once__fail(err, ONCE_E_CONFIG,
                          "neither XDG_STATE_HOME nor HOME is set: name the journal");
    }
    if (len < 0 || (size_t)len >= size) {
        return once__fail(err, ONCE_E_CONFIG, "the path of the journal is too long");
    }
    if (make_directories(path) != 0) {
        return once__fail(err, ONCE_E_IO, "cannot make the directory of the journal: %s",
                          strerror(errno));
    }
    return ONCE_OK;
}

int once__client_journal_url(const char *journal, char **out, once_error_t *err)
{
    char path[2048] = "";
    int code = ONCE_OK;

    *out = NULL;
    if (journal == NULL) {
        code = state_directory(path, sizeof(path), err);
        journal = path;
    }
    if (code == ONCE_OK) {
        *out = strchr(journal, ':') != NULL ? strdup(journal) : url_of(journal);
        code = *out != NULL ? ONCE_OK
                            : once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    return code;
}
