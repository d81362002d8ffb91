#include <stdarg.h>
#include <stdio.h>

#include <once/error.h>

#include "base/error.h"

const char *once_error_name(int code)
{
    switch (code) {
#define NAME(name, number, retryable, text)                                                        \
    case name:                                                                                     \
        return #name;
        ONCE_ERROR_MAP(NAME)
#undef NAME
    default:
        return "ONCE_E_?";
    }
}

const char *once_error_text(int code)
{
    switch (code) {
#define TEXT(name, number, retryable, text)                                                        \
    case name:                                                                                     \
        return text;
        ONCE_ERROR_MAP(TEXT)
#undef TEXT
    default:
        return "an error that this version does not know";
    }
}

int once_error_is_retryable(int code)
{
    static const unsigned char retryable[] = {
#define RETRYABLE(name, number, is_retryable, text) [-(number)] = (is_retryable),
        ONCE_ERROR_MAP(RETRYABLE)
#undef RETRYABLE
    };

    return code <= 0 && code > -(int)sizeof(retryable) && retryable[-code];
}

int once__fail(once_error_t *err, int code, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        err->code = code;
        (void)vsnprintf(err->text, sizeof(err->text), format, args);
        va_end(args);
    }
    return code;
}
