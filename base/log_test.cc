// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/log_count.h"
#include "tests/support/capture.h"

using namespace cowraid;

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

TEST_CASE("lines carry the name of the volume")
{
    Captured captured;
    log_set_name("tank");
    CW_LOG_ERROR("member %u is gone", 3u);
    log_set_name("");
    CW_LOG_ERROR("member %u is gone", 4u);
    CHECK(captured.text() == "cowraid: tank: member 3 is gone\ncowraid: member 4 is gone\n");
}

TEST_CASE("a logged line is one line")
{
    Captured captured;
    CW_LOG_ERROR("%s", "x\ncowraid: forged");
    CHECK(captured.text() == "cowraid: x\\x0acowraid: forged\n");
}

// These are the last: the bucket is empty afterwards.
TEST_CASE("messages without end are suppressed, and their number is said")
{
    Captured captured;
    for (int message = 0; message < 20'000; ++message)
        CW_LOG_ERROR("again");
    log_counts(LogCounts::kDue);
    const std::string text = captured.text();
    const auto lines = static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
    CHECK(lines > kLogMessagesAtOnce / 2);
    CHECK(lines < 2 * kLogMessagesAtOnce);
    const size_t last = text.rfind("cowraid: ", text.size() - 2);
    const std::string expected = " messages suppressed\n";
    CHECK(text.ends_with(expected));
    CHECK(std::stoull(text.substr(last + 9)) > 15'000);
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
    CHECK(captured.text().find("messages suppressed") != std::string::npos);
}
