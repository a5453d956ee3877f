// SPDX-License-Identifier: MIT
// Random operations on the files of one folder, compared with their models.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "tests/fileops/content.h"
#include "tests/fileops/history.h"
#include "tests/fileops/open_file.h"

namespace cowraid::test {

struct FileOpsOptions {
    std::string folder;
    uint64_t seed = 1;
    uint64_t operation_count = 10'000;
    // Of a hole the filesystem must not say that it is data. Others may (preallocation, larger blocks).
    bool exact_holes = false;
    // drop_caches for the whole machine, too; for root only.
    bool drops_caches = false;
    // An operation that the models forget now and then: the run must find that. Empty: none.
    std::string_view forgotten;
};

class Runner {
public:
    Runner(const FileOpsOptions& options, History& history);

    // Ends the program when something is not as it must be.
    void run();
    // Times each operation was done, a line each.
    void print_counts() const;
    // Whether an operation has that name and can be forgotten.
    static bool can_be_forgotten(std::string_view operation);

private:
    static constexpr size_t kNameCount = 6;
    static constexpr size_t kFilesMax = 9;

    struct Operation {
        const char* name;
        uint64_t weight;  // of kOperations: how often
        void (Runner::*perform)();
        bool forgettable;
    };
    static const Operation kOperations[];

    struct Range {
        uint64_t offset, count;
    };

    // Writes.
    void write_buffered();
    void write_direct();
    void write_mapped();
    void write_vector();
    void append();
    void punch();
    void zero_range();
    void allocate();
    void truncate();
    void copy_range();
    // Reads and comparisons (checks.cc).
    void read_buffered();
    void read_direct();
    void read_mapped();
    void check_holes();
    void check_size();
    void compare_file();
    // Names and descriptors.
    void rename_over();
    void exchange();
    void unlink_open();
    void close_nameless();
    void reopen();
    void unmap();
    // What must change nothing.
    void set_compression();
    void sync_file();
    void drop_pages();
    void drop_caches();

    OpenFile& any_file();
    OpenFile* any_named();
    [[nodiscard]] std::string path_of(size_t index) const;
    void fill_names();
    // Not empty; ends at the limit at most.
    Range pick_range(const OpenFile& file, uint64_t count_max, uint64_t unit = 1);
    // Not behind the size; empty when the file is.
    Range pick_inside(const OpenFile& file, uint64_t count_max);
    std::span<const std::byte> pick_content(uint64_t bytes) { return content_.pick(random_, bytes); }
    // Of the operation under way: its model changes nothing.
    bool forgets();
    void note(const OpenFile& file, const char* how, uint64_t offset, uint64_t count);

    void compare(const OpenFile& file, const char* how, uint64_t offset, std::span<const std::byte> got);
    void compare_hole(const OpenFile& file, uint64_t begin, uint64_t end);
    void compare_data(const OpenFile& file, uint64_t begin, uint64_t end);
    static bool became_hole(const OpenFile& file, uint64_t offset);
    void compare_holes(OpenFile& file);
    void compare_through(OpenFile& file, Way way);
    void compare_mapped(OpenFile& file, uint64_t offset, uint64_t count);
    void compare_all();

    const FileOpsOptions options_;
    History& history_;
    Prng random_;
    Content content_;
    AlignedBuffer buffer_{kModelBytesMax + (64 << 10)};
    std::vector<std::unique_ptr<OpenFile>> files_;
    std::array<uint64_t, 32> counts_{};
    const Operation* current_ = nullptr;
    uint64_t forgettable_count_ = 0;
    uint64_t near_ = 0;  // offset in the file at which the operation before ended
    uint64_t file_count_ = 0;
};

}  // namespace cowraid::test
