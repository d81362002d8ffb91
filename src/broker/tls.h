/* What is wrong with the certificate of the other side, and what a user can do about it. */
#ifndef ONCE_BROKER_TLS_H
#define ONCE_BROKER_TLS_H

#include <curl/curl.h>
#include <stddef.h>

/*
 * `error` is one of OpenSSL's X509_V_ERR_*. `authorities` says how the user names a file of authorities: "--cacert FILE".
 * Writes a clause such as "its certificate has expired: ...".
 */
void once__broker_tls_explain(long error, const char *authorities, char *text, size_t size);

/* The same for a request that ended with CURLE_PEER_FAILED_VERIFICATION; `said` is what libcurl wrote into its error buffer. */
void once__broker_tls_explain_curl(CURL *easy, const char *said, const char *authorities,
                                   char *text, size_t size);

#endif
