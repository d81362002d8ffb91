#include "store/redis/scripts.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/bytes.h"

void once__redis_script_sha(once__redis_script_t script, char out[ONCE__REDIS_SHA_SIZE])
{
    const once__redis_text_t *text = &once__redis_texts[script];
    uint8_t digest[EVP_MAX_MD_SIZE] = {0};

    /* A name, not a proof. Where SHA-1 is switched off the name is wrong, Redis does not know it, and is sent the text. */
    (void)EVP_Digest(text->text, text->len, digest, NULL, EVP_sha1(), NULL);
    once__hex(out, digest, 20);
}
