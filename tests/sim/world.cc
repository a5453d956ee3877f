// SPDX-License-Identifier: MIT
#include "tests/sim/world.h"

#include <cstdarg>
#include <cstdio>

#include "tests/sim/repeatable.h"

namespace cowraid::test {

namespace {

constexpr size_t kStoryLines = 40;
// More than any operation takes.
constexpr uint64_t kOperationBlocksMax = 2 * kMiB / kBlockBytes;

[[gnu::format(printf, 1, 0)]] std::string text_of(const char* format, va_list arguments)
{
    char text[600];
    vsnprintf(text, sizeof text, format, arguments);
    return text;
}

}  // namespace

World::World(const MachineShape& shape, uint64_t seed, EventCounts& events_of_run)
    : prng(seed), compresses(seed % 3 == 0), machine(shape, seed * 1000), events(events_of_run)
{
}

void World::note(const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    std::string text = text_of(format, arguments);
    va_end(arguments);
    pass_time();
    if (verbose_)
        printf("%s\n", text.c_str());
    if (notes_.size() < kStoryLines) {
        notes_.push_back(std::move(text));
    } else {
        notes_[next_note_] = std::move(text);
        next_note_ = (next_note_ + 1) % kStoryLines;
    }
}

void World::violation(const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (violation_.empty())
        violation_ = text_of(format, arguments);
    va_end(arguments);
}

std::string World::story() const
{
    std::string story;
    for (size_t i = 0; i < notes_.size(); ++i)
        story += "    " + notes_[(next_note_ + i) % notes_.size()] + "\n";
    return story;
}

void World::mounted()
{
    commits_ = fs().info().commits;
    machine.acknowledged();
    references.clear();
}

bool World::returned(Event commit_kind)
{
    const uint64_t commits = fs().info().commits;
    if (commits != commits_) {
        commits_ = commits;
        committed();
        events.add(commit_kind);
    }
    return !power_lost() && !failed();
}

// Files hold some MiB; members that are not tight have hundreds, so that those that are left, or groups that
// go without the others, have room for all of it.
bool World::space_is_short()
{
    return machine.shape().tight && fs().statistics().available_blocks < kOperationBlocksMax;
}

bool World::stopped()
{
    const std::string reason = fs().info().read_only_reason;
    return reason.starts_with("more members failed") || reason.starts_with("too few members are left");
}

bool World::settle(const char* what, Err got, Err expected, Growth growth)
{
    if (!returned())
        return false;
    if (got == expected) {
        if (got != Err::kOk)
            events.add(Event::kRefused);
        return got == Err::kOk;
    }
    if (got != Err::kOk && overloaded && stopped())
        return false;
    if (got == Err::kNoSpace && growth == Growth::kSome && space_is_short()) {
        events.add(Event::kNoSpace);
        note("  no space");
        return false;
    }
    violation("%s: %s, expected %s", what, err_text(got), err_text(expected));
    return false;
}

void World::let_go(InodeNumber inode, uint64_t count)
{
    const auto at = references.find(inode.value);
    CW_ASSERT(at != references.end() && at->second >= count);
    fs().names.forget(inode, count);
    at->second -= count;
    if (at->second == 0)
        references.erase(at);
    drop_if_unused(inode);
}

void World::drop_if_unused(InodeNumber inode)
{
    if (now.at(inode).links == 0 && !references.contains(inode.value))
        now.drop(inode);
}

}  // namespace cowraid::test
