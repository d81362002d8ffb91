/*
 * Where the server listens, and the token that callers over TCP show.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "serve/internal.h"
#include "service/http.h"

#define BACKLOG      511
#define LOCK_TRIES   100 /* of a folder that another server begins to use */
#define LOCK_WAIT_NS (50 * 1000 * 1000)
#define TOKEN_MIN    16 /* characters */
#define TOKEN_RANDOM 32 /* bytes of one that is made here */

/* ---------------------------------------------------------------------------------------------------------- unix sockets */

static int fill_address(struct sockaddr_un *address, const char *path)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    if (path[0] == '\0' || strlen(path) >= sizeof(address->sun_path)) {
        return -1;
    }
    memcpy(address->sun_path, path, strlen(path) + 1);
    return 0;
}

/* Is there a server at the other end? 1; 0: there is none, and the file, if there is one, is what an earlier server left. */
static int is_served(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), served;

    served = fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
             (errno != ECONNREFUSED && errno != ENOENT);
    (void)(fd >= 0 && close(fd));
    return served;
}

/* A socket in a file of this name. It has its mode from the beginning: what is at the path later may be something else. */
static int bind_file(const struct sockaddr_un *address, unsigned mode)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(0777 & ~(mode_t)mode);
    int failed = fd < 0 || bind(fd, (const struct sockaddr *)address, sizeof(*address)) != 0;

    (void)umask(mask);
    if (failed || listen(fd, BACKLOG) != 0) {
        int error = errno;
        (void)(fd >= 0 && close(fd));
        errno = error;
        return -1;
    }
    return fd;
}

/* What is at the path already: 0: nothing, or a socket that nobody serves, which is removed. -1 after saying what it is. */
static int make_room(const struct sockaddr_un *address, char *error, size_t size)
{
    struct stat found;

    if (lstat(address->sun_path, &found) != 0) {
        return 0;
    }
    if (!S_ISSOCK(found.st_mode)) {
        (void)snprintf(error, size, "%s exists and is not a socket", address->sun_path);
        return -1;
    }
    if (is_served(address)) {
        (void)snprintf(error, size, "another server listens at %s", address->sun_path);
        return -1;
    }
    return unlink(address->sun_path);
}

/*
 * Two servers that begin at the same time must not both find nobody there: the folder is locked meanwhile. -1 with errno;
 * EWOULDBLOCK: others have had it locked for long, and no signal would end a wait for them.
 */
static int lock_folder(const char *path)
{
    char copy[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    const struct timespec pause = {.tv_nsec = LOCK_WAIT_NS};
    int fd, tries = LOCK_TRIES, error;

    (void)snprintf(copy, sizeof(copy), "%s", path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || tries-- == 0) {
            error = errno;
            (void)close(fd);
            errno = error;
            return -1;
        }
        (void)nanosleep(&pause, NULL);
    }
    return fd;
}

static int listen_unix(once__serve_listener_t *listener, unsigned mode, char *error, size_t size)
{
    struct sockaddr_un address;
    struct stat found;
    int folder;

    if (fill_address(&address, listener->path) != 0) {
        (void)snprintf(error, size, "--listen unix:PATH needs a path of 1 to %zu bytes",
                       sizeof(address.sun_path) - 1);
        return -1;
    }
    folder = lock_folder(listener->path);
    if (folder < 0) {
        (void)snprintf(error, size, "cannot listen at %s: its folder: %s", listener->path,
                       errno == EWOULDBLOCK ? "another process has locked it (flock)"
                                            : strerror(errno));
        return -2;
    }
    errno = 0;
    error[0] = '\0';
    if (make_room(&address, error, size) == 0) {
        listener->fd = bind_file(&address, mode);
    }
    if (listener->fd >= 0 && lstat(listener->path, &found) == 0) {
        listener->device = found.st_dev;
        listener->inode = found.st_ino;
    } else if (error[0] == '\0') {
        (void)snprintf(error, size, "cannot listen at %s: %s", listener->path, strerror(errno));
    }
    (void)close(folder);
    return listener->fd >= 0 ? 0 : -2;
}

/* ------------------------------------------------------------------------------------------------------------------- TCP */

static int is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    return address->ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                                         : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int listen_tcp(once__serve_listener_t *listener, const char *text, char *error, size_t size)
{
    struct sockaddr_storage address;
    const char *colon = strrchr(text, ':');
    socklen_t len;
    int one = 1;

    if (once__service_http_address(text, &address) != 0 || !is_loopback(&address)) {
        (void)snprintf(error, size,
                       "--listen needs unix:PATH, 127.0.0.1:PORT or [::1]:PORT: there is no TLS, "
                       "so other addresses are not served");
        return -1;
    }
    len = address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    listener->fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0 ||
        setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(listener->fd, (struct sockaddr *)&address, len) != 0 ||
        listen(listener->fd, BACKLOG) != 0 ||
        getsockname(listener->fd, (struct sockaddr *)&address, &len) != 0) {
        (void)snprintf(error, size, "cannot listen at %.100s: %s", text, strerror(errno));
        return -2;
    }
    (void)snprintf(listener->shown, sizeof(listener->shown), "%.*s:%u",
                   colon != NULL ? (int)(colon - text) : 9, colon != NULL ? text : "127.0.0.1",
                   ntohs(address.ss_family == AF_INET6
                             ? ((struct sockaddr_in6 *)&address)->sin6_port
                             : ((struct sockaddr_in *)&address)->sin_port));
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------- listening */

int once__serve_listen(once__serve_listener_t *listener, const char *address, unsigned mode,
                       char *error, size_t size)
{
    int code;

    *listener = (once__serve_listener_t){.fd = -1};
    listener->is_unix = strncmp(address, "unix:", 5) == 0;
    if (!listener->is_unix) {
        code = listen_tcp(listener, address, error, size);
    } else if (strlen(address + 5) >= sizeof(listener->path)) {
        (void)snprintf(error, size, "--listen: the path of a socket has at most %zu bytes",
                       sizeof(listener->path) - 1);
        return -1;
    } else {
        (void)snprintf(listener->path, sizeof(listener->path), "%s", address + 5);
        (void)snprintf(listener->shown, sizeof(listener->shown), "unix:%s", listener->path);
        code = listen_unix(listener, mode, error, size);
    }
    if (code != 0) {
        once__serve_listener_close(listener);
    }
    return code;
}

void once__serve_listener_close(once__serve_listener_t *listener)
{
    struct stat found;

    if (listener->fd < 0) {
        return;
    }
    if (listener->is_unix && lstat(listener->path, &found) == 0 &&
        found.st_dev == listener->device && found.st_ino == listener->inode) {
        (void)unlink(listener->path);
    }
    (void)close(listener->fd);
    listener->fd = -1;
}

/* ----------------------------------------------------------------------------------------------------------------- token */

static int make_token(const char *path)
{
    uint8_t bytes[TOKEN_RANDOM];
    char text[ONCE__BASE64_SIZE(TOKEN_RANDOM) + 1];
    int fd, failed;
    size_t len;

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return -1;
    }
    once__base64url(text, bytes, sizeof(bytes));
    len = strlen(text);
    text[len++] = '\n';
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return -1;
    }
    failed = write(fd, text, len) != (ssize_t)len || fsync(fd) != 0;
    failed |= close(fd);
    explicit_bzero(bytes, sizeof(bytes));
    explicit_bzero(text, sizeof(text));
    return failed ? -1 : 0;
}

/* Only the owner may read it, or it is no secret. */
static int check_file(int fd, const char *path, char *error, size_t size)
{
    struct stat found;

    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
        (void)snprintf(error, size, "the token file %s is not a file", path);
        return -1;
    }
    if ((found.st_mode & 077) != 0 || (found.st_uid != geteuid() && found.st_uid != 0)) {
        (void)snprintf(error, size, "the token file %s must belong to this user and have mode 0600",
                       path);
        return -1;
    }
    return 0;
}

static int is_token_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return 0;
        }
    }
    return len >= TOKEN_MIN && len <= ONCE__SERVE_TOKEN_MAX;
}

int once__serve_token_make(const char *path, char *error, size_t size)
{
    if ((access(path, F_OK) != 0 && errno == ENOENT) && make_token(path) != 0 && errno != EEXIST) {
        (void)snprintf(error, size, "cannot make the token file %s: %s", path, strerror(errno));
        return -1;
    }
    return 0;
}

int once__serve_token_read(const char *path, char token[ONCE__SERVE_TOKEN_MAX + 1], char *error,
                           size_t size)
{
    char text[ONCE__SERVE_TOKEN_MAX + 2];
    ssize_t len = -1;
    int fd;

    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        (void)snprintf(error, size, "cannot read the token file %s: %s", path, strerror(errno));
        return -1;
    }
    if (check_file(fd, path, error, size) != 0) {
        (void)close(fd);
        return -1;
    }
    len = read(fd, text, sizeof(text));
    (void)close(fd);
    if (len > 0 && text[len - 1] == '\n') {
        len--;
    }
    if (len < 0 || !is_token_text(text, (size_t)len)) {
        (void)snprintf(error, size,
                       "the token file %s must contain one line of %d to %d visible characters",
                       path, TOKEN_MIN, ONCE__SERVE_TOKEN_MAX);
        return -1;
    }
    memcpy(token, text, (size_t)len);
    token[len] = '\0';
    explicit_bzero(text, sizeof(text));
    return 0;
}
