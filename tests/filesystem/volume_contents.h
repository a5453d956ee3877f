// SPDX-License-Identifier: MIT
// Files whose content is known, balances to their end, and what must hold afterwards.
#pragma once

#include <sys/stat.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/filesystem/volume_steps.h"

namespace cowraid::test {

using Contents = std::map<std::string, std::vector<std::byte>>;

inline std::vector<std::byte> random_content(Prng& prng, size_t bytes)
{
    std::vector<std::byte> content(bytes);
    prng.fill(content.data(), bytes);
    return content;
}

inline InodeNumber find_file(Filesystem& fs, const std::string& name)
{
    const Result<Attributes> found = fs.names.lookup(kRoot, name);
    REQUIRE(found.ok());
    fs.names.forget(found->inode, 1);
    return found->inode;
}

inline void write_file(Filesystem& fs, const std::string& name, const std::vector<std::byte>& content)
{
    const Result<Attributes> made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    REQUIRE(fs.files.write(made->inode, 0, content, {}, {}).ok());
    fs.names.forget(made->inode, 1);
}

// A large file, and small ones of which every other one goes again, so that rows are partly free.
inline Contents fill(Filesystem& fs, Prng& prng, size_t large_bytes)
{
    Contents contents;
    contents["large"] = random_content(prng, large_bytes);
    for (int index = 0; index < 120; ++index)
        contents["small" + std::to_string(index)] = random_content(prng, 1 + prng.below(30000));
    for (const auto& [name, content] : contents)
        write_file(fs, name, content);
    REQUIRE(fs.step(true).ok());
    for (int index = 0; index < 120; index += 2) {
        const std::string name = "small" + std::to_string(index);
        REQUIRE(fs.names.unlink(kRoot, name).ok());
        contents.erase(name);
    }
    REQUIRE(fs.step(true).ok());
    return contents;
}

// By requests for which the address sanitizer does not map new pages each time.
inline void require_content(Filesystem& fs, InodeNumber file, std::span<const std::byte> content)
{
    uint64_t offset = 0;
    std::vector<std::byte> read(120 * kKiB);
    while (!content.empty()) {
        const size_t part = std::min(read.size(), content.size());
        const Result<size_t> bytes = fs.files.read(file, offset, std::span(read).first(part));
        REQUIRE(bytes.ok());
        REQUIRE(*bytes == part);
        REQUIRE(std::memcmp(read.data(), content.data(), part) == 0);
        content = content.subspan(part);
        offset += part;
    }
}

inline void require_contents(Filesystem& fs, const Contents& contents)
{
    for (const auto& [name, content] : contents)
        require_content(fs, find_file(fs, name), content);
}

// A file is written to somewhere, and perhaps removed. No flush.
inline void change_one_in_memory(Filesystem& fs, Prng& prng, Contents& contents)
{
    const auto at = std::next(contents.begin(), static_cast<ptrdiff_t>(prng.below(contents.size())));
    const std::vector<std::byte> piece = random_content(prng, 1 + prng.below(60000));
    const uint64_t offset = prng.below(at->second.size());
    REQUIRE(fs.files.write(find_file(fs, at->first), offset, piece, {}, {}).ok());
    if (at->second.size() < offset + piece.size())
        at->second.resize(offset + piece.size());
    std::copy(piece.begin(), piece.end(), at->second.begin() + static_cast<ptrdiff_t>(offset));
    if (prng.chance(1, 10) && contents.size() > 10 && at->first != "large") {
        REQUIRE(fs.names.unlink(kRoot, at->first).ok());
        contents.erase(at);
    }
}

inline void change_one(Filesystem& fs, Prng& prng, Contents& contents)
{
    change_one_in_memory(fs, prng, contents);
    if (prng.chance(1, 6))
        REQUIRE(fs.step(false).ok());
}

inline Status start_balance(Filesystem& fs, const BalanceOptions& options)
{
    std::string why;
    const Status status = fs.committer.balance.start(options, why);
    CHECK_MESSAGE(status.ok() == why.empty(), why);
    return status;
}

inline BalanceStatus finish(Filesystem& fs)
{
    for (int step = 0; step < 20000; ++step) {
        const CleanProgress progress = fs.balance_step();
        if (progress == CleanProgress::kNeedsCommit)
            REQUIRE(fs.step(true).ok());
        if (const BalanceStatus status = fs.committer.balance.status();
            status.state != BalanceStatus::State::kRunning) {
            REQUIRE(fs.step(true).ok());
            return status;
        }
        if (progress == CleanProgress::kNothing)
            break;
    }
    FAIL("the balance does not end");
    return fs.committer.balance.status();
}

// The daemon dies, or power fails for all members at once.
inline void crash(SimVolume& volume, Prng& prng)
{
    if (prng.chance(1, 2))
        volume.kill();
    else
        volume.power_cut(prng);
}

inline void require_clean(SimVolume& volume, const std::vector<uint32_t>& absent = {})
{
    CheckReport report;
    std::string why;
    REQUIRE_MESSAGE(volume.check(report, why, absent).ok(), why);
    CHECK(report.clean());
}

}  // namespace cowraid::test
