// SPDX-License-Identifier: MIT
// Random sets of faults in whole volumes, of all that members hold: one pass repairs all, the next is quiet,
// and who was wrong is charged, by kind, and nobody else.
#include <fcntl.h>
#include <linux/falloc.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/clock.h"

#include "raid56/array_state.h"
#include "tests/filesystem/scrub_steps.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using What = Committer::SyncWhat;

constexpr uint64_t kFaultChunkBytes = 16 * kKiB;

// Fault sets of the random run: 500, or what COWRAID_SCRUB_ROUNDS says.
uint32_t rounds()
{
    const char* text = std::getenv("COWRAID_SCRUB_ROUNDS");
    return text != nullptr ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : 500;
}

// What is wrong with blocks of one member, by where they are.
struct Spoilt {
    enum class Kind : uint8_t { kRotten, kUnreadable };
    std::map<uint64_t, Kind> blocks;  // in block groups
    uint64_t heads = 0;  // copies of superblocks and maps
    std::map<uint64_t, Kind> logs;
    std::vector<size_t> rules;

    void add(SimVolume& volume, Prng& prng, uint32_t member, uint64_t offset, Kind kind)
    {
        if (kind == Kind::kRotten)
            rot(volume, prng, member, offset);
        else
            rules.push_back(volume.cable(member).add_rule(
                {.action = FaultAction::kLatent, .begin = offset, .end = offset + kBlockBytes}));
    }
    static uint64_t count(const std::map<uint64_t, Kind>& places, Kind kind)
    {
        return static_cast<uint64_t>(
            std::count_if(places.begin(), places.end(), [=](const auto& one) { return one.second == kind; }));
    }
};

using SpoiltMembers = std::map<uint32_t, Spoilt>;

// Of what is stored in block groups.
void spoil_blocks(SimVolume& volume, Prng& prng, uint32_t member, Spoilt& spoilt)
{
    const uint64_t begin = slots_offset(volume.fs());
    const uint64_t blocks = (volume.shape().member_bytes - begin) / kBlockBytes;
    const uint64_t wanted = prng.between(1, 60);
    std::vector<std::byte> content(kBlockBytes);
    for (int attempt = 0; attempt < 4000 && spoilt.blocks.size() < wanted; ++attempt) {
        const uint64_t offset = begin + prng.below(blocks) * kBlockBytes;
        volume.member(member).peek(offset, content);
        if (same(content, std::vector<std::byte>(kBlockBytes)) || spoilt.blocks.contains(offset))
            continue;
        const auto kind = prng.chance(1, 4) ? Spoilt::Kind::kUnreadable : Spoilt::Kind::kRotten;
        spoilt.blocks[offset] = kind;
        spoilt.add(volume, prng, member, offset, kind);
    }
}

// Of the rest: a copy of the superblock and one of the map, of the last commit, and blocks of both logs.
void spoil_rest(SimVolume& volume, Prng& prng, uint32_t member, Spoilt& spoilt)
{
    const auto some_kind = [&] {
        return prng.chance(1, 2) ? Spoilt::Kind::kUnreadable : Spoilt::Kind::kRotten;
    };
    const Superblock& superblock = volume.fs().volume->superblock();
    const MemberRecord& line = superblock.members[member];
    const uint64_t slot = superblock.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes;
    const uint64_t places[] = {kSuperblockRingOffset[prng.below(kSuperblockRingCount)] + slot,
                               line.map_offset[superblock.map.place]};
    for (const uint64_t place : places)
        if (prng.chance(1, 3)) {
            spoilt.add(volume, prng, member, place, some_kind());
            ++spoilt.heads;
        }
    const std::pair<uint64_t, uint64_t> logs[] = {{line.intent_log_offset, line.intent_log_bytes},
                                                  {line.fsync_log_offset, line.fsync_log_bytes}};
    for (const auto& [offset, bytes] : logs)
        if (prng.chance(1, 3)) {
            const uint64_t place = offset + prng.below(bytes / kBlockBytes) * kBlockBytes;
            const Spoilt::Kind kind = some_kind();
            spoilt.logs[place] = kind;
            spoilt.add(volume, prng, member, place, kind);
        }
}

// Blocks on members that a scrub must find: of rows in use, and of nodes. With what they are.
std::map<std::pair<uint32_t, uint64_t>, MemberCounter> places_in_use(Filesystem& fs)
{
    std::map<std::pair<uint32_t, uint64_t>, MemberCounter> places;
    const auto in_use = [&](const ArrayGroup& group, const BlockPlace& place) {
        return *fs.store.allocator.is_used(address_of(group, place));
    };
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups()) {
        const Geometry& geometry = group->geometry;
        const bool alone = geometry.parity == 0 && group->record.content != kGroupData;
        for (uint64_t block = 0; block < geometry.stripe_count() * geometry.rows(); ++block) {
            const BlockPlace first{block / geometry.rows(), 0,
                                   static_cast<uint32_t>(block % geometry.rows())};
            bool any = false;
            for (BlockPlace place = first; place.column < geometry.data_columns; ++place.column)
                any = any || in_use(*group, place);
            for (uint32_t cell = 0; any && cell < geometry.columns(); ++cell) {
                const BlockPlace place{first.stripe, cell / geometry.copies, first.row};
                if (alone && !in_use(*group, place))
                    continue;
                const uint32_t column =
                    group_column(geometry, place.stripe, place.column, cell % geometry.copies);
                const uint64_t offset = group->locate(column, column_offset(geometry, place)).offset.value;
                places[{group->record.columns[column].member.value - 1, offset}] =
                    place.column < geometry.data_columns ? MemberCounter::kCorruption
                                                         : MemberCounter::kParity;
            }
        }
    }
    return places;
}

// Files are written to, cut, given holes, and removed while somebody has them open.
class Writer {
public:
    // `syncs`: files are synced, too.
    Writer(Filesystem& fs, uint64_t seed, Contents& contents, bool syncs = false)
        : fs_(fs), prng_(seed), contents_(contents), syncs_(syncs)
    {
    }

    void run()
    {
        for (int change = 0; change < 12; ++change) {
            change_one_in_memory(fs_, prng_, contents_);
            if (syncs_)
                overwrite();
            if (prng_.chance(1, 3))
                cut();
            if (prng_.chance(1, 3))
                punch();
            if (prng_.chance(1, 6))
                remove_open();
        }
        for (const auto& [file, content] : open_)
            close(file, content);
    }

private:
    std::map<std::string, std::vector<std::byte>>::iterator some_file()
    {
        return std::next(contents_.begin(), static_cast<ptrdiff_t>(prng_.below(contents_.size())));
    }
    // Whole blocks, on the members before anything else happens.
    void overwrite()
    {
        const auto at = some_file();
        const uint64_t first = round_down(prng_.below(at->second.size()), kBlockBytes);
        const uint64_t bytes = std::min(prng_.between(1, 6) * kBlockBytes, at->second.size() - first);
        const std::vector<std::byte> piece = random_content(prng_, bytes);
        const InodeNumber file = find_file(fs_, at->first);
        const Status written = fs_.files.write(file, first, piece, {}, {}).status();
        REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
        std::copy(piece.begin(), piece.end(), at->second.begin() + static_cast<ptrdiff_t>(first));
        REQUIRE(fs_.committer.fsync(file, What::kAll).ok());
    }
    // Or made longer.
    void cut()
    {
        const auto at = some_file();
        SetAttributes change;
        change.size_bytes = 1 + at->second.size() / 2 + prng_.below(at->second.size() / 2 + 5000);
        REQUIRE(fs_.names.set_attributes(find_file(fs_, at->first), change, {}).ok());
        at->second.resize(*change.size_bytes);
    }
    void punch()
    {
        const auto at = some_file();
        const uint64_t first = prng_.below(at->second.size());
        const uint64_t bytes = 1 + prng_.below(at->second.size() - first);
        REQUIRE(fs_.files
                    .allocate_range(find_file(fs_, at->first), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                    first, bytes)
                    .ok());
        std::fill_n(at->second.begin() + static_cast<ptrdiff_t>(first), bytes, std::byte{0});
    }
    // Another one gets its name.
    void remove_open()
    {
        const auto at = some_file();
        const Result<Attributes> file = fs_.names.lookup(kRoot, at->first);
        REQUIRE(file.ok());
        REQUIRE(fs_.names.unlink(kRoot, at->first).ok());
        open_.emplace_back(file->inode, at->second);
        at->second = random_content(prng_, at->second.size() / 2 + prng_.below(30000) + 1);
        write_file(fs_, at->first, at->second);
        const std::vector<std::byte> piece = random_content(prng_, 5000);
        REQUIRE(fs_.files.write(file->inode, open_.back().second.size(), piece, {}, {}).ok());
        open_.back().second.insert(open_.back().second.end(), piece.begin(), piece.end());
    }
    void close(InodeNumber file, const std::vector<std::byte>& content)
    {
        std::vector<std::byte> read(content.size());
        CHECK(read_file(fs_, file, read).ok());
        CHECK(same(read, content));
        fs_.names.forget(file, 1);
    }

    Filesystem& fs_;
    Prng prng_;
    Contents& contents_;
    const bool syncs_;
    std::vector<std::pair<InodeNumber, std::vector<std::byte>>> open_;
};

// Flushes and commits are made between the steps of the scrub, as by a commit thread.
ScrubStatus scrub_beside_writer(Filesystem& fs, Prng& prng, Contents& contents)
{
    const uint64_t writer_seed = prng.next();
    std::thread writer([&] { Writer(fs, writer_seed, contents).run(); });
    ScrubStatus status;
    for (int step = 0; step < 1000 && status.state != ScrubState::kFinished; ++step) {
        status = fs.scrub_step();
        if (prng.chance(1, 2))
            REQUIRE(fs.step(prng.chance(1, 3)).ok());
    }
    writer.join();
    REQUIRE(status.state == ScrubState::kFinished);
    REQUIRE(fs.step(true).ok());
    return status;
}

// By the threads of the volume.
ScrubStatus scrub_to_its_end(Filesystem& fs, ScrubMode mode)
{
    REQUIRE(fs.committer.scrub.start({.mode = mode}).ok());
    const uint64_t give_up_ms = monotonic_ms() + 120'000;
    while (fs.committer.scrub.status().state == ScrubState::kRunning && monotonic_ms() < give_up_ms)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const ScrubStatus status = fs.committer.scrub.status();
    REQUIRE(status.state == ScrubState::kFinished);
    return status;
}

// One thread writes and syncs, another one commits, and those of the volume do as they like. `commits`:
// while the scrub ran, those of the fsync log among them.
ScrubStatus scrub_beside_threads(Filesystem& fs, Prng& prng, Contents& contents, uint64_t& commits,
                                 ScrubMode mode = ScrubMode::kRepair)
{
    std::atomic<bool> ends{false};
    const auto committed = [&] {
        const VolumeInfo info = fs.info();
        return info.commits + info.fsync_records;
    };
    const uint64_t idle = committed();
    const uint64_t writer_seed = prng.next();
    std::thread writer([&] {
        for (uint64_t turn = 0; turn == 0 || !ends; ++turn)
            Writer(fs, writer_seed + turn, contents, true).run();
    });
    std::thread committing([&] {
        for (; !ends; std::this_thread::sleep_for(std::chrono::microseconds(200)))
            REQUIRE(fs.committer.sync().ok());
    });
    while (committed() == idle)
        std::this_thread::yield();
    const uint64_t before = committed();
    const ScrubStatus status = scrub_to_its_end(fs, mode);
    commits += committed() - before;
    ends = true;
    writer.join();
    committing.join();
    REQUIRE(fs.committer.sync().ok());
    return status;
}

uint64_t sum_of(const MemberCounters& counters, std::initializer_list<MemberCounter> which)
{
    uint64_t sum = 0;
    for (const MemberCounter counter : which)
        sum += counters[static_cast<size_t>(counter)];
    return sum;
}

constexpr std::initializer_list<MemberCounter> kWrongKinds = {MemberCounter::kCorruption,
                                                              MemberCounter::kParity};

// What a member was charged with, and what the scrub says of it, is no more than what was spoilt.
void check_guilty(const Spoilt& spoilt, const MemberCounters& charged, const ScrubMemberNumbers& found)
{
    using Kind = Spoilt::Kind;
    using Number = ScrubMemberNumber;
    const uint64_t unreadable =
        Spoilt::count(spoilt.blocks, Kind::kUnreadable) + Spoilt::count(spoilt.logs, Kind::kUnreadable);
    const uint64_t read_errors = sum_of(charged, {MemberCounter::kReadErrors});
    const uint64_t wrong = sum_of(charged, kWrongKinds),
                   heads = sum_of(charged, {MemberCounter::kSuperblock});
    // A block may be read in vain more than once beside writers; check_exactly() has those of a scrub alone.
    CHECK((read_errors == 0 || unreadable > 0));
    CHECK(wrong <= Spoilt::count(spoilt.blocks, Kind::kRotten));
    CHECK(heads <= spoilt.heads);
    // Parity that a writer in place meets gets what is new, and is not repaired.
    CHECK(sum_of(charged, {MemberCounter::kRepaired}) <= read_errors + wrong);
    CHECK(sum_of(charged, {MemberCounter::kWriteErrors, MemberCounter::kFlushErrors,
                           MemberCounter::kGeneration}) == 0);
    CHECK(found[Number::kReadErrors] <= read_errors);
    CHECK(found[Number::kWrong] <= wrong);
    CHECK(found[Number::kHeads] == heads);
    CHECK(found[Number::kCorrected] ==
          found[Number::kReadErrors] + found[Number::kWrong] + found[Number::kHeads]);
}

// Nobody else found or changed anything: exactly what was spoilt and is in use.
void check_exactly(uint32_t member, const Spoilt& spoilt, const MemberCounters& charged,
                   const ScrubMemberNumbers& found,
                   const std::map<std::pair<uint32_t, uint64_t>, MemberCounter>& in_use)
{
    MemberCounters expected{};
    for (const auto& [offset, kind] : spoilt.blocks)
        if (const auto at = in_use.find({member, offset}); at != in_use.end())
            ++expected[static_cast<size_t>(kind == Spoilt::Kind::kUnreadable ? MemberCounter::kReadErrors
                                                                             : at->second)];
    expected[static_cast<size_t>(MemberCounter::kReadErrors)] +=
        Spoilt::count(spoilt.logs, Spoilt::Kind::kUnreadable);
    expected[static_cast<size_t>(MemberCounter::kRepaired)] =
        sum_of(expected, {MemberCounter::kReadErrors, MemberCounter::kCorruption, MemberCounter::kParity});
    expected[static_cast<size_t>(MemberCounter::kSuperblock)] = spoilt.heads;
    CHECK(charged == expected);
    CHECK(found[ScrubMemberNumber::kReadErrors] == sum_of(charged, {MemberCounter::kReadErrors}));
    CHECK(found[ScrubMemberNumber::kWrong] == sum_of(charged, kWrongKinds));
}

MemberCounters difference(const MemberCounters& after, const MemberCounters& before)
{
    MemberCounters out{};
    for (size_t index = 0; index < out.size(); ++index)
        out[index] = after[index] - before[index];
    return out;
}

// kAlone: all that is found is known. Commits beside the scrub by kThreads.
enum class Beside : uint8_t { kAlone, kWriter, kThreads };

uint64_t check_fault_set(SimVolume& volume, Prng& prng, uint32_t tolerance, Contents& contents, Beside beside)
{
    Filesystem& fs = volume.fs();
    const bool alone = beside == Beside::kAlone, threads = beside == Beside::kThreads;
    REQUIRE((threads ? fs.committer.sync() : fs.step(true)).ok());
    const VolumeInfo before = fs.info();
    SpoiltMembers spoilt;
    while (spoilt.size() < tolerance)
        spoilt.try_emplace(static_cast<uint32_t>(prng.below(volume.member_count())));
    const auto in_use = alone ? places_in_use(fs) : decltype(places_in_use(fs)){};
    for (auto& [member, what] : spoilt) {
        spoil_blocks(volume, prng, member, what);
        if (!threads)  // they write superblocks meanwhile
            spoil_rest(volume, prng, member, what);
        REQUIRE_FALSE(what.blocks.empty());
    }
    uint64_t commits = 0;
    const ScrubStatus status = alone     ? scrub(fs)
                               : threads ? scrub_beside_threads(fs, prng, contents, commits)
                                         : scrub_beside_writer(fs, prng, contents);
    CHECK_FALSE(status.damaged());
    CHECK(status.adopted == 0);
    CHECK(status.unverified == 0);
    require_quiet(threads ? scrub_to_its_end(fs, ScrubMode::kRepair) : scrub(fs));
    const VolumeInfo after = fs.info();
    CHECK(after.blocks_unrecoverable == 0);
    uint64_t corrected = 0;
    for (uint32_t member = 0; member < volume.member_count(); ++member) {
        INFO("member ", member + 1);
        const MemberCounters charged =
            difference(after.members[member].counters, before.members[member].counters);
        const ScrubMemberNumbers found = found_on(status, member);
        CHECK(found[ScrubMemberNumber::kVerified] > 0);
        CHECK(found[ScrubMemberNumber::kLost] + found[ScrubMemberNumber::kUnverified] == 0);
        corrected += found[ScrubMemberNumber::kCorrected];
        const auto guilty = spoilt.find(member);
        check_guilty(guilty == spoilt.end() ? Spoilt() : guilty->second, charged, found);
        if (guilty != spoilt.end() && alone)
            check_exactly(member, guilty->second, charged, found, in_use);
    }
    CHECK(corrected == status.repaired);
    for (const auto& [member, what] : spoilt)
        for (const size_t rule : what.rules)
            volume.cable(member).remove_rule(rule);
    return commits;
}

}  // namespace

TEST_CASE("scrub: random sets of faults in whole volumes beside writers: one pass repairs, the next is quiet")
{
    struct Case {
        ProfileId data, metadata;
        uint32_t members;
    };
    constexpr Case kCases[] = {{ProfileId::kRaid5, ProfileId::kRaid1, 4},
                               {ProfileId::kRaid6, ProfileId::kRaid1c3, 5},
                               {ProfileId::kRaid6, ProfileId::kRaid6, 5},
                               {ProfileId::kRaid5, ProfileId::kRaid5, 4},
                               {ProfileId::kRaid10, ProfileId::kRaid10, 5}};
    for (const Case& one : kCases) {
        SimVolume volume({one.members, 96 * kMiB, one.data, one.metadata, kFaultChunkBytes});
        make_and_mount(volume);
        Prng prng(seed());
        Contents contents = fill(volume.fs(), prng, 3 * kMiB);
        for (uint32_t round = 0; round < divide_up(rounds(), std::size(kCases)); ++round) {
            INFO(find_profile(one.data)->name, " ", find_profile(one.metadata)->name, " seed ", seed(),
                 " round ", round);
            check_fault_set(volume, prng, find_profile(one.data)->tolerance, contents,
                            round % 10 == 0 ? Beside::kAlone : Beside::kWriter);
            if (round % 20 == 0)
                require_contents(volume.fs(), contents);
        }
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

TEST_CASE("scrub: random sets of faults beside threads that write in place, sync and commit")
{
    struct Case {
        ProfileId data, metadata;
        uint32_t members;
    };
    constexpr Case kCases[] = {{ProfileId::kRaid5, ProfileId::kRaid1, 4},
                               {ProfileId::kRaid6, ProfileId::kRaid1c3, 5},
                               {ProfileId::kRaid6, ProfileId::kRaid6, 5}};
    for (const Case& one : kCases) {
        // Room for nodes, of which the scrub's view of an old commit keeps those that commits free meanwhile.
        SimVolume volume({one.members, 192 * kMiB, one.data, one.metadata, kFaultChunkBytes});
        make_and_mount(volume);
        Prng prng(seed());
        Contents contents = fill(volume.fs(), prng, 3 * kMiB);
        REQUIRE(volume.unmount().ok());
        MountOptions options;
        options.join_above = 0;
        options.commit_seconds = 1;
        mount(volume, options);
        uint64_t commits = 0;
        for (uint32_t round = 0; round < divide_up(rounds(), 25 * std::size(kCases)); ++round) {
            INFO(find_profile(one.data)->name, " ", find_profile(one.metadata)->name, " seed ", seed(),
                 " round ", round);
            commits +=
                check_fault_set(volume, prng, find_profile(one.data)->tolerance, contents, Beside::kThreads);
            require_contents(volume.fs(), contents);
        }
        CHECK(commits > 0);
        CHECK(volume.fs().info().joined_blocks > 0);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

namespace {

// A row of data under parity, with the free blocks that it has.
struct PartialRow {
    Ref<const ArrayGroup> group;
    uint64_t stripe = 0;
    uint32_t row = 0;
    std::vector<uint32_t> free_columns;

    void spoil(SimVolume& volume, Prng& prng, uint32_t column) const
    {
        const BlockPlace place{stripe, column, row};
        const uint32_t own = group_column(group->geometry, stripe, column, 0);
        rot(volume, prng, group->record.columns[own].member.value - 1,
            group->locate(own, column_offset(group->geometry, place)).offset.value);
    }
};

// Those with a block in use and at least two that are free. All of their blocks have checksums.
std::vector<PartialRow> partial_rows(Filesystem& fs)
{
    std::vector<PartialRow> rows;
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups()) {
        const Geometry& geometry = group->geometry;
        for (uint64_t at = 0; geometry.parity > 0 && at < geometry.stripe_count() * geometry.rows(); ++at) {
            PartialRow one{group, at / geometry.rows(), static_cast<uint32_t>(at % geometry.rows()), {}};
            for (uint32_t column = 0; column < geometry.data_columns; ++column)
                if (!*fs.store.allocator.is_used(address_of(*group, {one.stripe, column, one.row})))
                    one.free_columns.push_back(column);
            if (one.free_columns.size() >= 2 && one.free_columns.size() < geometry.data_columns)
                rows.push_back(std::move(one));
        }
    }
    return rows;
}

ScrubStatus look(Filesystem& fs)
{
    REQUIRE(fs.committer.scrub.start({.mode = ScrubMode::kLook}).ok());
    return scrub(fs);
}

}  // namespace

TEST_CASE("scrub: what is wrong with parity and free blocks is told by a pass that looks, and then repaired")
{
    SimVolume volume({5, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kFaultChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents;
    for (int file = 0; file < 4; ++file) {
        const std::string name = "small" + std::to_string(file);
        contents[name] = random_content(prng, kBlockBytes);
        write_file(fs, name, contents[name]);
        REQUIRE(fs.step(true).ok());
    }
    const std::vector<PartialRow> rows = partial_rows(fs);
    REQUIRE(rows.size() >= 4);
    CHECK(look(fs).all_well());
    const uint32_t parity = rows[0].group->geometry.data_columns;
    rows[0].spoil(volume, prng, parity);
    // More than parity can solve: the free blocks stay as they are, and parity follows.
    for (const uint32_t column : {rows[1].free_columns[0], rows[1].free_columns[1]})
        rows[1].spoil(volume, prng, column);
    for (const uint32_t column : {rows[2].free_columns[0], parity})
        rows[2].spoil(volume, prng, column);
    rows[3].spoil(volume, prng, rows[3].free_columns[0]);
    for (int pass = 0; pass < 2; ++pass) {
        const ScrubStatus looked = look(fs);
        CHECK(looked.unrepaired == 4);
        CHECK(looked.repaired + looked.adopted + looked.lost == 0);
        CHECK(looked.damaged());
    }
    const ScrubStatus repaired = scrub(fs);
    CHECK(repaired.repaired == 4);
    CHECK(repaired.adopted == 3 + 2);
    CHECK(repaired.unrepaired + repaired.lost == 0);
    REQUIRE(fs.step(true).ok());
    require_quiet(scrub(fs));
    CHECK(look(fs).all_well());
    CHECK(fs.committer.scrub.status().earlier_unrepaired == 0);
    require_contents(fs, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("scrub: passes that look find nothing wrong beside threads that write in place, sync and commit")
{
    for (const auto& [data, members] : {std::pair{ProfileId::kRaid5, 4u}, std::pair{ProfileId::kRaid6, 5u}}) {
        SimVolume volume({members, 192 * kMiB, data, data, kFaultChunkBytes});
        make_and_mount(volume);
        Prng prng(seed());
        Contents contents = fill(volume.fs(), prng, 3 * kMiB);
        REQUIRE(volume.unmount().ok());
        MountOptions options;
        options.join_above = 0;
        options.commit_seconds = 1;
        mount(volume, options);
        uint64_t commits = 0;
        for (int pass = 0; pass < 12; ++pass) {
            const ScrubMode mode = pass % 2 == 0 ? ScrubMode::kLook : ScrubMode::kRepair;
            const ScrubStatus status = scrub_beside_threads(volume.fs(), prng, contents, commits, mode);
            CHECK(status.all_well());
            CHECK(status.parity_blocks > 0);
            require_quiet(status);
        }
        CHECK(commits > 0);
        CHECK(volume.fs().info().joined_blocks > 0);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

TEST_CASE("scrub: logs that cannot be read are written anew, and hold what comes")
{
    using Number = ScrubMemberNumber;
    constexpr uint32_t kBad = 2;
    for (const bool looks : {true, false}) {
        SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kFaultChunkBytes});
        std::string why;
        REQUIRE_MESSAGE(volume.make(why).ok(), why);
        MountOptions options = manual_options();
        options.join_above = 0;
        mount(volume, options);
        Filesystem& fs = volume.fs();
        Prng prng(seed());
        // Both logs hold something.
        Contents contents = fill(fs, prng, kMiB);
        for (int file = 0; file < 20; ++file) {
            const std::string name = "logged" + std::to_string(file);
            contents[name] = random_content(prng, 5000);
            write_file(fs, name, contents[name]);
            REQUIRE(fs.committer.fsync(find_file(fs, name), What::kAll).ok());
        }
        REQUIRE(fs.step(true).ok());
        const MemberRecord& line = fs.volume->superblock().members[kBad];
        const std::pair<uint64_t, uint64_t> logs[] = {{line.intent_log_offset, line.intent_log_bytes},
                                                      {line.fsync_log_offset, line.fsync_log_bytes}};
        for (const auto& [offset, bytes] : logs)
            volume.cable(kBad).add_rule(
                {.action = FaultAction::kLatent, .begin = offset, .end = offset + bytes});
        const MemberCounters before = fs.info().members[kBad].counters;
        const uint64_t parts = (line.intent_log_bytes + line.fsync_log_bytes) / (64 * kKiB);
        REQUIRE(fs.committer.scrub.start({.mode = looks ? ScrubMode::kLook : ScrubMode::kRepair}).ok());
        const ScrubStatus status = scrub(fs);
        const ScrubMemberNumbers found = found_on(status, kBad);
        CHECK((looks ? status.unrepaired : status.repaired) >= parts);
        CHECK(status.damaged() == looks);
        CHECK(found[Number::kReadErrors] >= parts);
        CHECK(found[Number::kCorrected] == (looks ? 0 : found[Number::kReadErrors]));
        const MemberCounters charged = difference(fs.info().members[kBad].counters, before);
        CHECK(sum_of(charged, {MemberCounter::kReadErrors}) == found[Number::kReadErrors]);
        CHECK(sum_of(charged, {MemberCounter::kRepaired}) == found[Number::kCorrected]);
        if (looks)
            continue;
        require_quiet(scrub(fs));
        contents["last"] = random_content(prng, 5000);
        write_file(fs, "last", contents["last"]);
        REQUIRE(fs.committer.fsync(find_file(fs, "last"), What::kAll).ok());
        volume.power_cut(prng);
        mount(volume, options);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}
