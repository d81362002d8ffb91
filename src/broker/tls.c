#include "broker/tls.h"

#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <string.h>

void once__broker_tls_explain(long error, const char *authorities, char *text, size_t size)
{
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        snprintf(text, size, "its certificate has expired: the other side needs a new one");
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        snprintf(text, size, "its certificate is not valid yet: is one of the clocks wrong?");
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        snprintf(text, size,
                 "its certificate is for another name: use one of its names in the URL");
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        snprintf(text, size,
                 "its certificate was issued by an authority that is not trusted: %s names one",
                 authorities);
        break;
    default:
        snprintf(text, size, "its certificate cannot be verified: %s",
                 X509_verify_cert_error_string(error));
        break;
    }
}

/* libcurl compares names itself, before OpenSSL has a result. */
void once__broker_tls_explain_curl(CURL *easy, const char *said, const char *authorities,
                                   char *text, size_t size)
{
    long error = X509_V_OK;

    curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &error);
    if (error > X509_V_ERR_UNSPECIFIED) {
        once__broker_tls_explain(error, authorities, text, size);
    } else if (strstr(said, "target host name") != NULL) {
        once__broker_tls_explain(X509_V_ERR_HOSTNAME_MISMATCH, authorities, text, size);
    } else {
        snprintf(text, size, "%s", said);
    }
}
