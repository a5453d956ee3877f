// SPDX-License-Identifier: MIT
#include "tests/fileops/runner.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace cowraid::test {

namespace {

constexpr uint64_t kCompareAllEvery = 5000;
constexpr uint64_t kForgottenEvery = 8;
constexpr uint64_t kFarBase = 5ULL << 40;  // of every fourth file

}  // namespace

const Runner::Operation Runner::kOperations[]{
    {"write", 140, &Runner::write_buffered, true},
    {"direct write", 90, &Runner::write_direct, true},
    {"mapped write", 80, &Runner::write_mapped, true},
    {"vector write", 40, &Runner::write_vector, true},
    {"append", 40, &Runner::append, true},
    {"punch", 70, &Runner::punch, true},
    {"zero range", 50, &Runner::zero_range, true},
    {"fallocate", 40, &Runner::allocate, true},
    {"truncate", 50, &Runner::truncate, true},
    {"copy_file_range", 60, &Runner::copy_range, true},
    {"read", 110, &Runner::read_buffered, false},
    {"direct read", 80, &Runner::read_direct, false},
    {"mapped read", 80, &Runner::read_mapped, false},
    {"seek", 60, &Runner::check_holes, false},
    {"stat", 30, &Runner::check_size, false},
    {"compare", 8, &Runner::compare_file, false},
    {"rename over", 6, &Runner::rename_over, false},
    {"exchange", 6, &Runner::exchange, false},
    {"unlink", 4, &Runner::unlink_open, false},
    {"close nameless", 8, &Runner::close_nameless, false},
    {"reopen", 40, &Runner::reopen, false},
    {"unmap", 20, &Runner::unmap, false},
    {"set compression", 10, &Runner::set_compression, false},
    {"sync", 8, &Runner::sync_file, false},
    {"drop pages", 20, &Runner::drop_pages, false},
    {"drop caches", 1, &Runner::drop_caches, false},
};

Runner::Runner(const FileOpsOptions& options, History& history)
    : options_(options), history_(history), random_(options.seed), content_(options.seed)
{
    static_assert(std::size(kOperations) <= std::tuple_size_v<decltype(counts_)>);
}

bool Runner::can_be_forgotten(std::string_view operation)
{
    return std::any_of(std::begin(kOperations), std::end(kOperations),
                       [&](const Operation& known) { return known.forgettable && operation == known.name; });
}

std::string Runner::path_of(size_t index) const
{
    return options_.folder + "/file" + std::to_string(index);
}

void Runner::fill_names()
{
    for (size_t index = 0; index < kNameCount && files_.size() < kFilesMax; ++index) {
        const std::string path = path_of(index);
        if (std::none_of(files_.begin(), files_.end(), [&](const auto& file) { return file->path == path; }))
            files_.push_back(
                std::make_unique<OpenFile>(path, ++file_count_ % 4 == 0 ? kFarBase : 0, history_));
    }
}

void Runner::run()
{
    history_.begin(0, "create");
    fill_names();
    uint64_t weights = 0;
    for (const Operation& operation : kOperations)
        weights += operation.weight;
    for (uint64_t number = 1; number <= options_.operation_count; ++number) {
        uint64_t chosen = random_.below(weights);
        current_ = kOperations;
        while (chosen >= current_->weight)
            chosen -= current_++->weight;
        history_.begin(number, current_->name);
        ++counts_[static_cast<size_t>(current_ - kOperations)];
        (this->*current_->perform)();
        fill_names();
        if (number % kCompareAllEvery == 0)
            compare_all();
    }
    compare_all();
}

void Runner::print_counts() const
{
    for (size_t i = 0; i < std::size(kOperations); ++i)
        printf("%8lu %s\n", counts_[i], kOperations[i].name);
}

OpenFile& Runner::any_file()
{
    return *files_[random_.below(files_.size())];
}

OpenFile* Runner::any_named()
{
    OpenFile& file = any_file();
    return file.path.empty() ? nullptr : &file;
}

Runner::Range Runner::pick_range(const OpenFile& file, uint64_t count_max, uint64_t unit)
{
    const uint64_t base = file.model.base();
    const uint64_t size = file.model.bytes().size();
    const uint64_t reach = std::min<uint64_t>(kModelBytesMax, size + (64 << 10));
    uint64_t offset = random_.below(reach);
    switch (random_.below(8)) {
    case 0:
        offset = std::min(near_, reach - 1);
        break;
    case 1:
        offset = size < kModelBytesMax ? size : 0;
        break;
    case 2:
    case 3:
        offset = offset / kModelBlockBytes * kModelBlockBytes;
        break;
    }
    uint64_t count = 1 + random_.below(random_.chance(1, 40)  ? count_max
                                       : random_.chance(1, 3) ? 32 << 10
                                                              : 6000);
    if (random_.chance(1, 4))
        count = (count / kModelBlockBytes + 1) * kModelBlockBytes;
    offset = offset / unit * unit;
    count = (std::min(count, count_max) + unit - 1) / unit * unit;
    count = std::min(count, kModelBytesMax - offset);
    near_ = offset + count;
    return {base + offset, count};
}

Runner::Range Runner::pick_inside(const OpenFile& file, uint64_t count_max)
{
    const uint64_t size = file.model.size();
    if (file.model.bytes().empty())
        return {size, 0};
    Range range = pick_range(file, count_max);
    if (range.offset >= size)
        range.offset = size - 1 - random_.below(std::min<uint64_t>(file.model.bytes().size(), 5000));
    range.count = std::min(range.count, size - range.offset);
    return range;
}

bool Runner::forgets()
{
    if (options_.forgotten != current_->name || ++forgettable_count_ % kForgottenEvery != 0)
        return false;
    history_.note(" (forgotten)");
    return true;
}

void Runner::note(const OpenFile& file, const char* how, uint64_t offset, uint64_t count)
{
    const std::string& path = file.path;
    history_.note(" %s %s 0x%lx+0x%lx (size 0x%lx)",
                  path.empty() ? "nameless" : path.c_str() + path.rfind('/') + 1, how, offset, count,
                  file.model.size());
}

}  // namespace cowraid::test
