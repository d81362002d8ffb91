#include "broker/http/signature.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define PREFIX      "whsec_"
#define SECRETS_MAX 4
#define SECRET_MIN  24 /* bytes, as in Standard Webhooks */
#define SECRET_MAX  64
#define SECRET_NEW  32
#define BASE64_SIZE 92 /* of the longest secret, with what OpenSSL writes beyond its end */
#define FILE_SIZE   4096

typedef struct secret {
    unsigned char bytes[BASE64_SIZE];
    int len;
} secret_t;

struct once__http_signer {
    secret_t secrets[SECRETS_MAX];
    size_t count;
};

/* ---------------------------------------------------------------------------------------------------------- secrets */

static int read_text(const char *path, char *text, char *error, size_t size)
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
        snprintf(error, size, "users other than its owner have access to %s: chmod 600", path);
        fclose(file);
        return -1;
    }
    len = fread(text, 1, FILE_SIZE - 1, file);
    fclose(file);
    if (len == FILE_SIZE - 1 || memchr(text, '\0', len) != NULL) {
        snprintf(error, size, "%s contains no secrets: a secret is a line of text", path);
        return -1;
    }
    text[len] = '\0';
    return 0;
}

/*
 * Accepts only the canonical base64 of the bytes: a receiver's library might read another form differently, and would never
 * verify the signature.
 */
static int decode(secret_t *secret, const char *text)
{
    const unsigned char *base64 = (const unsigned char *)text + strlen(PREFIX);
    unsigned char again[BASE64_SIZE + 1];
    size_t len = strlen(text);

    if (strncmp(text, PREFIX, strlen(PREFIX)) != 0 || len - strlen(PREFIX) < 4 ||
        len - strlen(PREFIX) > (SECRET_MAX + 2) / 3 * 4) {
        return -1;
    }
    secret->len = EVP_DecodeBlock(secret->bytes, base64, (int)(len - strlen(PREFIX)));
    secret->len -= text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    if (secret->len < SECRET_MIN || secret->len > SECRET_MAX) {
        return -1;
    }
    EVP_EncodeBlock(again, secret->bytes, secret->len);
    return strcmp((const char *)again, (const char *)base64) == 0 ? 0 : -1;
}

static int read_secrets(once__http_signer_t *signer, char *text, const char *path, char *error,
                        size_t size)
{
    unsigned number = 0;

    for (char *line = text, *next; line != NULL; line = next) {
        number++;
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        line[strcspn(line, "\r")] = '\0';
        if (*line == '\0') {
            continue;
        }
        if (signer->count == SECRETS_MAX) {
            snprintf(error, size, "%s has more than %d secrets", path, SECRETS_MAX);
            return -1;
        }
        if (decode(&signer->secrets[signer->count++], line) != 0) {
            snprintf(error, size,
                     "line %u of %s is no secret of Standard Webhooks, which is " PREFIX
                     " and the base64 of %d to %d bytes: \"once secret webhook\" makes one",
                     number, path, SECRET_MIN, SECRET_MAX);
            return -1;
        }
    }
    if (signer->count == 0) {
        snprintf(error, size, "%s contains no secret: \"once secret webhook\" makes one", path);
        return -1;
    }
    return 0;
}

once__http_signer_t *once__http_signer_open(const char *path, char *error, size_t size)
{
    once__http_signer_t *signer = calloc(1, sizeof(*signer));
    char text[FILE_SIZE];

    if (signer == NULL) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    if (read_text(path, text, error, size) != 0 ||
        read_secrets(signer, text, path, error, size) != 0) {
        once__http_signer_free(signer);
        signer = NULL;
    }
    OPENSSL_cleanse(text, sizeof(text));
    return signer;
}

void once__http_signer_free(once__http_signer_t *signer)
{
    if (signer != NULL) {
        OPENSSL_cleanse(signer, sizeof(*signer));
        free(signer);
    }
}

int once__http_secret_new(char *out)
{
    unsigned char bytes[SECRET_NEW];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return -1;
    }
    memcpy(out, PREFIX, strlen(PREFIX));
    EVP_EncodeBlock((unsigned char *)out + strlen(PREFIX), bytes, sizeof(bytes));
    OPENSSL_cleanse(bytes, sizeof(bytes));
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- signing */

/* The text that is signed, allocated with malloc. */
static unsigned char *join(once_slice_t id, int64_t seconds, once_slice_t body, size_t *len)
{
    char stamp[32];
    size_t stamp_len = (size_t)snprintf(stamp, sizeof(stamp), ".%" PRId64 ".", seconds);
    unsigned char *text = malloc(id.len + stamp_len + body.len);

    *len = id.len + stamp_len + body.len;
    if (text == NULL) {
        return NULL;
    }
    memcpy(text, id.data, id.len);
    memcpy(text + id.len, stamp, stamp_len);
    if (body.len > 0) {
        memcpy(text + id.len + stamp_len, body.data, body.len);
    }
    return text;
}

int once__http_sign(const once__http_signer_t *signer, once_slice_t id, int64_t seconds,
                    once_slice_t body, char *out)
{
    unsigned char digest[EVP_MAX_MD_SIZE], base64[2 * EVP_MAX_MD_SIZE];
    unsigned digest_len = 0;
    size_t text_len, len = 0;
    unsigned char *text = join(id, seconds, body, &text_len);
    int good = text != NULL;

    for (size_t i = 0; good && i < signer->count; i++) {
        const secret_t *secret = &signer->secrets[i];
        good = HMAC(EVP_sha256(), secret->bytes, secret->len, text, text_len, digest,
                    &digest_len) != NULL;
        if (good) {
            EVP_EncodeBlock(base64, digest, (int)digest_len);
            len += (size_t)snprintf(out + len, ONCE__HTTP_SIGNATURE_SIZE - len, "%sv1,%s",
                                    i > 0 ? " " : "", (const char *)base64);
        }
    }
    free(text);
    return good ? 0 : -1;
}
