// SPDX-License-Identifier: MIT
// posix_suite FOLDER [--users=UID1,UID2] [--groups=GID1,GID2,SHARED] [--expect-missing=FEATURE,...]
//     [--only=AREA] [--skip=AREA]
// What POSIX and Linux say of calls on files, asserted in a new folder in FOLDER, as root and as two users.
// It runs on any filesystem; features that it lacks are named. A line for each assertion that fails, then how
// many there were. Exit 0 when none failed, 1 when some did, 2 when it could not be run.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/text.h"
#include "tests/posix/areas.h"
#include "tests/posix/expect.h"
#include "tests/posix/objects.h"
#include "tests/posix/users.h"

using namespace cowraid;
using namespace cowraid::posix;

namespace {

struct Area {
    const char* name;
    void (*run)();
};

constexpr Area kAreas[]{
    {"missing features", test_missing_features},
    {"open flags", test_open_flags},
    {"access by mode", test_access_by_mode},
    {"execution", test_execution},
    {"creation", test_creation},
    {"set-group directories", test_set_group_directories},
    {"removal", test_removal},
    {"sticky directories", test_sticky_directories},
    {"rename matrix", test_rename_matrix},
    {"rename rights", test_rename_rights},
    {"rename corners", test_rename_corners},
    {"links", test_links},
    {"modes", test_modes},
    {"owners", test_owners},
    {"set-id bits", test_set_id_bits},
    {"set times", test_set_times},
    {"truncation", test_truncation},
    {"reads and writes", test_reads_and_writes},
    {"size limits", test_size_limits},
    {"holes", test_holes},
    {"allocation", test_allocation},
    {"copied ranges", test_copied_ranges},
    {"attributes", test_attributes},
    {"attribute limits", test_attribute_limits},
    {"security attributes", test_security_attributes},
    {"ACL access", test_acl_access},
    {"ACL inheritance", test_acl_inheritance},
    {"ACL rules", test_acl_rules},
    {"record locks", test_record_locks},
    {"whole file locks", test_whole_file_locks},
    {"names", test_names},
    {"paths", test_paths},
    {"many links", test_many_links},
    {"changed times", test_changed_times},
    {"read times", test_read_times},
    {"stat", test_stat},
    {"directories", test_directories},
    {"mappings", test_mappings},
    {"sync calls", test_sync_calls},
    {"handles", test_handles},
    {"open files", test_open_files},
    {"inode flags", test_inode_flags},
    {"temporary files", test_temporary_files},
    {"whiteouts", test_whiteouts},
};

struct Arguments {
    std::string folder, only, skipped;
    std::vector<uint32_t> uids{65531, 65532}, gids{65531, 65532, 65530};
};

bool take_ids(std::string_view text, std::string_view option, std::vector<uint32_t>& out)
{
    if (!text.starts_with(option))
        return false;
    const std::vector<std::string_view> words = split(text.substr(option.size()), ',');
    if (words.size() != out.size())
        return false;
    for (size_t i = 0; i < words.size(); ++i) {
        Result<uint64_t> number = parse_number(words[i]);
        if (!number.ok() || *number == 0 || *number >= UINT32_MAX)
            return false;
        out[i] = static_cast<uint32_t>(*number);
    }
    return true;
}

bool take(std::string_view text, Arguments& arguments)
{
    constexpr std::string_view kMissing = "--expect-missing=", kOnly = "--only=", kSkip = "--skip=";
    if (text.starts_with(kMissing)) {
        for (const std::string_view name : split(text.substr(kMissing.size()), ','))
            if (!set_missing(std::string(name)))
                return false;
        return true;
    }
    if (text.starts_with(kOnly))
        arguments.only = text.substr(kOnly.size());
    else if (text.starts_with(kSkip))
        arguments.skipped = text.substr(kSkip.size());
    else if (!text.starts_with("-") && arguments.folder.empty())
        arguments.folder = text;
    else
        return take_ids(text, "--users=", arguments.uids) || take_ids(text, "--groups=", arguments.gids);
    return true;
}

void run_area(const Area& area, const std::string& folder)
{
    const uint64_t before = counts().done;
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    set_area(area.name);
    umask(0);
    make_directory(folder, 0755);
    require(chdir(folder.c_str()) == 0, "chdir %s", folder.c_str());
    // In a child: what it leaves open, set or mapped ends with it.
    as(users.root, [&] { area.run(); });
    require(chdir("/") == 0, "chdir /");
    remove_tree(folder);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const int64_t ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1'000'000;
    printf("%6lu assertions, %6ld ms: %s\n", counts().done - before, ms, area.name);
    fflush(stdout);
}

}  // namespace

int main(int argc, char** argv)
{
    Arguments arguments;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (int i = 1; i < argc; ++i) {
        if (!take(argv[i], arguments)) {
            fprintf(stderr, "%s: not understood\n", argv[i]);
            return 2;
        }
    }
    if (arguments.folder.empty() || getuid() != 0) {
        fprintf(stderr, "posix_suite FOLDER, as root\n");
        return 2;
    }
    const gid_t shared_gid = arguments.gids[2];
    users.alice = {"alice", arguments.uids[0], arguments.gids[0], {shared_gid}};
    users.bob = {"bob", arguments.uids[1], arguments.gids[1], {shared_gid}};
    users.shared_gid = shared_gid;
    begin_counting();
    const std::string folder = std::filesystem::absolute(arguments.folder).string() + "/posix_suite";
    for (const Area& area : kAreas)
        if (area.name != arguments.skipped && (arguments.only.empty() || arguments.only == area.name))
            run_area(area, folder);
    const Counts found = counts();
    printf("%lu assertions, %lu failed\n", found.done, found.failed);
    return found.failed == 0 ? 0 : 1;
}
