// SPDX-License-Identifier: MIT
// Payloads of named items, hash buckets, and lookups through the layers of a store.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "format/items.h"
#include "fs/names/dirent.h"
#include "tests/support/node_memory.h"

using namespace cowraid;

namespace {

constexpr uint64_t kSeed = 77;
constexpr InodeNumber kDirectory{300};

// A store whose items can be in any of the three layers.
struct Layers {
    void put(const Key& key, const ItemBytes& value) { timeline.open()->items.put(key, value); }
    void erase(const Key& key) { timeline.open()->items.erase(key); }
    // What is open becomes the committing transaction, what was committing the tree.
    void advance()
    {
        if (committing) {
            std::vector<TreeUpdate> updates;
            const std::vector<ItemTable::Change> changes = committing->items.sorted();
            for (const ItemTable::Change& change : changes)
                updates.push_back({change.key,
                                   change.erased ? TreeUpdate::Kind::kErase : TreeUpdate::Kind::kPut,
                                   change.value});
            CowTree tree(cache, timeline.view().committed->file_tree);
            REQUIRE(tree.apply(updates, nullptr).ok());
            Ref<Committed> next = make_ref<Committed>();
            next->transaction = committing->id;
            next->file_tree = commit(tree, cache, nodes, random, {++generation});
            timeline.publish(Ref<const Committed>(next.get()));
        }
        committing = timeline.close_open();
    }

    Prng random{1};
    TestStore nodes;
    NodeCache cache{nodes, test_uuid(), 16 * kMiB};
    Timeline timeline{make_ref<Transaction>(TransactionId{1}), Ref<const Committed>(new Committed())};
    ItemStore store{cache, timeline};
    Ref<Transaction> committing;
    uint64_t generation = 0;
};

std::span<const std::byte> bytes_of_value(std::string_view text)
{
    return std::as_bytes(std::span(text));
}

Dirent entry_at(uint64_t cursor, const std::string& name, uint64_t inode = 400)
{
    return {cursor, {inode}, 3, S_IFREG, name};
}

void put_entry(Layers& layers, const Dirent& entry)
{
    layers.put(dirent_key(kDirectory, entry.cursor), encode_dirent(entry));
}

DirentSlot find(Layers& layers, std::string_view name)
{
    Result<DirentSlot> slot = find_dirent(layers.store, kSeed, kDirectory, name);
    REQUIRE(slot.ok());
    return slot.take();
}

// Every payload shorter or longer than `valid`, and the length field pushed about, is refused.
template <typename Decode> size_t refuse_other_lengths(const ItemBytes& valid, Decode&& decode)
{
    size_t case_count = 0;
    for (size_t size = 0; size < valid.size(); ++size, ++case_count)
        CHECK(decode(ItemBytes(valid.begin(), valid.begin() + static_cast<ptrdiff_t>(size))) ==
              Err::kCorrupt);
    ItemBytes longer = valid;
    longer.push_back(std::byte{'x'});
    CHECK(decode(longer) == Err::kCorrupt);
    return case_count;
}

}  // namespace

TEST_CASE("names: what can be one")
{
    CHECK(check_name("a").ok());
    CHECK(check_name(std::string(255, 'n')).ok());
    CHECK(check_name("\xff\xfe").ok());
    CHECK(check_name("..").ok());
    CHECK(check_name("").err() == Err::kInvalid);
    CHECK(check_name("a/b").err() == Err::kInvalid);
    CHECK(check_name(std::string_view("a\0b", 3)).err() == Err::kInvalid);
    CHECK(check_name(std::string(256, 'n')).err() == Err::kNameTooLong);
    CHECK(is_dot_name("."));
    CHECK(is_dot_name(".."));
    CHECK_FALSE(is_dot_name("..."));
    CHECK_FALSE(is_dot_name(""));
}

TEST_CASE("buckets stay between the cursors that are taken and a positive off_t")
{
    uint64_t low = UINT64_MAX;
    uint64_t high = 0;
    for (uint64_t i = 0; i < 100000; ++i) {
        const uint64_t bucket = name_bucket(kSeed, std::to_string(i));
        REQUIRE(bucket % kBucketSlots == 0);
        REQUIRE(bucket >= kMinCursor);
        REQUIRE(bucket + kBucketSlots - 1 <= kMaxCursor);
        low = std::min(low, bucket);
        high = std::max(high, bucket);
    }
    CHECK(static_cast<int64_t>(kMaxCursor + 1) > 0);
    // They use the whole range.
    CHECK(low < kMaxCursor / 1000);
    CHECK(high > kMaxCursor / 1000 * 999);
    CHECK(name_bucket(1, "same") != name_bucket(2, "same"));
}

TEST_CASE("directory entries survive encoding, and damaged ones are refused")
{
    for (const size_t name_bytes : {size_t{1}, size_t{37}, size_t{255}}) {
        const Dirent entry{12345, {kMaxInode}, UINT64_MAX, S_IFLNK, std::string(name_bytes, 'q')};
        const Result<Dirent> read = decode_dirent(entry.cursor, encode_dirent(entry));
        REQUIRE(read.ok());
        CHECK(read->cursor == entry.cursor);
        CHECK(read->inode == entry.inode);
        CHECK(read->link_sequence == entry.link_sequence);
        CHECK(read->mode_type == entry.mode_type);
        CHECK(read->name == entry.name);
    }
    const auto decode = [](const ItemBytes& payload) {
        return decode_dirent(1000, payload).err();
    };
    CHECK(refuse_other_lengths(encode_dirent(entry_at(1000, "name")), decode) == sizeof(DiskDirent) + 4);
    for (const Dirent& bad :
         {entry_at(1000, "a/b"), entry_at(1000, ""), entry_at(1000, "."), entry_at(1000, ".."),
          entry_at(1000, std::string("a\0b", 3)), entry_at(1000, std::string(256, 'n')),
          entry_at(1000, "a", 0), entry_at(1000, "a", 255), entry_at(1000, "a", kRootInode),
          entry_at(1000, "a", kMaxInode + 1), Dirent{1000, {400}, 0, 0, "a"},
          Dirent{1000, {400}, 0, S_IFREG | 0644, "a"}})
        CHECK(decode(encode_dirent(bad)) == Err::kCorrupt);
    const ItemBytes valid = encode_dirent(entry_at(1000, "a"));
    CHECK(decode_dirent(kMinCursor - 1, valid).err() == Err::kCorrupt);
    CHECK(decode_dirent(kMaxCursor + 1, valid).err() == Err::kCorrupt);
    CHECK(decode_dirent(kMaxCursor, valid).ok());
}

TEST_CASE("links survive encoding, and damaged ones are refused")
{
    const InodeLink link{kDirectory, 5000, "name"};
    const Result<InodeLink> read = decode_link(encode_link(link));
    REQUIRE(read.ok());
    CHECK(read->parent == link.parent);
    CHECK(read->cursor == link.cursor);
    CHECK(read->name == link.name);
    const auto decode = [](const ItemBytes& payload) {
        return decode_link(payload).err();
    };
    CHECK(refuse_other_lengths(encode_link(link), decode) == sizeof(DiskLink) + 4);
    for (const InodeLink& bad :
         {InodeLink{{0}, 5000, "a"}, InodeLink{{kMaxInode + 1}, 5000, "a"}, InodeLink{kDirectory, 2, "a"},
          InodeLink{kDirectory, kMaxCursor + 1, "a"}, InodeLink{kDirectory, 5000, "a/"}})
        CHECK(decode(encode_link(bad)) == Err::kCorrupt);
    CHECK(decode_link(encode_link({{kRootInode}, 5000, "a"})).ok());
}

TEST_CASE("extended attributes survive encoding, and damaged ones are refused")
{
    ItemBytes value(7777);
    Prng(3).fill(value.data(), value.size());
    const Result<XattrPart> read = decode_xattr(1000, encode_xattr("user.name", value).front());
    REQUIRE(read.ok());
    CHECK(read->cursor == 1000);
    CHECK(read->name == "user.name");
    CHECK(read->value == value);
    const Result<XattrPart> empty = decode_xattr(1000, encode_xattr("n", {}).front());
    REQUIRE(empty.ok());
    CHECK(empty->value.empty());
    const auto decode = [](const ItemBytes& payload) {
        return decode_xattr(1000, payload).err();
    };
    const ItemBytes small(10);
    CHECK(refuse_other_lengths(encode_xattr("user.a", small).front(), decode) == sizeof(DiskXattr) + 16);
    CHECK(decode(encode_xattr("", small).front()) == Err::kCorrupt);
    CHECK(decode(encode_xattr(std::string(256, 'n'), small).front()) == Err::kCorrupt);
    CHECK(decode(encode_xattr(std::string_view("a\0b", 3), small).front()) == Err::kCorrupt);
}

TEST_CASE("a bucket takes 256 names, and the first free place again")
{
    Layers layers;
    const uint64_t bucket = name_bucket(kSeed, "wanted");
    CHECK(find(layers, "wanted").free_cursor == bucket);
    // Neighbour buckets do not count.
    put_entry(layers, entry_at(bucket + kBucketSlots, "behind"));
    put_entry(layers, entry_at(bucket - 1, "before"));
    CHECK(find(layers, "wanted").free_cursor == bucket);
    for (uint64_t slot = 0; slot < kBucketSlots; ++slot) {
        CHECK(find(layers, "wanted").free_cursor == bucket + slot);
        put_entry(layers, entry_at(bucket + slot, "other" + std::to_string(slot)));
        // Spread over all three layers.
        if (slot % 60 == 59)
            layers.advance();
    }
    CHECK(find(layers, "wanted").free_cursor == 0);
    for (const uint64_t slot : {uint64_t{255}, uint64_t{100}, uint64_t{3}, uint64_t{0}}) {
        layers.erase(dirent_key(kDirectory, bucket + slot));
        const DirentSlot found = find(layers, "wanted");
        CHECK_FALSE(found.found);
        CHECK(found.free_cursor == bucket + slot);
    }
}

TEST_CASE("a name is found in any place of its bucket and in any layer, and gone when erased in a newer one")
{
    size_t case_count = 0;
    for (const uint64_t slot : {uint64_t{0}, uint64_t{1}, uint64_t{255}}) {
        for (int layer = 0; layer < 3; ++layer) {
            Layers layers;
            const uint64_t bucket = name_bucket(kSeed, "wanted");
            for (uint64_t i = 0; i < slot; ++i)
                put_entry(layers, entry_at(bucket + i, "other" + std::to_string(i)));
            put_entry(layers, entry_at(bucket + slot, "wanted", 777));
            for (int i = 0; i < layer; ++i)
                layers.advance();
            const DirentSlot found = find(layers, "wanted");
            REQUIRE(found.found);
            CHECK(found.entry.inode.value == 777);
            CHECK(found.entry.cursor == bucket + slot);
            CHECK_FALSE(find(layers, "Wanted").found);
            layers.erase(dirent_key(kDirectory, bucket + slot));
            CHECK_FALSE(find(layers, "wanted").found);
            ++case_count;
        }
    }
    CHECK(case_count == 9);
}

TEST_CASE("extended attributes have buckets of their own")
{
    Layers layers;
    const uint64_t bucket = name_bucket(kSeed, "user.a");
    layers.put(xattr_key(kDirectory, bucket), encode_xattr("user.b", bytes_of_value("other")).front());
    layers.put(xattr_key(kDirectory, bucket + 7), encode_xattr("user.a", bytes_of_value("value")).front());
    put_entry(layers, entry_at(bucket + 1, "user.a"));
    Result<XattrSlot> slot = find_xattr(layers.store, kSeed, kDirectory, "user.a");
    REQUIRE(slot.ok());
    CHECK(slot->cursors == std::vector<uint64_t>{bucket + 7});
    REQUIRE(slot->free_cursors.size() == kBucketSlots - 2);
    CHECK(slot->free_cursors.front() == bucket + 1);
    CHECK(slot->value == ItemBytes(bytes_of_value("value").begin(), bytes_of_value("value").end()));
}

TEST_CASE("an extended attribute in parts is whole, or an error")
{
    ItemBytes value(3 * kMaxItemBytes);
    Prng(5).fill(value.data(), value.size());
    const uint64_t bucket = name_bucket(kSeed, "user.a");
    const std::vector<ItemBytes> parts = encode_xattr("user.a", value);
    REQUIRE(parts.size() == 4);
    const auto found_in = [&](const std::vector<std::pair<uint64_t, size_t>>& items) {
        Layers layers;
        layers.put(xattr_key(kDirectory, bucket + 3), encode_xattr("user.b", {}).front());
        for (const auto& [slot, part] : items)
            layers.put(xattr_key(kDirectory, bucket + slot), ItemBytes(parts[part]));
        return find_xattr(layers.store, kSeed, kDirectory, "user.a");
    };
    const auto whole = found_in({{0, 0}, {2, 1}, {4, 2}, {255, 3}});
    REQUIRE(whole.ok());
    CHECK(whole->value == value);
    CHECK(whole->cursors == std::vector<uint64_t>{bucket, bucket + 2, bucket + 4, bucket + 255});
    CHECK(whole->free_cursors.size() == kBucketSlots - 5);
    CHECK(found_in({{0, 0}, {2, 1}, {4, 2}}).err() == Err::kCorrupt);
    CHECK(found_in({{0, 0}, {2, 1}, {4, 3}}).err() == Err::kCorrupt);
    CHECK(found_in({{2, 1}, {4, 2}, {5, 3}}).err() == Err::kCorrupt);
    CHECK(found_in({{0, 0}, {2, 0}}).err() == Err::kCorrupt);
    CHECK(found_in({{0, 1}, {1, 0}, {4, 2}, {5, 3}}).err() == Err::kCorrupt);
    CHECK_FALSE(found_in({})->found());
}

TEST_CASE("one damaged entry of a bucket is an error, not a missing name")
{
    Layers layers;
    const uint64_t bucket = name_bucket(kSeed, "wanted");
    layers.put(dirent_key(kDirectory, bucket), ItemBytes(5));
    put_entry(layers, entry_at(bucket + 1, "wanted"));
    CHECK(find_dirent(layers.store, kSeed, kDirectory, "wanted").err() == Err::kCorrupt);
}
