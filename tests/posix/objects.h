// SPDX-License-Identifier: MIT
// Objects of every kind, made and looked at by root. What fails here ends the program: it is tested
// elsewhere.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace cowraid::posix {

enum class Kind : uint8_t {
    kMissing,
    kFile,
    kDirectory,
    kFullDirectory,
    kLinkToFile,
    kLinkToDirectory,
    kDanglingLink,
    kLinkLoop,
    kFifo,
    kSocket,
    kCharacterDevice,
    kBlockDevice,
};
constexpr int kKindCount = 12;
constexpr std::array kKinds{
    Kind::kMissing,         Kind::kFile,         Kind::kDirectory, Kind::kFullDirectory, Kind::kLinkToFile,
    Kind::kLinkToDirectory, Kind::kDanglingLink, Kind::kLinkLoop,  Kind::kFifo,          Kind::kSocket,
    Kind::kCharacterDevice, Kind::kBlockDevice};

const char* kind_name(Kind kind);
bool is_directory(Kind kind);
bool is_link(Kind kind);
// Mode 0777 (links aside), owned by root. Links name what is beside `path`, with a suffix, and make it.
void make(Kind kind, const std::string& path);
// That, with what it names. Nothing need be there.
void remove_tree(const std::string& path);
// What is there.
Kind kind_at(const std::string& path);

// An empty directory, world-writable without the sticky bit unless a mode is given.
void make_directory(const std::string& path, mode_t mode = 0777);
void make_file(const std::string& path, const std::string& content = "", mode_t mode = 0666);
void set_owner(const std::string& path, uid_t uid, gid_t gid);
void set_mode(const std::string& path, mode_t mode);
// Of the name itself, not of what a link names.
struct stat stat_of(const std::string& path);
// Permission and set-id bits.
mode_t mode_of(const std::string& path);
// In an empty working directory, which is removed afterwards.
void apart(void (*body)());
// "" when it cannot be read.
std::string content_of(const std::string& path);
UniqueFd open_file(const std::string& path, int flags, mode_t mode = 0666);
// An address at which nothing is, for calls that must refuse it.
void* bad_address();
// Ends the program with a message when the condition does not hold.
[[gnu::format(printf, 2, 3)]] void require(bool condition, const char* format, ...);

}  // namespace cowraid::posix
