/*
 * once gate: the user of the workers, and what belongs to it.
 *
 * Workers parse what strangers send, so they are not root. If root starts the gate, nginx's master stays root: it opens ports
 * below 1024 and reads keys that only root may read.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/text.h"
#include "gate/internal.h"

#define ACCOUNT "once" /* the default where root starts the gate */

static int take_account(const struct passwd *account, once__gate_plan_t *plan)
{
    const struct group *group;

    if (account->pw_uid == 0) {
        return ONCE__GATE_USAGE("--user must not be root: the workers parse what "
                                "strangers send");
    }
    plan->uid = account->pw_uid;
    plan->gid = account->pw_gid;
    group = getgrgid(account->pw_gid);
    if (group == NULL || strlen(group->gr_name) >= sizeof(plan->group) ||
        strlen(account->pw_name) >= sizeof(plan->user)) {
        return ONCE__GATE_USAGE("--user: the account's group has no name");
    }
    snprintf(plan->user, sizeof(plan->user), "%s", account->pw_name);
    snprintf(plan->group, sizeof(plan->group), "%s", group->gr_name);
    return ONCE__CLI_OK;
}

int once__gate_read_user(once__gate_plan_t *plan)
{
    const struct passwd *account;

    if (plan->options->user == NULL && geteuid() != 0) {
        return ONCE__CLI_OK;
    }
    account = getpwnam(plan->options->user != NULL ? plan->options->user : ACCOUNT);
    if (account != NULL && geteuid() != 0) {
        return account->pw_uid == geteuid()
                   ? ONCE__CLI_OK
                   : ONCE__GATE_USAGE("--user: only root can run workers as another user");
    }
    if (account != NULL) {
        return take_account(account, plan);
    }
    if (plan->options->user != NULL) {
        return ONCE__GATE_USAGE("--user: unknown user \"%s\"",
                                once__cli_shown(plan->options->user).text);
    }
    if (plan->options->print_config) {
        return ONCE__CLI_OK;
    }
    return ONCE__GATE_USAGE("started by root, it needs a user for the workers: "
                            "--user NAME, or create the default one: "
                            "useradd --system " ACCOUNT);
}

int once__gate_as_user(const once__gate_plan_t *plan, int (*work)(const once__gate_plan_t *plan))
{
    int status = 0;
    pid_t pid;

    if (plan->user[0] == '\0') {
        return work(plan);
    }
    fflush(stdout);
    fflush(stderr);
    pid = fork();
    if (pid == 0) {
        int code = ONCE__CLI_STORE;
        if (initgroups(plan->user, plan->gid) != 0 || setgid(plan->gid) != 0 ||
            setuid(plan->uid) != 0) {
            once__cli_say("cannot become %s: %s", plan->user, strerror(errno));
        } else {
            code = work(plan);
        }
        fflush(stderr);
        _exit(code);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid < 0 || !WIFEXITED(status)) {
        once__cli_say("cannot open the store as %s", plan->user);
        return ONCE__CLI_STORE;
    }
    return WEXITSTATUS(status);
}

/* Uses descriptors, so that nothing else can be put in its place meanwhile. */
int once__gate_make_store(const once__gate_plan_t *plan)
{
    char parent[ONCE__GATE_PATH_SIZE];
    char *name;
    int above, fd = -1, made;

    if (plan->user[0] == '\0' || plan->folder[0] == '\0') {
        return 0;
    }
    snprintf(parent, sizeof(parent), "%s", plan->folder);
    while (strlen(parent) > 1 && parent[strlen(parent) - 1] == '/') {
        parent[strlen(parent) - 1] = '\0';
    }
    name = strrchr(parent, '/');
    if (name == NULL || name[1] == '\0') {
        return 0;
    }
    *name++ = '\0';
    above = open(parent[0] != '\0' ? parent : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    made = above >= 0 && mkdirat(above, name, 0700) == 0;
    if (made) {
        fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (made && (fd < 0 || fchown(fd, plan->uid, plan->gid) != 0)) {
        once__cli_say("cannot give %s to %s: %s", plan->folder, plan->user, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    if (above >= 0) {
        close(above);
    }
    return made;
}

void once__gate_keep_private(const once__gate_plan_t *plan, const once__gate_address_t *address)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)&address->sockaddr;
    char same[64];
    struct stat st;
    int fd;

    if (un->sun_family != AF_UNIX) {
        return;
    }
    fd = open(un->sun_path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) &&
        (st.st_mode & 0777) != plan->socket_mode) {
        snprintf(same, sizeof(same), "/proc/self/fd/%d", fd);
        if ((plan->user[0] != '\0' && chown(same, plan->uid, plan->gid) != 0) ||
            chmod(same, plan->socket_mode) != 0) {
            once__cli_say("cannot make %s private: %s", address->text, strerror(errno));
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}
