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

Status make_private_directory(const std::string& path)
{
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        return errno == EACCES || errno == EPERM ? Err::kAccess : Err::kIo;
    struct stat info { };
    if (lstat(path.c_str(), &info) != 0)
        return Err::kIo;
    const bool ours = S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 0022) == 0;
    return ours ? Status() : Status(Err::kAccess);
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
    return "/tmp/cowraid-" + std::to_string(geteuid());
}

std::string control_socket_path(const Uuid& volume)
{
    return volume_directory(volume) + "/control";
}

Result<UniqueFd> lock_control_directory()
{
    const std::string path = control_directory();
    CW_TRY(make_private_directory(path));
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || flock(fd.get(), LOCK_EX) != 0)
        return Err::kIo;
    return fd;
}

Status make_volume_directory(const Uuid& volume)
{
    return make_private_directory(volume_directory(volume));
}

std::vector<Uuid> volumes_with_directory()
{
    std::vector<Uuid> out;
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
