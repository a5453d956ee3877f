// SPDX-License-Identifier: MIT
#include "tests/fuzz/fuzz_case.h"

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <ctime>

#include "base/assert.h"
#include "base/log.h"
#include "device/assembly.h"
#include "format/items.h"
#include "format/name_codec.h"
#include "format/node.h"

namespace cowraid::test {

namespace {

using Step = Verdict::Step;

// Names that one inode of the volumes has at most.
constexpr size_t kNamesMax = 3;
// Free space of larger block groups takes more memory than a case may have. A daemon has a limit of its own.
constexpr uint64_t kUsableBlocksMax = uint64_t{1} << 35;

struct Usage {
    double seconds = 0;
    uint64_t resident_bytes = 0, peak_bytes = 0;
};

// Pages that a fork shares with its parent count as resident, so that copies of them are no growth.
Usage usage_now()
{
    Usage usage;
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    usage.seconds = static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
    FILE* file = fopen("/proc/self/status", "r");
    CW_ASSERT(file != nullptr);
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, file) != nullptr) {
        if (sscanf(line, "VmHWM: %llu", &kib) == 1)
            usage.peak_bytes = kib * kKiB;
        if (sscanf(line, "VmRSS: %llu", &kib) == 1)
            usage.resident_bytes = kib * kKiB;
    }
    fclose(file);
    return usage;
}

class CaseRun {
public:
    CaseRun(FuzzSubject& subject, const SessionOptions& session, const Freedom& freedom)
        : subject_(subject), session_(session), freedom_(freedom), usage_(usage_now())
    {
    }

    // Stops at the first problem.
    Verdict run();
    SessionResult session_result;
    WalkResult seen;

private:
    struct Checked {
        Step step = Step::kNotRun;
        std::string text;  // the first finding, or why it was refused
    };
    [[gnu::format(printf, 2, 3)]] void problem(const char* format, ...);
    [[nodiscard]] bool failed() const { return verdict_.problem[0] != 0; }
    std::vector<std::unique_ptr<BlockDevice>> borrow();
    std::unique_ptr<Filesystem> mount(bool read_only, const char* when);
    Checked check(const char* when);
    void expect_reason(const std::string& why, const char* when);
    void expect_nothing_written();
    void look_at();
    void examine_reading(const Checked& checked);
    void examine_content();
    void note_usage();
    [[nodiscard]] uint64_t memory_used() const;
    void use();
    void examine_kept();
    void remove_all();

    FuzzSubject& subject_;
    const SessionOptions session_;
    const Freedom freedom_;
    const Usage usage_;  // at the start
    uint64_t media_bytes_ = 0;  // of the simulated members at the start
    Verdict verdict_;
};

void CaseRun::problem(const char* format, ...)
{
    if (failed())
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict_.problem, sizeof verdict_.problem, format, arguments);
    va_end(arguments);
}

std::vector<std::unique_ptr<BlockDevice>> CaseRun::borrow()
{
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (const std::unique_ptr<SimDevice>& member : subject_.members)
        devices.push_back(std::make_unique<BorrowedDevice>(*member));
    return devices;
}

void CaseRun::expect_reason(const std::string& why, const char* when)
{
    if (why.empty() || why.find('\n') != std::string::npos)
        problem("%s: refused without one line that says why: '%s'", when, why.c_str());
}

std::unique_ptr<Filesystem> CaseRun::mount(bool read_only, const char* when)
{
    std::string why;
    Result<Assembly> assembly = assemble(borrow(), why);
    if (!assembly.ok()) {
        expect_reason(why, when);
        return nullptr;
    }
    MountOptions options = manual_options();
    options.read_only = read_only;
    Result<std::unique_ptr<Filesystem>> fs = Filesystem::open(assembly.take(), options, why);
    if (fs.ok())
        return fs.take();
    CW_LOG_INFO("%s: %s", when, why.c_str());
    expect_reason(why, when);
    return nullptr;
}

CaseRun::Checked CaseRun::check(const char* when)
{
    std::string why;
    CheckReport report;
    // As the command does it: a member that was replaced is blank.
    Result<Assembly> assembly = assemble(borrow(), why, {.strangers = Strangers::kSkip, .named = {}});
    const Status status = assembly.ok() ? check_volume(assembly.take(), {}, report, why) : assembly.status();
    if (!status.ok()) {
        expect_reason(why, when);
        return {Step::kRefused, why};
    }
    if (report.clean())
        return {Step::kGood, ""};
    for (const CheckFinding& finding : report.findings)
        CW_LOG_INFO("%s: %s: %s", when, finding.kind.c_str(), finding.text.c_str());
    return {Step::kErrors, report.findings.front().kind + ": " + report.findings.front().text};
}

void CaseRun::expect_nothing_written()
{
    for (const std::unique_ptr<SimDevice>& member : subject_.members)
        if (member->unflushed_writes() != 0)
            problem("reading wrote to %s", member->name());
}

void CaseRun::look_at()
{
    const std::unique_ptr<Filesystem> fs = mount(true, "read-only mount");
    verdict_.read_only = Step::kRefused;
    if (!fs)
        return;
    seen = walk(*fs);
    if (seen.endless)
        problem("a walk over the volume does not end, or statfs contradicts itself");
    verdict_.read_only = seen.errors != 0 || seen.seen != subject_.right.seen ? Step::kErrors : Step::kGood;
}

void CaseRun::examine_reading(const Checked& checked)
{
    if (checked.step != Step::kGood)
        return;
    if (verdict_.read_only == Step::kRefused && !freedom_.log)
        return problem("the check is clean, but mounting is refused");
    if (freedom_.lax)
        return;
    size_t others = freedom_.visible ? kNamesMax : 0;
    for (const auto& [path, right] : subject_.right.seen) {
        const auto at = seen.seen.find(path);
        const bool same =
            at != seen.seen.end() && at->second.err == right.err && at->second.content == right.content;
        if (!same && others-- == 0)
            return problem("the check is clean, but %s differs", path.c_str());
        if (!freedom_.free && at->second.attributes != right.attributes)
            return problem("the check is clean, but attributes of %s differ", path.c_str());
    }
    if (seen.seen.size() != subject_.right.seen.size())
        return problem("the check is clean, but there are other names");
    if (!freedom_.free)
        problem("nobody notices");
}

// Wrong bytes are worse than none, whatever the check says.
void CaseRun::examine_content()
{
    for (const auto& [path, right] : subject_.right.seen) {
        const auto at = seen.seen.find(path);
        if (right.regular && at != seen.seen.end() && at->second.err == Err::kOk &&
            at->second.content != right.content)
            return problem("%s has other bytes, and no error", path.c_str());
    }
}

void CaseRun::note_usage()
{
    verdict_.seconds = usage_now().seconds - usage_.seconds;
    verdict_.memory_bytes = std::max(verdict_.memory_bytes, memory_used());
}

uint64_t CaseRun::memory_used() const
{
    uint64_t media = 0;
    for (const std::unique_ptr<SimDevice>& member : subject_.members)
        media += member->resident_bytes();
    // What the mount wrote is in memory as a page, as the page before it and as a write in the cache.
    const uint64_t written = 3 * (media - media_bytes_);
    const uint64_t more = usage_now().peak_bytes - usage_.resident_bytes;
    return more - std::min(more, written);
}

void CaseRun::use()
{
    const std::unique_ptr<Filesystem> fs = mount(false, "writable mount");
    note_usage();
    verdict_.writable = Step::kRefused;
    if (!fs)
        return;
    if (fs->statistics().total_blocks > kUsableBlocksMax)
        return;
    session_result = use_volume(*fs, session_);
    const bool read_only = fs->info().read_only;
    const Status closed = fs->close();
    verdict_.use_memory_bytes = memory_used();
    if (read_only)
        return;  // unknown features, for example
    const bool worse = session_result.errors != subject_.session.errors || !closed.ok();
    verdict_.writable = worse ? Step::kErrors : Step::kGood;
}

// What nobody touched and was right before is right after: no block in use was given to anybody else.
void CaseRun::examine_kept()
{
    const std::unique_ptr<Filesystem> fs = mount(true, "mount after writing");
    if (!fs) {
        if (verdict_.read_only != Step::kRefused)
            problem("after writing, mounting is refused");
        return;
    }
    const WalkResult after = walk(*fs);
    for (const auto& [path, right] : subject_.right.seen) {
        const auto before = seen.seen.find(path);
        if (!path.starts_with("/kept/") || before == seen.seen.end() ||
            before->second.content != right.content || before->second.err != right.err)
            continue;
        const auto at = after.seen.find(path);
        if (at == after.seen.end() || at->second.err != right.err || at->second.content != right.content)
            return problem("%s was right before others wrote, and is not after: %s", path.c_str(),
                           at == after.seen.end() ? "gone" : err_text(at->second.err));
    }
}

void CaseRun::remove_all()
{
    const std::unique_ptr<Filesystem> fs = mount(false, "mount for removal");
    if (!fs)
        return;
    remove_everything(*fs);
    fs->close().ignore();  // may be stopped
}

Verdict CaseRun::run()
{
    for (const std::unique_ptr<SimDevice>& member : subject_.members)
        media_bytes_ += member->resident_bytes();
    const Checked before = check("check");
    verdict_.check = before.step;
    look_at();
    note_usage();
    expect_nothing_written();
    examine_reading(before);
    if (freedom_.content_kept)
        examine_content();
    use();
    const bool good = before.step == Step::kGood && !failed() && !freedom_.log;
    if (good && !freedom_.lax && verdict_.read_only == Step::kGood && verdict_.writable == Step::kErrors)
        problem("the check is clean, but using the volume fails: %s", session_result.first_error.c_str());
    if (verdict_.writable != Step::kRefused && !freedom_.may_overwrite)
        examine_kept();
    const Checked after = check("check after writing");
    if (good && verdict_.writable != Step::kRefused && after.step != Step::kGood)
        problem("the check was clean before writing, and is not after: %s", after.text.c_str());
    if (freedom_.short_run)
        return verdict_;
    remove_all();
    const Checked last = check("check after removal");
    if (good && verdict_.writable != Step::kRefused && last.step != Step::kGood)
        problem("the check was clean before removal, and is not after: %s", last.text.c_str());
    return verdict_;
}

// Attributes come and go, so that any of the numbers of a bucket may be without one.
bool renumbers_attribute(const DiskEditor& editor, const FuzzCase& fuzz)
{
    if (fuzz.leaf.structure != "DiskLeafItem" || fuzz.leaf.field != "offset")
        return false;
    const std::byte type = editor.node(fuzz.target.node)[fuzz.target.offset + offsetof(DiskLeafItem, type)];
    return type == static_cast<std::byte>(ItemType::kXattr) &&
           fuzz.value / kBucketSlots == editor.value(fuzz.target, fuzz.leaf) / kBucketSlots;
}

}  // namespace

std::unique_ptr<FuzzSubject> copy_subject(const FuzzSubject& subject)
{
    auto copy = std::make_unique<FuzzSubject>();
    copy->shape = subject.shape;
    for (const std::unique_ptr<SimDevice>& member : subject.members)
        copy->members.push_back(member->clone(member->name()));
    copy->editor = std::make_unique<DiskEditor>(*subject.editor, copy->members);
    copy->right = subject.right;
    copy->session = subject.session;
    return copy;
}

std::unique_ptr<FuzzSubject> make_subject(const FuzzShape& shape)
{
    auto subject = std::make_unique<FuzzSubject>();
    subject->shape = &shape;
    subject->members = make_fuzz_members(shape);
    subject->editor = std::make_unique<DiskEditor>(subject->members);
    subject->editor->forget_history();
    // A trial on copies, to learn what is right and that all of it is clean.
    const std::unique_ptr<FuzzSubject> copy = copy_subject(*subject);
    CaseRun trial(*copy, {}, {.free = true, .visible = true, .lax = shape.live_logs});
    Verdict verdict = trial.run();
    subject->right = trial.seen;
    subject->session = trial.session_result;
    // Where writes were cut off, unused blocks of rows may hold what was being written.
    const Step worst = shape.live_logs ? Step::kErrors : Step::kGood;
    if (verdict.check == Step::kRefused || verdict.check < worst || trial.seen.errors != 0 ||
        trial.session_result.errors != 0) {
        fprintf(stderr, "%s: check %d, %llu errors, session: %s; %s\n", shape.name,
                static_cast<int>(verdict.check), static_cast<unsigned long long>(trial.seen.errors),
                trial.session_result.first_error.c_str(), verdict.problem);
        CW_ASSERT(false);
    }
    return subject;
}

Verdict run_changed(FuzzSubject& subject, const SessionOptions& session, const Freedom& freedom)
{
    return CaseRun(subject, session, freedom).run();
}

Verdict run_case(FuzzSubject& subject, const FuzzCase& fuzz)
{
    const bool renumbers = renumbers_attribute(*subject.editor, fuzz);
    subject.editor->overwrite(fuzz.target, fuzz.leaf, fuzz.value, fuzz.how);
    const bool log = is_log_field(fuzz.leaf);
    return run_changed(subject, fuzz.session,
                       {.free = is_free_field(fuzz.leaf) || renumbers,
                        .visible = is_visible_field(fuzz.leaf),
                        .may_overwrite = !fuzz.keeps_used_blocks(),
                        // Other trees than those that the records were made for.
                        .lax = log || subject.shape->live_logs,
                        .log = log || subject.shape->live_logs});
}

}  // namespace cowraid::test
