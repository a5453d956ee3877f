// SPDX-License-Identifier: MIT
// One changed integer, and everything that is tried with the volume afterwards.
#pragma once

#include <string>

#include "tests/fuzz/fuzz_volume.h"
#include "tests/fuzz/walk.h"

namespace cowraid::test {

// A volume before any change, and what is right about it.
struct FuzzSubject {
    const FuzzShape* shape = nullptr;
    Members members;
    std::unique_ptr<DiskEditor> editor;
    WalkResult right;
    SessionResult session;
};

// Aborts when the unchanged volume is not clean.
std::unique_ptr<FuzzSubject> make_subject(const FuzzShape& shape);

// The same volume again, on members of its own.
std::unique_ptr<FuzzSubject> copy_subject(const FuzzSubject& subject);

struct FuzzCase {
    Target target;
    Leaf leaf;
    uint64_t value = 0;
    DiskEditor::How how;
    SessionOptions session;
    // Not: a bitmap of free space with as many bits in each row as before, which only a full check can tell
    // from the right one. What others write may land in used blocks then.
    [[nodiscard]] bool keeps_used_blocks() const
    {
        return leaf.structure != "DiskSpaceWindow" || leaf.name != "tail";
    }
};

struct Verdict {
    enum class Step : uint8_t { kNotRun, kRefused, kErrors, kGood };
    Step check = Step::kNotRun;  // kErrors: there were findings
    Step read_only = Step::kNotRun;  // kErrors: some call failed, or a user sees something else
    Step writable = Step::kNotRun;
    // Of the check, the read-only mount with a look at everything, and the writable mount until it is there:
    // processor time, and the most memory that the process had beyond what it began with.
    double seconds = 0;
    uint64_t memory_bytes = 0;
    uint64_t use_memory_bytes = 0;  // the same until the volume has been used and left
    char problem[500] = "";  // empty: as it should be
};

// What a change may do without anybody noticing.
struct Freedom {
    bool free = false, visible = false, may_overwrite = false;
    bool lax = false;  // users may see anything that is no damage by itself
    bool log = false;  // a log says it, which the check does not replay
    bool content_kept = false;  // none of it says what files hold: their bytes are right, or an error
    bool short_run = false;  // without the removal of everything at the end
};
// Tries everything with members that were changed.
Verdict run_changed(FuzzSubject& subject, const SessionOptions& session, const Freedom& freedom);
// Changes the subject's members: they are a copy, or the process is.
Verdict run_case(FuzzSubject& subject, const FuzzCase& fuzz);

// Fields of a log: a wrong one makes entries dead, or says something else that is legal.
bool is_log_field(const Leaf& leaf);
// Fields that may have any (legal) value without a finding: nothing else of the volume depends on them.
bool is_free_field(const Leaf& leaf);
// Of those, fields that are content by themselves: a user sees another value of one inode.
bool is_visible_field(const Leaf& leaf);

}  // namespace cowraid::test
