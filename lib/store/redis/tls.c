#include "store/redis/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>

#include "base/error.h"

static int load_trust(SSL_CTX *context, const once__redis_settings_t *s, once_error_t *err)
{
    if (s->ca == NULL && s->ca_dir == NULL) {
        return SSL_CTX_set_default_verify_paths(context) == 1
                   ? ONCE_OK
                   : once__fail(err, ONCE_E_CONFIG, "the system's certificates cannot be read");
    }
    if (SSL_CTX_load_verify_locations(context, s->ca, s->ca_dir) != 1) {
        return once__fail(err, ONCE_E_CONFIG, "%s: no certificates can be read from \"%.120s\"",
                          s->ca != NULL ? "ca" : "ca_dir", s->ca != NULL ? s->ca : s->ca_dir);
    }
    return ONCE_OK;
}

static int load_own(SSL_CTX *context, const once__redis_settings_t *s, once_error_t *err)
{
    if (s->cert == NULL) {
        return ONCE_OK;
    }
    if (SSL_CTX_use_certificate_chain_file(context, s->cert) != 1) {
        return once__fail(err, ONCE_E_CONFIG, "cert: no certificate can be read from \"%.120s\"",
                          s->cert);
    }
    if (SSL_CTX_use_PrivateKey_file(context, s->key, SSL_FILETYPE_PEM) != 1) {
        return once__fail(
            err, ONCE_E_CONFIG,
            "key: no key can be read from \"%.120s\", or it is not that of the certificate",
            s->key);
    }
    return ONCE_OK;
}

int once__redis_tls_context(SSL_CTX **context, const once__redis_settings_t *settings,
                            once_error_t *err)
{
    int code;

    *context = SSL_CTX_new(TLS_client_method());
    if (*context == NULL) {
        return once__fail(err, ONCE_E_NOMEM, "%s", once_error_text(ONCE_E_NOMEM));
    }
    SSL_CTX_set_verify(*context, SSL_VERIFY_PEER, NULL);
    (void)SSL_CTX_set_min_proto_version(*context, TLS1_2_VERSION);
    (void)SSL_CTX_set_mode(*context, SSL_MODE_RELEASE_BUFFERS);
    code = load_trust(*context, settings, err);
    code = code == ONCE_OK ? load_own(*context, settings, err) : code;
    if (code != ONCE_OK) {
        SSL_CTX_free(*context);
        *context = NULL;
    }
    ERR_clear_error(); /* the queue is the host's, too */
    return code;
}

static int expect_name(SSL *ssl, const char *name)
{
    unsigned char address[sizeof(struct in6_addr)];
    char copy[ONCE__REDIS_HOST_SIZE]; /* OpenSSL's macro wants one that it could write to */

    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    }
    if (snprintf(copy, sizeof(copy), "%s", name) >= (int)sizeof(copy)) {
        return 0;
    }
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, copy) == 1;
}

SSL *once__redis_tls_new(SSL_CTX *context, const char *name)
{
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());

    if (ssl == NULL || in == NULL || out == NULL || !expect_name(ssl, name)) {
        BIO_free(in);
        BIO_free(out);
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    (void)BIO_set_mem_eof_return(in, -1); /* empty means: not yet */
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    return ssl;
}

/* Whether an operation merely has to wait. */
static int must_wait(const SSL *ssl, int result)
{
    int why = SSL_get_error(ssl, result);

    ERR_clear_error();
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
}

int once__redis_tls_handshake(SSL *ssl)
{
    int result;

    ERR_clear_error();
    result = SSL_do_handshake(ssl);
    if (result == 1) {
        return 1;
    }
    return must_wait(ssl, result) ? 0 : -1;
}

int once__redis_tls_feed(SSL *ssl, const void *data, size_t len)
{
    return BIO_write(SSL_get_rbio(ssl), data, (int)len) == (int)len ? 0 : -1;
}

size_t once__redis_tls_drain(SSL *ssl, void *out, size_t size)
{
    int got = BIO_read(SSL_get_wbio(ssl), out, (int)size);

    return got > 0 ? (size_t)got : 0;
}

int once__redis_tls_write(SSL *ssl, const void *data, size_t len)
{
    size_t written = 0;

    ERR_clear_error();
    if (len == 0 || (SSL_write_ex(ssl, data, len, &written) == 1 && written == len)) {
        return 0;
    }
    ERR_clear_error();
    return -1;
}

int once__redis_tls_read(SSL *ssl, void *out, size_t size)
{
    int got;

    ERR_clear_error();
    got = SSL_read(ssl, out, (int)size);
    if (got > 0) {
        return got;
    }
    return must_wait(ssl, got) ? 0 : -1;
}

const char *once__redis_tls_trouble(const SSL *ssl)
{
    long verified = SSL_get_verify_result(ssl);

    return verified != X509_V_OK ? X509_verify_cert_error_string(verified)
                                 : "the TLS handshake was refused";
}
