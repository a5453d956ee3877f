// SPDX-License-Identifier: MIT
#include "fuse/translate_request.h"

#include <doctest/doctest.h>
#include <linux/fuse.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace cowraid {

namespace {

constexpr size_t kBufferBytes = 4096;
constexpr auto kRubbish = std::byte{0xa5};

struct Case {
    std::vector<std::byte> buffer = std::vector<std::byte>(kBufferBytes, kRubbish);
    size_t bytes;

    Case(uint32_t opcode, size_t body_bytes) : bytes(sizeof(fuse_in_header) + body_bytes)
    {
        fuse_in_header header{};
        header.len = static_cast<uint32_t>(bytes);
        header.opcode = opcode;
        header.unique = 7;
        header.nodeid = FUSE_ROOT_ID;
        header.uid = 1000;
        memcpy(buffer.data(), &header, sizeof header);
    }
    [[nodiscard]] fuse_in_header header() const
    {
        fuse_in_header out;
        memcpy(&out, buffer.data(), sizeof out);
        return out;
    }
};

}  // namespace

TEST_CASE("requests: a sync of the filesystem is an fsync of the root directory")
{
    Case sync(50, 8);
    const TranslatedRequest out = translate_request(sync.buffer, sync.bytes);
    CHECK(out.fate == RequestFate::kServe);
    CHECK(out.bytes == sizeof(fuse_in_header) + sizeof(fuse_fsync_in));
    CHECK(sync.header().opcode == FUSE_FSYNCDIR);
    CHECK(sync.header().len == out.bytes);
    CHECK(sync.header().unique == 7);
    CHECK(sync.header().nodeid == FUSE_ROOT_ID);
    CHECK(sync.header().uid == 1000);
    fuse_fsync_in body;
    memcpy(&body, sync.buffer.data() + sizeof(fuse_in_header), sizeof body);
    CHECK(body.fh == 0);
    CHECK(body.fsync_flags == 0);  // not only the data
    CHECK(sync.buffer[out.bytes] == kRubbish);
}

TEST_CASE("requests: a file without a name is made as one with a name")
{
    Case temporary(51, 30);
    const TranslatedRequest out = translate_request(temporary.buffer, temporary.bytes);
    CHECK(out.fate == RequestFate::kServe);
    CHECK(out.bytes == temporary.bytes);
    CHECK(temporary.header().opcode == FUSE_CREATE);
    CHECK(temporary.header().len == temporary.bytes);
    CHECK(temporary.header().unique == 7);
}

TEST_CASE("requests: the time of birth is asked for as attributes are")
{
    Case plain(FUSE_GETATTR, sizeof(fuse_getattr_in));
    Case birth(52, 24);
    const TranslatedRequest out = translate_request(birth.buffer, birth.bytes);
    CHECK(request_is_statx());
    CHECK(out.bytes == sizeof(fuse_in_header) + sizeof(fuse_getattr_in));
    CHECK(birth.header().opcode == FUSE_GETATTR);
    CHECK(birth.header().len == out.bytes);
    CHECK(translate_request(plain.buffer, plain.bytes).bytes == plain.bytes);
    CHECK(!request_is_statx());
    Case cut(52, 15);
    CHECK(translate_request(cut.buffer, cut.bytes).bytes == cut.bytes);
    CHECK(cut.header().opcode == 52);
    CHECK(!request_is_statx());
}

TEST_CASE("requests: the end of the mount ends the session, unanswered")
{
    Case destroy(FUSE_DESTROY, 0);
    CHECK(translate_request(destroy.buffer, destroy.bytes).fate == RequestFate::kEnd);
}

TEST_CASE("requests: others stay as they are, whole or cut short")
{
    size_t seen = 0;
    for (uint32_t opcode = 1; opcode < 60; ++opcode) {
        if ((opcode >= 50 && opcode <= 52) || opcode == FUSE_DESTROY)
            continue;
        Case other(opcode, 100);
        const std::vector<std::byte> before = other.buffer;
        const TranslatedRequest out = translate_request(other.buffer, other.bytes);
        CHECK(out.fate == RequestFate::kServe);
        CHECK(out.bytes == other.bytes);
        CHECK(other.buffer == before);
        ++seen;
    }
    CHECK(seen == 55);
    Case cut(50, 8);
    CHECK(translate_request(cut.buffer, sizeof(fuse_in_header) - 1).bytes == sizeof(fuse_in_header) - 1);
    CHECK(translate_request(std::span(cut.buffer).first(48), cut.bytes).bytes == cut.bytes);
    CHECK(cut.header().opcode == 50);
}

}  // namespace cowraid
