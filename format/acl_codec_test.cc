// SPDX-License-Identifier: MIT
// Access control lists: what decoding takes, and what it refuses.
#include <doctest/doctest.h>

#include <string>

#include "format/acl_codec.h"

using namespace cowraid;

namespace {

// One letter per entry: owner, user, group, named group, mask, others.
Acl acl_of(std::string_view letters)
{
    Acl acl;
    for (const char letter : letters) {
        const size_t at = std::string_view("ougGm-").find(letter);
        const bool named = letter == 'u' || letter == 'G';
        acl.push_back(
            {static_cast<AclTag>(1 << at), 5, named ? 1000 + static_cast<uint32_t>(acl.size()) : UINT32_MAX});
    }
    return acl;
}

Err decoded(std::string_view letters)
{
    return decode_acl(encode_acl(acl_of(letters))).err();
}

}  // namespace

TEST_CASE("access lists: their entries stand in one order, with a mask where somebody is named")
{
    for (const char* letters : {"og-", "ogm-", "oum-", "ougm-", "ouugm-", "ogGm-", "ouugGGm-"}) {
        INFO(letters);
        const bool whole = std::string_view(letters) != "oum-";
        CHECK(decoded(letters) == (whole ? Err::kOk : Err::kInvalid));
    }
    for (const char* letters : {"", "o", "og", "o-", "g-", "oug-", "ogG-", "oog-", "ogg-", "og--", "ogmm-",
                                "guo-", "ogm-m", "ogum-", "oGgm-", "omg-", "ogmG-"}) {
        INFO(letters);
        CHECK(decoded(letters) == Err::kInvalid);
    }
}

TEST_CASE("access lists: what is no value of one")
{
    const ItemBytes good = encode_acl(acl_of("ougm-"));
    REQUIRE(good.size() == 44);
    const Result<Acl> acl = decode_acl(good);
    REQUIRE(acl.ok());
    REQUIRE(acl->size() == 5);
    CHECK((*acl)[1].tag == AclTag::kUser);
    CHECK((*acl)[1].permissions == 5);
    CHECK((*acl)[1].id == 1001);
    CHECK(encode_acl(*acl) == good);
    CHECK(decode_acl(std::span(good).first(43)).err() == Err::kInvalid);
    CHECK(decode_acl(std::span(good).first(4)).err() == Err::kInvalid);
    CHECK(decode_acl({}).err() == Err::kInvalid);
    const auto with = [&](size_t at, std::byte value) {
        ItemBytes bytes = good;
        bytes[at] = value;
        return decode_acl(bytes).err();
    };
    CHECK(with(0, std::byte{1}) == Err::kInvalid);  // version
    CHECK(with(4, std::byte{3}) == Err::kInvalid);  // tag
    CHECK(with(5, std::byte{1}) == Err::kInvalid);
    CHECK(with(6, std::byte{8}) == Err::kInvalid);  // permissions
    CHECK(with(6, std::byte{0}) == Err::kOk);
    ItemBytes nobody = good;
    for (size_t at = 16; at < 20; ++at)
        nobody[at] = std::byte{0xff};
    CHECK(decode_acl(nobody).err() == Err::kInvalid);
}

TEST_CASE("access lists: the longest")
{
    const size_t entries_max = (kAclBytesMax - 4) / 8;
    CHECK(decoded("o" + std::string(entries_max - 4, 'u') + "gm-") == Err::kOk);
    CHECK(decoded("o" + std::string(entries_max - 3, 'u') + "gm-") == Err::kTooBig);
}
