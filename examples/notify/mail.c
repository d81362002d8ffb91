#include "mail.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORD_BYTES 45 /* of a subject in one encoded word, which may have 75 characters */
#define LINE_BYTES 57 /* of a body in one line of 76 characters */

static int ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] >= 0x7f) {
            return 0;
        }
    }
    return 1;
}

static void put_base64(FILE *out, const char *bytes, size_t len)
{
    unsigned char text[(LINE_BYTES + 2) / 3 * 4 + 1];

    EVP_EncodeBlock(text, (const unsigned char *)bytes, (int)len);
    fputs((const char *)text, out);
}

/* Encoded words (RFC 2047), none of which ends inside a character. */
static void put_words(FILE *out, const char *text, size_t len)
{
    while (len > 0) {
        size_t n = len < WORD_BYTES ? len : WORD_BYTES;

        while (n < len && n > 1 && ((unsigned char)text[n] & 0xc0) == 0x80) {
            n--;
        }
        fputs("=?utf-8?B?", out);
        put_base64(out, text, n);
        fputs(n < len ? "?=\r\n " : "?=", out);
        text += n;
        len -= n;
    }
}

static void put_subject(FILE *out, const char *text, size_t len)
{
    fputs("Subject: ", out);
    if (ascii(text, len) && len < 200) {
        fwrite(text, 1, len, out);
    } else {
        put_words(out, text, len);
    }
    fputs("\r\n", out);
}

static void put_date(FILE *out)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm at;

    gmtime_r(&now, &at);
    fprintf(out, "Date: %s, %02d %s %d %02d:%02d:%02d +0000\r\n", days[at.tm_wday], at.tm_mday,
            months[at.tm_mon], at.tm_year + 1900, at.tm_hour, at.tm_min, at.tm_sec);
}

static int put_message_id(FILE *out, const mail_t *mail)
{
    static const char step[] = "message-id";
    once_key_t id;

    if (once_key_derive(mail->key, (once_slice_t){step, sizeof(step) - 1}, &id, NULL) != ONCE_OK) {
        return -1;
    }
    fprintf(out, "Message-ID: <%s@%s>\r\n", id.text, strchr(mail->from, '@') + 1);
    return 0;
}

/* In base64: lines stay short, nothing stands alone on a line that a mail server would take for the end. */
static void put_body(FILE *out, const char *text)
{
    size_t len = strlen(text);

    fputs("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
          "Content-Transfer-Encoding: base64\r\n\r\n",
          out);
    while (len > 0) {
        size_t n = len < LINE_BYTES ? len : LINE_BYTES;

        put_base64(out, text, n);
        fputs("\r\n", out);
        text += n;
        len -= n;
    }
}

char *mail_compose(const mail_t *mail)
{
    /* templates are checked for it, and values have none */
    const char *end = strchr(mail->text, '\n');
    char *result = NULL;
    size_t size;
    FILE *out = open_memstream(&result, &size);
    int wrong;

    if (out == NULL) {
        return NULL;
    }
    fprintf(out, "From: <%s>\r\nTo: <%s>\r\n", mail->from, mail->to);
    put_subject(out, mail->text, (size_t)(end - mail->text));
    put_date(out);
    wrong = put_message_id(out, mail);
    put_body(out, end + 2);
    if (fclose(out) != 0 || wrong) {
        free(result);
        return NULL;
    }
    return result;
}
