// SPDX-License-Identifier: MIT
// fsck.cowraid: there is nothing to do before a mount; exists so that fs_passno in fstab does not stop a
// boot.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/print.h"
#include "tools/common/program_start.h"
#include "tools/common/volume_spec.h"

namespace {

// Exit codes of fsck(8).
constexpr int kOk = 0;
constexpr int kOperationalError = 8;

bool exists(const std::string& path)
{
    struct stat info;
    return stat(path.c_str(), &info) == 0;
}

void print_help()
{
    for (const char* const line :
         {"Usage: fsck.cowraid [OPTION...] DEVICE...",
          "fsck.cowraid does nothing: a mount recovers by itself. To look for damage use cowraid check.", "",
          "  -a, -f, -n, -p, -y     accepted as of other programs that fsck(8) calls; mean nothing",
          "      --help             say this"})
        cowraid::print_line(stdout, "%s", line);
}

}  // namespace

int main(int argc, char** argv)
{
    cowraid::start_program(kOperationalError);
    for (int i = 1; i < argc; ++i) {
        std::string why;
        if (std::string_view(argv[i]) == "--help")
            print_help();
        if (argv[i][0] == '-')
            continue;
        const auto spec = cowraid::parse_volume_spec({argv[i]}, why);
        // Labels and uuids are found at the mount, and so is how many members may be absent.
        if (!spec.ok() || spec->paths.empty() || std::any_of(spec->paths.begin(), spec->paths.end(), exists))
            continue;
        cowraid::print_line(stderr, "fsck.cowraid: %s does not exist; check the name", argv[i]);
        return kOperationalError;
    }
    return kOk;
}
