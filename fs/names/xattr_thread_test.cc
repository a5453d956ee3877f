// SPDX-License-Identifier: MIT
// One thread replaces a large extended attribute while another reads or replaces it: it is one value or the
// other.
#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

constexpr const char* kReplaced = "user.replaced";

struct ReplacedXattr {
    Filesystem& fs;
    InodeNumber file;
    std::atomic<bool> done{false};
    uint64_t failed = 0;
};

void* replace_xattr(void* argument)
{
    ReplacedXattr& xattr = *static_cast<ReplacedXattr*>(argument);
    constexpr size_t kSizes[] = {20'000, 20'000, 10, 20'000, 60'000};
    for (size_t i = 0; !xattr.done; ++i) {
        const std::string value(kSizes[i % std::size(kSizes)], i % 2 == 0 ? 'A' : 'B');
        xattr.failed += xattr.fs.names.set_xattr(xattr.file, kReplaced, bytes_of(value), 0).ok() ? 0 : 1;
    }
    return nullptr;
}

bool uniform(const std::vector<std::byte>& value)
{
    return !value.empty() &&
           std::all_of(value.begin(), value.end(), [&](std::byte byte) { return byte == value.front(); });
}

}  // namespace

TEST_CASE("a large attribute that is read beside its replacement is one value, and in the list once")
{
    TestVolume volume(MountOptions{});
    ReplacedXattr xattr{volume.fs(), make_file(volume.fs(), kRoot, "file")};
    REQUIRE(xattr.fs.names.set_xattr(xattr.file, kReplaced, bytes_of("A"), 0).ok());
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, replace_xattr, &xattr) == 0);
    uint64_t errors = 0, mixed = 0, wrong_lists = 0;
    constexpr int kReads = 3000;
    for (int reads = 0; reads < kReads; ++reads) {
        const Result<std::vector<std::byte>> value = xattr.fs.names.get_xattr(xattr.file, kReplaced);
        errors += value.ok() ? 0 : 1;
        mixed += value.ok() && !uniform(*value) ? 1 : 0;
        const Result<std::string> list = xattr.fs.names.list_xattrs(xattr.file);
        wrong_lists += list.ok() && *list == std::string(kReplaced) + '\0' ? 0 : 1;
    }
    xattr.done = true;
    pthread_join(thread, nullptr);
    CHECK(xattr.failed == 0);
    CHECK(errors == 0);
    CHECK(mixed == 0);
    CHECK(wrong_lists == 0);
}

TEST_CASE("a large attribute that two threads replace and remove is never called corrupt")
{
    TestVolume volume(MountOptions{});
    ReplacedXattr xattr{volume.fs(), make_file(volume.fs(), kRoot, "file")};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, replace_xattr, &xattr) == 0);
    const std::string value(60'000, 'C');
    uint64_t errors = 0;
    for (int round = 0; round < 3000; ++round) {
        errors += xattr.fs.names.set_xattr(xattr.file, kReplaced, bytes_of(value), 0).ok() ? 0 : 1;
        errors += xattr.fs.names.remove_xattr(xattr.file, kReplaced).ok() ? 0 : 1;  // nobody else does
    }
    xattr.done = true;
    pthread_join(thread, nullptr);
    CHECK(xattr.failed == 0);
    CHECK(errors == 0);
}
