// SPDX-License-Identifier: MIT
#include "tests/posix/users.h"

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/posix/expect.h"

namespace cowraid::posix {

Users users;

void become(const User& user)
{
    if (user.uid == 0)
        return;
    if (setgroups(user.groups.size(), user.groups.data()) != 0 ||
        setresgid(user.gid, user.gid, user.gid) != 0 || setresuid(user.uid, user.uid, user.uid) != 0) {
        perror("become another user");
        _exit(3);
    }
}

pid_t begin_child()
{
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(2);
    }
    return child;
}

void end_child()
{
    fflush(stdout);
    _exit(0);
}

void await_child(pid_t child, const char* name)
{
    int status = 0;
    const bool ended = waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ended)
        expect(false, "a child of %s ends by itself (status 0x%x)", name, status);
}

}  // namespace cowraid::posix
