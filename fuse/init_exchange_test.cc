// SPDX-License-Identifier: MIT
#include "fuse/init_exchange.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/fuse.h>

#include <cstring>

#include "fuse/open_reply.h"

namespace cowraid {

namespace {

constexpr uint32_t kKillPriv2 = 1u << 28;
constexpr uint32_t kExtension = 1u << 30;
constexpr uint32_t kAllowMmap2 = 1u << 4;  // bit 36, in the second word
constexpr uint64_t kUnique = 77;

struct Request {
    fuse_in_header header{};
    uint32_t body[16]{};  // major, minor, max_readahead, flags, flags2
};

Request make_init(uint32_t flags, uint32_t flags2)
{
    Request request;
    request.header.len = sizeof request;
    request.header.opcode = FUSE_INIT;
    request.header.unique = kUnique;
    request.body[3] = flags;
    request.body[4] = flags2;
    return request;
}

struct Reply {
    fuse_out_header header{.len = sizeof(fuse_out_header) + 64, .error = 0, .unique = kUnique};
    uint32_t body[16]{};  // flags at 3, flags2 at 8
};

template <typename T> std::span<const std::byte> bytes_of(const T& value)
{
    return std::as_bytes(std::span<const T, 1>(&value, 1));
}

void exchange(Frontend& frontend, const Request& request, Reply& reply)
{
    note_init_request(frontend, bytes_of(request));
    extend_init_reply(frontend, bytes_of(reply.header),
                      std::as_writable_bytes(std::span<uint32_t>(reply.body)));
}

}  // namespace

TEST_CASE("users who wait count as load, a question about the volume does not")
{
    ForegroundLoad load;
    constexpr uint64_t kBegan = 1'000'000'000, kSoon = kBegan + 1000;
    constexpr uint64_t kLater = kSoon + 2 * ForegroundLoad::kQuietNs;
    const auto request = [&](uint32_t opcode, uint64_t now_ns) {
        const fuse_in_header header{.len = sizeof header, .opcode = opcode, .unique = kUnique + 1};
        note_request(load, bytes_of(header), now_ns);
    };
    const auto answer = [&] {
        const fuse_out_header header{.len = sizeof header, .error = 0, .unique = kUnique + 1};
        note_answer(load, bytes_of(header));
    };
    request(FUSE_STATFS, kBegan);
    CHECK_FALSE(load.busy(kBegan));
    answer();
    CHECK_FALSE(load.busy(kSoon));
    CHECK(load.under_way() == 0);
    request(FUSE_GETATTR, kBegan);
    CHECK(load.busy(kLater));
    CHECK(load.under_way() == 1);
    answer();
    CHECK(load.busy(kSoon));
    CHECK_FALSE(load.busy(kLater));
    CHECK(load.under_way() == 0);
    request(FUSE_FORGET, kLater);
    CHECK_FALSE(load.busy(kLater));
}

TEST_CASE("init: takes what the kernel offers")
{
    Frontend frontend;
    Reply reply;
    reply.body[3] = FUSE_ASYNC_READ;
    exchange(frontend, make_init(kKillPriv2 | kExtension | FUSE_ASYNC_READ, kAllowMmap2), reply);
    CHECK(reply.body[3] == (FUSE_ASYNC_READ | kKillPriv2 | kExtension));
    CHECK(reply.body[8] == kAllowMmap2);
    CHECK(frontend.clears_set_id.load());
    CHECK(frontend.drops_before_direct.load());
    CHECK(frontend.negotiated.load());
}

TEST_CASE("init: asks for nothing that was not offered")
{
    Frontend frontend;
    Reply reply;
    reply.body[3] = FUSE_ASYNC_READ;
    // Without the extension bit the second word means nothing.
    exchange(frontend, make_init(FUSE_ASYNC_READ, kAllowMmap2), reply);
    CHECK(reply.body[3] == FUSE_ASYNC_READ);
    CHECK(reply.body[8] == 0);
    CHECK_FALSE(frontend.clears_set_id.load());
    CHECK_FALSE(frontend.drops_before_direct.load());
}

TEST_CASE("init: other requests, failures and short answers are left alone")
{
    Frontend frontend;
    Request other = make_init(kKillPriv2 | kExtension, kAllowMmap2);
    other.header.opcode = FUSE_GETATTR;
    Reply reply;
    exchange(frontend, other, reply);
    CHECK(reply.body[3] == 0);

    note_init_request(frontend, bytes_of(make_init(kKillPriv2 | kExtension, kAllowMmap2)));
    Reply failed;
    failed.header.error = -71;
    extend_init_reply(frontend, bytes_of(failed.header),
                      std::as_writable_bytes(std::span<uint32_t>(failed.body)));
    CHECK(failed.body[3] == 0);
    Reply foreign;
    foreign.header.unique = kUnique + 1;
    extend_init_reply(frontend, bytes_of(foreign.header),
                      std::as_writable_bytes(std::span<uint32_t>(foreign.body)));
    CHECK(foreign.body[3] == 0);
    Reply old;
    extend_init_reply(frontend, bytes_of(old.header),
                      std::as_writable_bytes(std::span<uint32_t>(old.body).first(6)));
    CHECK(old.body[3] == 0);
    CHECK_FALSE(frontend.negotiated.load());

    // Too short to hold the flags.
    const Request request = make_init(kKillPriv2, 0);
    note_init_request(frontend, bytes_of(request).first(sizeof(fuse_in_header) + 8));
    note_init_request(frontend, bytes_of(request).first(4));
    CHECK(frontend.offered_flags == (uint64_t{kKillPriv2} | kExtension | (uint64_t{kAllowMmap2} << 32)));
}

TEST_CASE("open: who goes through the page cache")
{
    constexpr OpenCacheMode kCached = OpenCacheMode::kCached, kDirect = OpenCacheMode::kDirect;
    constexpr InodeNumber kFile{7}, kOther{7 + 64};
    OpenModes modes;
    // Alone.
    for (const int flags : {O_RDONLY, O_RDWR}) {
        CHECK(modes.begin(kFile, flags) == kCached);
        modes.end(kFile, kCached);
    }
    CHECK(modes.begin(kFile, O_WRONLY | O_APPEND) == kDirect);
    // Beside others that go past the cache, also when who wrote has left.
    CHECK(modes.begin(kFile, O_RDONLY) == kDirect);
    modes.end(kFile, kDirect);
    for (const int flags : {O_RDONLY, O_RDWR, O_WRONLY})
        CHECK(modes.begin(kFile, flags) == kDirect);
    CHECK(modes.begin(kOther, O_RDONLY) == kCached);
    for (int count = 0; count < 4; ++count)
        modes.end(kFile, kDirect);
    // Beside somebody who uses it.
    CHECK(modes.begin(kFile, O_RDONLY) == kCached);
    CHECK(modes.begin(kFile, O_WRONLY) == kCached);
    modes.end(kFile, kCached);
    CHECK(modes.begin(kFile, O_RDWR) == kCached);
    for (int count = 0; count < 2; ++count)
        modes.end(kFile, kCached);
    CHECK(modes.begin(kFile, O_WRONLY) == kDirect);
    modes.end(kFile, kDirect);
    // The kernel obeys O_DIRECT of the others, too. Who reads only does not decide for them.
    CHECK(modes.begin(kOther, O_RDWR | O_DIRECT) == kCached);
    CHECK(modes.begin(kOther, O_WRONLY) == kCached);
    CHECK(modes.begin(kFile, O_RDONLY | O_DIRECT) == kCached);
    modes.end(kFile, kCached);
    CHECK(modes.begin(kFile, O_RDWR | O_DIRECT) == kDirect);
    CHECK(modes.begin(kFile, O_RDONLY | O_DIRECT) == kDirect);
    CHECK(modes.begin(kFile, O_RDONLY) == kDirect);
}

TEST_CASE("nodes: the root is 1 for FUSE, others keep their number")
{
    Frontend frontend;
    frontend.root = InodeNumber{256};
    CHECK(inode_of(frontend, FUSE_ROOT_ID) == InodeNumber{256});
    CHECK(inode_of(frontend, 257) == InodeNumber{257});
    CHECK(node_of(frontend, InodeNumber{256}) == FUSE_ROOT_ID);
    CHECK(node_of(frontend, InodeNumber{300}) == 300);
    Attributes root;
    root.inode = {256};
    CHECK(stat_of(root).st_ino == 256);
    CHECK(entry_of(frontend, root).ino == FUSE_ROOT_ID);
}

}  // namespace cowraid
