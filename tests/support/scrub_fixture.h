// SPDX-License-Identifier: MIT
// Scrubs of a test's volume.
#pragma once

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "tests/support/array_fixture.h"

namespace cowraid::test {

// Hands on to the volume, between the calls that frame a stripe.
class TestSink final : public ScrubSink {
public:
    explicit TestSink(TestVolume& volume) : volume_(volume) { }
    ~TestSink() override { CHECK_FALSE(inside_); }
    void begin_stripe(VolumeAddress) override
    {
        CHECK_FALSE(inside_);
        inside_ = true;
    }
    void end_stripe() override { inside_ = false; }
    void record(VolumeAddress at, std::span<const Checksum> checksums) override
    {
        CHECK(inside_);
        CHECK(checksums.size() == 1);
        volume_.answers.erase(at.value);
        volume_.record(at, checksums);
    }
    bool in_use(VolumeAddress at) override { return volume_.in_use(at); }
    bool may_be_used(VolumeAddress at) override
    {
        CHECK(inside_);
        return others.count(at.value) != 0;
    }
    bool may_record() override { return records; }
    bool await(MemberId member) override
    {
        CHECK_FALSE(inside_);
        return volume_.set.await(member);
    }

    std::set<uint64_t> others;  // blocks that transactions count on
    bool records = true;

private:
    TestVolume& volume_;
    bool inside_ = false;
};

inline ScrubReport scrub(TestVolume& volume, TestSink& sink, uint64_t stripes)
{
    std::vector<StripeRows> rows;
    for (uint64_t stripe = 0; stripe < stripes; ++stripe)
        rows.push_back({stripe, 0, volume.geometry.rows()});
    ScrubReport report;
    REQUIRE(volume.array->scrub_rows(TestVolume::kGroup, rows, ScrubMode::kRepair, sink, report).ok());
    return report;
}

inline ScrubReport scrub(TestVolume& volume, uint64_t stripes, ScrubMode mode = ScrubMode::kRepair)
{
    std::vector<StripeRows> rows;
    for (uint64_t stripe = 0; stripe < stripes; ++stripe)
        rows.push_back({stripe, 0, volume.geometry.rows()});
    ScrubReport report;
    TestSink sink(volume);
    REQUIRE(volume.array->scrub_rows(TestVolume::kGroup, rows, mode, sink, report).ok());
    return report;
}

// Nothing is wrong, nothing was written, nobody was charged.
inline void check_quiet(TestVolume& volume, uint64_t stripes)
{
    const uint64_t counted = volume.all_counters();
    volume.forget_requests();
    const ScrubReport report = scrub(volume, stripes);
    CHECK(report.repaired == 0);
    CHECK(report.unrepaired == 0);
    CHECK(report.adopted == 0);
    CHECK(report.lost.empty());
    CHECK(volume.requests(IoKind::kWrite) == 0);
    CHECK(volume.all_counters() == counted);
}

// A few blocks anywhere in the first stripes, again and again.
inline void overwrite_often(TestVolume& volume, uint64_t stripes, int count, uint64_t seed)
{
    Prng prng(seed);
    for (int i = 0; i < count; ++i) {
        // Room in the write-intent log.
        if (i % 50 == 49)
            REQUIRE(volume.commit_all().ok());
        CHECK(volume
                  .overwrite(prng.below(stripes * volume.geometry.stripe_data_blocks() - 8),
                             static_cast<uint32_t>(prng.below(8) + 1))
                  .ok());
    }
}

}  // namespace cowraid::test
