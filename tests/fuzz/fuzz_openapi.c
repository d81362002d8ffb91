/* Documents of `once gate --openapi`: whatever is in one, it is refused in words or becomes patterns of known characters. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "gate/openapi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static void check_path(const once__openapi_path_t *path)
{
    assert(path->path[0] == '/' && path->pattern[0] == '^');
    assert(path->path[strspn(path->path, LETTERS "/{}-._~!()*+,=:@&")] == '\0');
    assert(path->pattern[strspn(path->pattern, LETTERS "/[]\\^?$-._~!()*+,=:@&")] == '\0');
    assert((path->required & ~path->guarded) == 0);
    for (size_t i = 0; i < ONCE__OPENAPI_SETTINGS; i++) {
        const char *equals = path->settings[i] != NULL ? strchr(path->settings[i], '=') : NULL;
        assert(path->settings[i] == NULL || equals != NULL);
        assert(equals == NULL || strpbrk(equals, "\"'\\;$\n") == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[200] = "";
    json_t *document = once__openapi_parse((const char *)data, size, error, sizeof(error));
    once__openapi_t api;

    if (document == NULL) {
        assert(error[0] != '\0');
        return 0;
    }
    if (once__openapi_read(document, "Idempotency-Key", &api) != 0) {
        assert(api.error[0] != '\0');
    } else {
        for (size_t i = 0; i < api.count; i++) {
            check_path(&api.paths[i]);
        }
    }
    once__openapi_free(&api);
    json_decref(document);
    return 0;
}
