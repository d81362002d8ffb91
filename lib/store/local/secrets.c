/*
 * The secrets in the directory of a store.
 */
#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "core/secrets.h"
#include "store/local/local.h"
#include "store/secret_file.h"

/* Another directory has taken our place: others work in that one. One that is only gone may come back. */
static int is_moved(const once__local_t *local)
{
    char path[PATH_MAX];
    struct stat here, there;
    int len = (int)strlen(local->directory.secrets_path) - (int)strlen("/secrets");

    (void)snprintf(path, sizeof(path), "%.*s", len, local->directory.secrets_path);
    return fstat(local->directory.fd, &here) == 0 && stat(path, &there) == 0 &&
           (here.st_ino != there.st_ino || here.st_dev != there.st_dev);
}

static int is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads them again when the file has changed: after a rotation, or because another installation's were put there. */
static void look_at_secrets(once__local_t *local)
{
    once__local_mark_t *mark = &local->mark;
    char text[ONCE__SECRETS_TEXT_SIZE];
    once__secrets_t secrets;
    struct stat st;

    if (fstatat(local->directory.fd, "secrets", &st, 0) != 0) {
        mark->is_there = 0;
        return;
    }
    if (mark->is_there && is_same_file(&st, &mark->file)) {
        return;
    }
    mark->is_there = once__secret_file_read(local->directory.secrets_path, text, sizeof(text),
                                            NULL) == ONCE_OK &&
                     once__secrets_parse(&secrets, text, strlen(text), NULL) == ONCE_OK;
    if (mark->is_there) {
        once__secrets_mark(&secrets, mark->bytes);
        once__secrets_wipe(&secrets);
        mark->file = st;
    }
    OPENSSL_cleanse(text, sizeof(text));
}

int once__local_fits(once__local_t *local, const once__op_t *op)
{
    once__local_mark_t *mark = &local->mark;

    if (mark->fits < 0) {
        mark->fits = !is_moved(local);
        if (mark->fits && op->mark != NULL) {
            look_at_secrets(local);
            mark->fits = mark->is_there && once__equal(mark->bytes, op->mark, ONCE__MARK_SIZE);
        }
    }
    return mark->fits;
}

/*
 * With new secrets every key of the records that are there would count as never used. But secrets that this handle has used may be
 * put back.
 */
static int read_secrets(const once__local_t *local, once__op_t *op)
{
    const char *path = local->directory.secrets_path;
    int code = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);

    if (code == ONCE_E_NOT_FOUND && once__index_entries(local->directory.log.index) > 0 &&
        !once__equal(local->mark.bytes, op->mark, ONCE__MARK_SIZE)) {
        /* Once more: another process may have made them since then, and those records with them. */
        code = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);
        code = code == ONCE_E_NOT_FOUND ? ONCE_E_SECRET : code;
    }
    return code;
}

void once__local_secrets(once__local_t *local, once__op_t *op)
{
    const char *path = local->directory.secrets_path;

    if (is_moved(local)) {
        op->error = ONCE_E_SECRET;
        return;
    }
    if (op->kind == ONCE__OP_SECRETS_SWAP) {
        op->error = once__secret_file_swap(path, op->secrets_old, op->secrets_new, NULL);
        return;
    }
    op->error = read_secrets(local, op);
    if (op->error == ONCE_E_NOT_FOUND) {
        op->error = once__secret_file_create(path, op->secrets_new, NULL);
        if (op->error == ONCE_OK) {
            op->error = once__secret_file_read(path, op->secrets, ONCE__SECRETS_TEXT_SIZE, NULL);
        }
    } else if (op->error == ONCE_OK) {
        op->error = once__secret_file_keep(path, NULL);
    }
}
