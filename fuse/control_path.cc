// SPDX-License-Identifier: MIT
#include "fuse/control_path.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

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

std::string volume_directory(const Uuid& volume)
{
    return control_directory() + "/" + uuid_text(volume);
}

}  // namespace

std::string control_directory()
{
    if (const char* chosen = secure_getenv("COWRAID_RUN_DIR"); chosen != nullptr && chosen[0] == '/')
        return chosen;
    if (geteuid() == 0)
        return "/run/cowraid";
    if (const char* runtime = secure_getenv("XDG_RUNTIME_DIR"); runtime != nullptr && runtime[0] == '/')
        return std::string(runtime) + "/cowraid";
    const std::string user = std::to_string(geteuid());
    const std::string session = "/run/user/" + user;
    uid_t owner = 0;
    if (is_private_directory(session, owner) && owner == geteuid())
        return session + "/cowraid";
    return "/tmp/cowraid-" + user;
}

bool control_directory_is_trusted()
{
    uid_t owner = 0;
    return is_private_directory(control_directory(), owner) && (owner == 0 || owner == geteuid());
}

std::string control_socket_path(const Uuid& volume)
{
    return volume_directory(volume) + "/control";
}

Result<UniqueFd> lock_control_directory(std::string& why)
{
    const std::string path = control_directory();
    CW_TRY(make_private_directory(path, why));
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || flock(fd.get(), LOCK_EX) != 0)
        return Err::kIo;
    return fd;
}

Status make_volume_directory(const Uuid& volume)
{
    std::string ignored;
    return make_private_directory(volume_directory(volume), ignored);
}

std::vector<Uuid> volumes_with_directory()
{
    std::vector<Uuid> out;
    if (!control_directory_is_trusted())
        return out;
    DIR* const directory = opendir(control_directory().c_str());
    if (directory == nullptr)
        return out;
    while (const dirent* entry = readdir(directory))
        if (const auto uuid = uuid_parse(entry->d_name); uuid.ok())
            out.push_back(*uuid);
    closedir(directory);
    return out;
}

void remove_control_socket(const Uuid& volume)
{
    unlink(control_socket_path(volume).c_str());
    rmdir(volume_directory(volume).c_str());
}

}  // namespace cowraid
