// SPDX-License-Identifier: MIT
#include "fuse/set_id.h"

#include <doctest/doctest.h>
#include <linux/fuse.h>
#include <unistd.h>

#include "fuse/caller_status.h"

namespace cowraid {

namespace {

// A request with one word of its body set.
bool clears(uint32_t opcode, size_t word, uint32_t flags)
{
    struct {
        fuse_in_header header{};
        uint32_t body[22]{};
    } request;
    request.header.opcode = opcode;
    request.body[word] = flags;
    note_set_id_request(std::as_bytes(std::span(&request, 1)));
    return request_clears_set_id();
}

constexpr uint32_t kFileMode = S_IFREG;

}  // namespace

TEST_CASE("set-id bits: what the kernel says of the caller")
{
    CHECK(clears(FUSE_WRITE, 5, 1 << 2));
    CHECK_FALSE(clears(FUSE_WRITE, 5, ~(1u << 2)));
    CHECK(clears(FUSE_SETATTR, 0, (1 << 11) | FATTR_SIZE));
    CHECK_FALSE(clears(FUSE_SETATTR, 0, FATTR_SIZE | FATTR_UID));
    CHECK_FALSE(clears(FUSE_GETATTR, 5, ~0u));
    CHECK(clears(FUSE_WRITE, 5, 1 << 2));
    note_set_id_request({});
    CHECK_FALSE(request_clears_set_id());
}

TEST_CASE("a fatal signal is pending: for the thread or the process, and no other one is fatal")
{
    CHECK(fatal_signal_pending("SigQ:\t0/95\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
    CHECK(fatal_signal_pending("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n"));
    CHECK_FALSE(fatal_signal_pending("SigPnd:\t0000000000000080\nShdPnd:\tfffffffffffffeff\n"));
    CHECK_FALSE(fatal_signal_pending(std::string_view()));
    CHECK_FALSE(fatal_signal_pending(getpid()));
}

TEST_CASE("set-id bits: rights from /proc")
{
    const CallerRights user = parse_caller_rights("Name:\tx\nGroups:\t4 1001 \nCapInh:\tffffffffffffffff\n"
                                                  "CapEff:\t0000000000000000\n");
    CHECK_FALSE(user.has_fsetid);
    CHECK(user.groups == std::vector<uint32_t>{4, 1001});
    const CallerRights root = parse_caller_rights("Groups:\t\nCapEff:\t000001ffffffffff\nX:\n");
    CHECK(root.has_fsetid);
    CHECK(root.groups.empty());
    CHECK_FALSE(parse_caller_rights("CapEff:\t000001ffffffffef").has_fsetid);
    CHECK_FALSE(parse_caller_rights("").has_fsetid);
}

TEST_CASE("set-id bits: what goes")
{
    const CallerRights stranger{false, {7}};
    const CallerRights member{false, {7, 50}};
    const CallerRights capable{true, {}};
    for (const CallerRights& rights : {stranger, member, capable}) {
        CHECK(set_id_bits_cleared(kFileMode | 06777, 50, rights) == 06000);
        CHECK(set_id_bits_cleared(kFileMode | 04600, 50, rights) == 04000);
        CHECK(set_id_bits_cleared(kFileMode | 02710, 50, rights) == 02000);
        CHECK(set_id_bits_cleared(kFileMode | 0777, 50, rights) == 0);
        CHECK(set_id_bits_cleared(S_IFDIR | 06777, 50, rights) == 0);
    }
    CHECK(set_id_bits_cleared(kFileMode | 06666, 50, stranger) == 06000);
    CHECK(set_id_bits_cleared(kFileMode | 06666, 50, member) == 04000);
    CHECK(set_id_bits_cleared(kFileMode | 06666, 50, capable) == 04000);
}

}  // namespace cowraid
