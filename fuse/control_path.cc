// SPDX-License-Identifier: MIT
#include "fuse/control_path.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace cowraid {

namespace {

// A directory, not a link to one, into which only its owner puts things.
bool is_private_directory(const std::string& path, uid_t& owner)
{
    struct stat info { };
    if (lstat(path.c_str(), &info) != 0)
        return false;
    owner = info.st_uid;
    return S_ISDIR(info.st_mode) && (info.st_mode & 0022) == 0;
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
          "; remove it" + (geteuid() == 0 ? "" : ", or set XDG_RUNTIME_DIR to a directory of your own");
    return Err::kAccess;
}

// The only place that there is for sockets; nothing where it must be found in /tmp.
std::optional<std::string> fixed_directory()
{
    if (const char* chosen = secure_getenv("COWRAID_RUN_DIR"); chosen != nullptr && chosen[0] == '/')
        return chosen;
    if (geteuid() == 0)
        return "/run/cowraid";
    if (const char* runtime = secure_getenv("XDG_RUNTIME_DIR"); runtime != nullptr && runtime[0] == '/')
        return std::string(runtime) + "/cowraid";
    const std::string session = "/run/user/" + std::to_string(geteuid());
    uid_t owner = 0;
    if (is_private_directory(session, owner) && owner == geteuid())
        return session + "/cowraid";
    return std::nullopt;
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
            is_private_directory(kTmp + std::string(name), owner) && owner == geteuid())
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
    path += "-XXXXXX";
    if (mkdtemp(path.data()) == nullptr)
        return Err::kAccess;
    return path;
}

// Whatever is there and only this user or root can have filled.
std::vector<std::string> control_directories()
{
    const auto fixed = fixed_directory();
    if (!fixed.has_value())
        return directories_in_tmp();
    uid_t owner = 0;
    if (!is_private_directory(*fixed, owner) || (owner != 0 && owner != geteuid()))
        return {};
    return {*fixed};
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

std::string control_socket_path(const Uuid& volume)
{
    for (const std::string& directory : control_directories())
        if (const std::string path = socket_in(directory, volume); access(path.c_str(), F_OK) == 0)
            return path;
    return {};
}

Result<std::string> make_control_directory(std::string& why)
{
    if (const auto fixed = fixed_directory(); fixed.has_value()) {
        CW_TRY(make_private_directory(*fixed, why));
        return *fixed;
    }
    const std::vector<std::string> there = directories_in_tmp();
    return there.empty() ? make_directory_in_tmp() : there.front();
}

Result<UniqueFd> lock_control_directory(const std::string& directory)
{
    UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || flock(fd.get(), LOCK_EX) != 0)
        return Err::kIo;
    return fd;
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
