// SPDX-License-Identifier: MIT
#include "control/control_path.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace cowraid {

namespace {

enum class MountPoints : uint8_t { kCount, kRefused };

// A directory, not a link to one, into which only its owner puts things. A filesystem that is mounted there
// is not asked: it may be anybody's and never answer.
bool is_private_directory(const std::string& path, uid_t& owner, MountPoints mounts = MountPoints::kCount)
{
    struct statx info { };
    if (statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
              STATX_BASIC_STATS, &info) != 0 ||
        (mounts == MountPoints::kRefused && (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0))
        return false;
    owner = info.stx_uid;
    return S_ISDIR(info.stx_mode) && (info.stx_mode & 0022) == 0;
}

bool is_root_of_namespace()
{
    // The machine's root owns the files that the kernel makes.
    struct statx info { };
    return geteuid() == 0 &&
           statx(AT_FDCWD, "/proc/filesystems", AT_STATX_DONT_SYNC, STATX_UID, &info) == 0 &&
           info.stx_uid != 0;
}

bool is_root_of_machine()
{
    return geteuid() == 0 && !is_root_of_namespace();
}

// Whether an owner of this process's number is this process's user: in a user namespace all users that it
// does not map have one number, and may have been given that to the process, too.
bool owners_are_known()
{
    constexpr uid_t kUnmapped = 65534;  // as long as nobody changes kernel.overflowuid
    if (geteuid() != kUnmapped)
        return true;
    FILE* const map = fopen("/proc/self/uid_map", "re");
    unsigned long long inside = 1, outside = 1, count = 0;
    const int numbers = map != nullptr ? fscanf(map, "%llu %llu %llu", &inside, &outside, &count) : 0;
    if (map != nullptr)
        fclose(map);
    return numbers == 3 && inside == 0 && outside == 0 && count == UINT32_MAX;  // the machine's own
}

Status make_private_directory(const std::string& path, std::string& why)
{
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        return errno == EACCES || errno == EPERM ? Err::kAccess : Err::kIo;
    uid_t owner = geteuid();
    if (is_private_directory(path, owner) && owner == geteuid())
        return {};
    why = path +
          (owner == geteuid() ? " is not a directory that only its owner may write to"
                              : " belongs to user " + std::to_string(owner)) +
          "; remove it" + (is_root_of_machine() ? "" : ", or set XDG_RUNTIME_DIR to a directory of your own");
    return Err::kAccess;
}

// The one place for sockets, where it is given: by the environment, or for the machine's root.
std::optional<std::string> only_directory()
{
    if (const char* chosen = secure_getenv("COWRAID_RUN_DIR"); chosen != nullptr && chosen[0] == '/')
        return chosen;
    return is_root_of_machine() ? std::optional<std::string>("/run/cowraid") : std::nullopt;
}

// That place; for others what the system gives to a session of the user, the best first.
std::vector<std::string> given_directories()
{
    if (const auto only = only_directory(); only.has_value())
        return {*only};
    std::vector<std::string> out;
    const auto is_own = [](const std::string& path) {
        uid_t owner = 0;
        return is_private_directory(path, owner) && owner == geteuid();
    };
    const auto add_own = [&](const std::string& parent) {
        const std::string path = parent + "/cowraid";
        // A container may have been given the latter alone.
        if ((is_own(parent) || is_own(path)) && std::find(out.begin(), out.end(), path) == out.end())
            out.push_back(path);
    };
    // Root of a container whose /run is its own has them there as any root, in a session or not.
    if (geteuid() == 0)
        add_own("/run");
    if (const char* runtime = secure_getenv("XDG_RUNTIME_DIR"); runtime != nullptr && runtime[0] == '/')
        out.push_back(std::string(runtime) + "/cowraid");
    add_own("/run/user/" + std::to_string(geteuid()));
    return out;
}

constexpr const char* kTmp = "/tmp/";

std::string name_in_tmp()
{
    return "cowraid-" + std::to_string(geteuid());
}

// Those of this user. Somebody else may have taken any name.
std::vector<std::string> directories_in_tmp()
{
    std::vector<std::string> out;
    DIR* const tmp = opendir(kTmp);
    if (tmp == nullptr)
        return out;
    while (const dirent* entry = readdir(tmp)) {
        const std::string_view name = entry->d_name;
        uid_t owner = 0;
        if ((name == name_in_tmp() || name.starts_with(name_in_tmp() + "-")) &&
            is_private_directory(kTmp + std::string(name), owner, MountPoints::kRefused) &&
            owner == geteuid())
            out.push_back(kTmp + std::string(name));
    }
    closedir(tmp);
    std::sort(out.begin(), out.end());
    return out;
}

Result<std::string> make_directory_in_tmp()
{
    std::string path = kTmp + name_in_tmp();
    if (mkdir(path.c_str(), 0700) == 0)
        return path;
    // Another mount of this user may have made it just now.
    if (const auto there = directories_in_tmp(); !there.empty())
        return there.front();
    path += "-XXXXXX";
    if (mkdtemp(path.data()) == nullptr)
        return Err::kAccess;
    return path;
}

// Whatever is there and only this user or root can have filled. A daemon may have been started in another
// session, or in none.
std::vector<std::string> control_directories()
{
    std::vector<std::string> out;
    if (!owners_are_known())
        return out;
    for (const std::string& path : given_directories())
        if (uid_t owner = 0; is_private_directory(path, owner) && (owner == 0 || owner == geteuid()))
            out.push_back(path);
    if (!only_directory().has_value())
        for (const std::string& path : directories_in_tmp())
            out.push_back(path);
    return out;
}

std::string volume_directory(const std::string& directory, const Uuid& volume)
{
    return directory + "/" + uuid_text(volume);
}

std::string socket_in(const std::string& directory, const Uuid& volume)
{
    return volume_directory(directory, volume) + "/control";
}

}  // namespace

bool is_root_without_mounts()
{
    return is_root_of_namespace() && control_directories().empty();
}

std::vector<std::string> control_socket_paths(const Uuid& volume)
{
    std::vector<std::string> out;
    for (const std::string& directory : control_directories())
        if (std::string path = socket_in(directory, volume); access(path.c_str(), F_OK) == 0)
            out.push_back(std::move(path));
    return out;
}

Result<std::string> make_control_directory(std::string& why)
{
    if (!owners_are_known()) {
        why = "user 65534 of a user namespace has the number of all users that it does not map; use another "
              "one";
        return Err::kAccess;
    }
    const std::vector<std::string> given = given_directories();
    Status made;
    for (const std::string& path : given) {
        made = make_private_directory(path, why);
        if (made.ok())
            return path;
    }
    CW_TRY(made);
    const std::vector<std::string> there = directories_in_tmp();
    return there.empty() ? make_directory_in_tmp() : there.front();
}

Result<UniqueFd> open_control_lock(const std::string& directory)
{
    UniqueFd fd(open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.valid())
        return Err::kIo;
    return fd;
}

ControlLock::ControlLock(const UniqueFd& file) : file_(file)
{
    while (flock(file_.get(), LOCK_EX) != 0 && errno == EINTR) { }
}

ControlLock::~ControlLock()
{
    flock(file_.get(), LOCK_UN);
}

Result<std::string> make_control_socket_path(const std::string& directory, const Uuid& volume)
{
    std::string ignored;
    CW_TRY(make_private_directory(volume_directory(directory, volume), ignored));
    return socket_in(directory, volume);
}

std::vector<ControlSocket> control_sockets()
{
    std::vector<ControlSocket> out;
    for (const std::string& path : control_directories()) {
        DIR* const directory = opendir(path.c_str());
        if (directory == nullptr)
            continue;
        while (const dirent* entry = readdir(directory))
            if (const auto uuid = uuid_parse(entry->d_name); uuid.ok())
                out.push_back({.volume = *uuid, .path = socket_in(path, *uuid)});
        closedir(directory);
    }
    return out;
}

void remove_control_socket(const std::string& path)
{
    unlink(path.c_str());
    rmdir(path.substr(0, path.rfind('/')).c_str());
}

}  // namespace cowraid
