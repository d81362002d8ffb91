#include "broker/signature.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define SECRETS_MAX 4
#define SECRET_MIN  16
#define FILE_SIZE   4096

struct once__signer {
    char text[FILE_SIZE]; /* the file; its line ends are zeros */
    const char *secrets[SECRETS_MAX];
    size_t count;
};

static int read_text(once__signer_t *signer, const char *path, char *error, size_t size)
{
    FILE *file = fopen(path, "re");
    struct stat status;
    size_t len;

    if (file == NULL || fstat(fileno(file), &status) != 0) {
        snprintf(error, size, "the secret cannot be read from %s: %s", path, strerror(errno));
        if (file != NULL) {
            fclose(file);
        }
        return -1;
    }
    if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) {
        snprintf(error, size, "others than its owner can use %s: chmod 600", path);
        fclose(file);
        return -1;
    }
    len = fread(signer->text, 1, sizeof(signer->text) - 1, file);
    fclose(file);
    if (len == sizeof(signer->text) - 1 || memchr(signer->text, '\0', len) != NULL) {
        snprintf(error, size, "%s holds no secrets: a secret is a line of text", path);
        return -1;
    }
    return 0;
}

static int split(once__signer_t *signer)
{
    for (char *line = signer->text; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        size_t len = end != NULL ? (size_t)(end - line) : strlen(line);
        if (end != NULL) {
            *end = '\0';
        }
        if (len > 0 && line[len - 1] == '\r') {
            line[--len] = '\0';
        }
        if (len > 0 && (len < SECRET_MIN || signer->count == SECRETS_MAX)) {
            return -1;
        }
        if (len > 0) {
            signer->secrets[signer->count++] = line;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return signer->count > 0 ? 0 : -1;
}

once__signer_t *once__signer_open(const char *path, char *error, size_t size)
{
    once__signer_t *signer = calloc(1, sizeof(*signer));

    if (signer == NULL) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    if (read_text(signer, path, error, size) != 0) {
        once__signer_free(signer);
        return NULL;
    }
    if (split(signer) != 0) {
        snprintf(error, size, "%s has one to %d secrets, each a line of at least %d bytes", path,
                 SECRETS_MAX, SECRET_MIN);
        once__signer_free(signer);
        return NULL;
    }
    return signer;
}

void once__signer_free(once__signer_t *signer)
{
    if (signer != NULL) {
        OPENSSL_cleanse(signer, sizeof(*signer));
        free(signer);
    }
}

static int hmac(const char *secret, const char *prefix, once_slice_t body, char *hex)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    size_t prefix_len = strlen(prefix);
    unsigned len = 0;
    unsigned char *text = malloc(prefix_len + body.len);
    int good;

    if (text == NULL) {
        return -1;
    }
    memcpy(text, prefix, prefix_len);
    if (body.len > 0) {
        memcpy(text + prefix_len, body.data, body.len);
    }
    good = HMAC(EVP_sha256(), secret, (int)strlen(secret), text, prefix_len + body.len, digest,
                &len) != NULL;
    free(text);
    for (unsigned i = 0; good && i < len; i++) {
        sprintf(hex + 2 * i, "%02x", digest[i]);
    }
    return good ? 0 : -1;
}

int once__sign(const once__signer_t *signer, once_slice_t body, char *out, size_t size)
{
    char prefix[32], hex[2 * EVP_MAX_MD_SIZE + 1];
    long long now = (long long)time(NULL);
    int len = snprintf(out, size, "t=%lld", now);

    snprintf(prefix, sizeof(prefix), "%lld.", now);
    for (size_t i = 0; i < signer->count; i++) {
        if (hmac(signer->secrets[i], prefix, body, hex) != 0 || (size_t)len >= size) {
            return -1;
        }
        len += snprintf(out + len, size - (size_t)len, ",v1=%s", hex);
    }
    return (size_t)len < size ? 0 : -1;
}
