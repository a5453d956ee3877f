// SPDX-License-Identifier: MIT
#include "tests/fuzz/multi_run.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>

#include "base/log.h"
#include "tests/fuzz/case_process.h"
#include "tests/fuzz/multi_field.h"

namespace cowraid::test {

namespace {

// Sanitizers make everything several times as slow and as large.
constexpr double kMaxSeconds = kSanitized ? 120 : 20;
constexpr uint64_t kMaxMemoryBytes = (kSanitized ? 8 : 1) * 512 * kMiB;
constexpr uint64_t kMaxUseMemoryBytes = 4 * kMaxMemoryBytes;

struct MultiCase {
    size_t shape = 0;
    const Recipe* recipe = nullptr;
    uint64_t seed = 0;
};

struct Count {
    uint64_t cases = 0, refused = 0, reported = 0, accepted = 0, problems = 0;
    double longest_seconds = 0;
    uint64_t largest_bytes = 0, largest_use_bytes = 0;

    void add(const Verdict& verdict, bool problem);
    void print(const char* name) const;
};

std::vector<const Recipe*> all_recipes()
{
    std::vector<const Recipe*> all;
    for (const std::span<const Recipe> some : {size_recipes(), tree_recipes(), log_recipes()})
        for (const Recipe& recipe : some)
            all.push_back(&recipe);
    return all;
}

std::string name_of_case(const MultiCase& multi)
{
    return "multi:" + std::to_string(multi.shape) + ":" + multi.recipe->name + ":" +
           std::to_string(multi.seed);
}

void Count::add(const Verdict& verdict, bool problem)
{
    ++cases;
    problems += problem ? 1 : 0;
    if (verdict.check == Verdict::Step::kRefused || verdict.read_only == Verdict::Step::kRefused)
        ++refused;
    else
        ++(verdict.check == Verdict::Step::kGood ? accepted : reported);
    longest_seconds = std::max(longest_seconds, verdict.seconds);
    largest_bytes = std::max(largest_bytes, verdict.memory_bytes);
    largest_use_bytes = std::max(largest_use_bytes, verdict.use_memory_bytes);
}

void Count::print(const char* name) const
{
    printf("%s: cases=%llu refused=%llu reported=%llu accepted=%llu problems=%llu longest=%.2f s "
           "largest=%llu MiB, in use %llu MiB\n",
           name, static_cast<unsigned long long>(cases), static_cast<unsigned long long>(refused),
           static_cast<unsigned long long>(reported), static_cast<unsigned long long>(accepted),
           static_cast<unsigned long long>(problems), longest_seconds,
           static_cast<unsigned long long>(largest_bytes / kMiB),
           static_cast<unsigned long long>(largest_use_bytes / kMiB));
}

Verdict run_here(const Subjects& subjects, const MultiCase& multi)
{
    FuzzSubject& subject = *subjects[multi.shape];
    MultiEdit edit(*subject.editor, multi.seed);
    multi.recipe->apply(edit);
    subject.editor->seal();
    Verdict verdict = run_changed(subject, {},
                                  {.free = true,
                                   .visible = true,
                                   .may_overwrite = multi.recipe->may_overwrite,
                                   .lax = true,
                                   .log = multi.recipe->log || subject.shape->live_logs,
                                   .content_kept = multi.recipe->content_kept && !subject.shape->live_logs,
                                   .short_run = true});
    if (verdict.problem[0] == 0 && verdict.seconds > kMaxSeconds)
        snprintf(verdict.problem, sizeof verdict.problem, "check and mount take %.1f s", verdict.seconds);
    if (verdict.problem[0] == 0 && verdict.use_memory_bytes > kMaxUseMemoryBytes)
        snprintf(verdict.problem, sizeof verdict.problem, "using it takes %llu MiB",
                 static_cast<unsigned long long>(verdict.use_memory_bytes / kMiB));
    if (verdict.problem[0] == 0 && verdict.memory_bytes > kMaxMemoryBytes)
        snprintf(verdict.problem, sizeof verdict.problem, "check and mount take %llu MiB",
                 static_cast<unsigned long long>(verdict.memory_bytes / kMiB));
    return verdict;
}

class MultiWork final : public CaseWork {
public:
    MultiWork(const Subjects& subjects, const MultiCase& multi) : subjects_(subjects), multi_(multi) { }
    Verdict run(size_t) override { return run_here(subjects_, multi_); }

private:
    const Subjects& subjects_;
    const MultiCase& multi_;
};

}  // namespace

int run_multi(const Subjects& subjects, uint64_t seed, uint64_t cases)
{
    const time_t started = time(nullptr);
    const std::vector<const Recipe*> recipes = all_recipes();
    Prng prng(seed);
    Count total;
    std::map<std::string, Count> by_recipe;
    for (uint64_t i = 0; i < cases; ++i) {
        const MultiCase multi{prng.below(subjects.size()), recipes[i % recipes.size()], prng.next()};
        // Alone: what memory it takes shows where nothing was freed before.
        MultiWork work(subjects, multi);
        const auto [verdict, problem] = run_apart(work, 1).front();
        total.add(verdict, !problem.empty());
        by_recipe[multi.recipe->name].add(verdict, !problem.empty());
        if (!problem.empty())
            printf("PROBLEM --case=%s: %s\n", name_of_case(multi).c_str(), problem.c_str());
        fflush(stdout);
    }
    for (const auto& [name, count] : by_recipe)
        count.print(("  " + name).c_str());
    total.print(("field_fuzz --multi, seed " + std::to_string(seed)).c_str());
    printf("in %lld s\n", static_cast<long long>(time(nullptr) - started));
    return total.problems == 0 ? 0 : 1;
}

int repeat_multi(const Subjects& subjects, const std::string& id)
{
    MultiCase multi;
    char name[64];
    unsigned long long seed = 0;
    if (sscanf(id.c_str(), "multi:%zu:%63[^:]:%llu", &multi.shape, name, &seed) != 3 ||
        multi.shape >= subjects.size())
        return 2;
    multi.seed = seed;
    for (const Recipe* recipe : all_recipes())
        if (recipe->name == std::string(name))
            multi.recipe = recipe;
    if (multi.recipe == nullptr)
        return 2;
    log_set_level(LogLevel::kInfo);
    const Verdict verdict = run_here(subjects, multi);
    printf("check %d read-only %d writable %d, %.2f s, %llu MiB: %s\n", static_cast<int>(verdict.check),
           static_cast<int>(verdict.read_only), static_cast<int>(verdict.writable), verdict.seconds,
           static_cast<unsigned long long>(verdict.memory_bytes / kMiB), verdict.problem);
    return verdict.problem[0] == 0 ? 0 : 1;
}

}  // namespace cowraid::test
