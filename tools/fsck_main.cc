// SPDX-License-Identifier: MIT
// fsck.cowraid: there is nothing to do before a mount; exists so that fs_passno in fstab does not stop a
// boot.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace {

// Exit codes of fsck(8).
constexpr int kOk = 0;
constexpr int kOperationalError = 8;

}  // namespace

int main(int argc, char** argv)
{
    for (int i = 1; i < argc; ++i) {
        struct stat info;
        // Labels and uuids are found at the mount.
        if (strchr(argv[i], '/') == nullptr || argv[i][0] == '-' || stat(argv[i], &info) == 0)
            continue;
        fprintf(stderr, "fsck.cowraid: %s: %s\n", argv[i], strerror(errno));
        return kOperationalError;
    }
    return kOk;
}
