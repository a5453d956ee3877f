// SPDX-License-Identifier: MIT
// Who makes calls: root, or a child process that became one of two users.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cowraid::posix {

struct User {
    std::string name;
    uid_t uid;
    gid_t gid;
    std::vector<gid_t> groups;  // supplementary
};

// Set from the arguments of the program, before anything else.
struct Users {
    User root{"root", 0, 0, {}};
    User alice, bob;
    gid_t shared_gid;  // of a group in which both are
};
extern Users users;

// For the process itself. Ends it when that fails.
void become(const User& user);

// A child, which ends with end_child() or is killed.
pid_t begin_child();
[[noreturn]] void end_child();
// Until it has ended. An assertion that it was not killed.
void await_child(pid_t child, const char* name);

// The body in a child that became the user. Assertions in it count.
template <typename Body> void as(const User& user, Body&& body)
{
    const pid_t child = begin_child();
    if (child == 0) {
        become(user);
        body();
        end_child();
    }
    await_child(child, user.name.c_str());
}

// The body in a child of the same user, while this process goes on.
template <typename Body> pid_t beside(Body&& body)
{
    const pid_t child = begin_child();
    if (child == 0) {
        body();
        end_child();
    }
    return child;
}

}  // namespace cowraid::posix
