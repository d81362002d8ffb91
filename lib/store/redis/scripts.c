#include "store/redis/scripts.h"

#include <assert.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/bytes.h"

static const char *file(const char *name)
{
    for (size_t i = 0; i < once__redis_files_count; i++) {
        if (strcmp(once__redis_files[i].name, name) == 0) {
            return once__redis_files[i].text;
        }
    }
    assert(!"a script that is not embedded");
    return "";
}

static const char *without_flags(const char *name)
{
    const char *text = file(name);

    assert(strncmp(text, "#!lua ", 6) == 0);
    return strchr(text, '\n');
}

static void load(once__redis_text_t *script, const char *text)
{
    uint8_t digest[EVP_MAX_MD_SIZE] = {0};

    script->text = text;
    script->len = strlen(text);
    /* A name, not a proof. Where SHA-1 is switched off the name is wrong, Redis does not know it, and is sent the text. */
    (void)EVP_Digest(text, script->len, digest, NULL, EVP_sha1(), NULL);
    once__hex(script->sha, digest, 20);
}

void once__redis_scripts_load(once__redis_texts_t texts)
{
    load(&texts[ONCE__REDIS_CLAIM], without_flags("record.lua"));
    load(&texts[ONCE__REDIS_CHANGE], file("record.lua"));
    load(&texts[ONCE__REDIS_SECRETS], file("secrets.lua"));
    load(&texts[ONCE__REDIS_DICTIONARIES], file("dictionaries.lua"));
    load(&texts[ONCE__REDIS_REPLACE], file("replace.lua"));
    load(&texts[ONCE__REDIS_AUDIT_READ], without_flags("audit.lua"));
    load(&texts[ONCE__REDIS_AUDIT_ADD], file("audit.lua"));
}
