// SPDX-License-Identifier: MIT
#include "fs/check/check_bad_blocks.h"

#include <algorithm>
#include <tuple>

namespace cowraid {

namespace {

struct BadRun {
    ExaminedBlock first;
    uint64_t block_count = 1;
};

bool is_parity(CheckContext& context, const BadBlock& block)
{
    const BlockCensus::Group* group = context.census.find(block.address);
    return group != nullptr && block.address - group->address() >= group->array_group->record.data_bytes();
}

const char* fault_text(BadBlock::Kind kind)
{
    switch (kind) {
    case BadBlock::Kind::kData:
    case BadBlock::Kind::kParity:
        return "wrong content";
    case BadBlock::Kind::kReadError:
        return "cannot be read";
    case BadBlock::Kind::kMissing:
        return "missing";
    case BadBlock::Kind::kStale:
        return "old content";
    case BadBlock::Kind::kParityMismatch:
        return "as recorded, but not the parity of its data";
    }
    return "?";
}

void report_run(CheckContext& context, const char* data_kind, const char* content, const BadRun& run)
{
    const BadBlock& block = run.first.block;
    const bool parity = is_parity(context, block);
    std::string text = check_text("%s: %llu %s block%s", fault_text(block.kind), as_ull(run.block_count),
                                  parity ? "parity" : content, run.block_count == 1 ? "" : "s");
    context.findings.add({.kind = parity ? "parity" : data_kind,
                          .text = std::move(text),
                          .address = block.address.value,
                          .member = block.member.value,
                          .block_count = run.block_count,
                          .repairable = run.first.repairable});
}

}  // namespace

void report_bad_blocks(CheckContext& context, const char* data_kind, const char* content,
                       std::vector<ExaminedBlock> blocks)
{
    std::erase_if(blocks, [](const ExaminedBlock& examined) {
        return examined.block.kind == BadBlock::Kind::kMissing;
    });
    context.report().stale_blocks += std::erase_if(blocks, [](const ExaminedBlock& examined) {
        return examined.block.kind == BadBlock::Kind::kStale && examined.repairable;
    });
    const auto order = [](const ExaminedBlock& examined) {
        return std::make_tuple(examined.block.member, examined.block.kind, examined.repairable,
                               examined.block.address);
    };
    std::sort(blocks.begin(), blocks.end(),
              [&](const ExaminedBlock& a, const ExaminedBlock& b) { return order(a) < order(b); });
    std::vector<BadRun> runs;
    for (const ExaminedBlock& examined : blocks) {
        if (!runs.empty()) {
            BadRun& last = runs.back();
            const BadBlock& block = last.first.block;
            if (block.member == examined.block.member && block.kind == examined.block.kind &&
                last.first.repairable == examined.repairable &&
                examined.block.address - block.address == last.block_count * kBlockBytes) {
                ++last.block_count;
                continue;
            }
        }
        runs.push_back({examined, 1});
    }
    std::sort(runs.begin(), runs.end(),
              [](const BadRun& a, const BadRun& b) { return a.first.block.address < b.first.block.address; });
    for (const BadRun& run : runs)
        report_run(context, data_kind, content, run);
}

}  // namespace cowraid
