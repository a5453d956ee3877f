// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "base/log_count.h"

using namespace cowraid;

namespace {

// What is logged while it lives, from the file that stands in for standard error.
class Captured {
public:
    Captured() : file_(tmpfile()), before_(dup(STDERR_FILENO))
    {
        fflush(stderr);
        dup2(fileno(file_), STDERR_FILENO);
    }
    ~Captured()
    {
        fflush(stderr);
        dup2(before_, STDERR_FILENO);
        close(before_);
        fclose(file_);
    }
    std::string text()
    {
        fflush(stderr);
        std::string out(4096, '\0');
        out.resize(static_cast<size_t>(pread(fileno(file_), out.data(), out.size(), 0)));
        return out;
    }

private:
    FILE* file_;
    int before_;
};

}  // namespace

TEST_CASE("what comes by the thousand is one line at once and one for the rest")
{
    log_counts(LogCounts::kAll);
    Captured captured;
    for (uint64_t block = 0; block < 5416; ++block)
        log_count(LogLevel::kError, "/a/b", "blocks that cannot be read", 1,
                  {.first = block * 4096, .last = block * 4096 + 4095});
    log_count(LogLevel::kWarning, "member 3", "blocks repaired", 7);
    log_counts(LogCounts::kDue);
    CHECK(captured.text() == "cowraid: /a/b: blocks that cannot be read: 1, bytes 0 to 4095\n"
                             "cowraid: member 3: blocks repaired: 7\n");
    log_counts(LogCounts::kAll);
    log_counts(LogCounts::kAll);
    CHECK(captured.text() == "cowraid: /a/b: blocks that cannot be read: 1, bytes 0 to 4095\n"
                             "cowraid: member 3: blocks repaired: 7\n"
                             "cowraid: /a/b: blocks that cannot be read: 5415, bytes 4096 to 22183935\n");
}

TEST_CASE("thousands of subjects take no memory for ever")
{
    log_counts(LogCounts::kAll);
    Captured captured;
    for (int subject = 0; subject < 3000; ++subject) {
        log_count(LogLevel::kError, std::to_string(subject), "blocks", 1);
        log_count(LogLevel::kError, std::to_string(subject), "blocks", 1);
    }
    log_counts(LogCounts::kAll);
    CHECK(captured.text().size() == 4096);
}

TEST_CASE("lines carry the name of the volume")
{
    Captured captured;
    log_set_name("tank");
    CW_LOG_ERROR("member %u is gone", 3u);
    log_set_name("");
    CW_LOG_ERROR("member %u is gone", 4u);
    CHECK(captured.text() == "cowraid: tank: member 3 is gone\ncowraid: member 4 is gone\n");
}
