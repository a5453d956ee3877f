// SPDX-License-Identifier: MIT
// field_fuzz: every on-disk field times {0, 1, max, max - 1, random, neighbours}, checksums made to fit. Some
// cases at a time run in a process of their own, with a limit on time and memory. Exit 1 on any problem.
#include <argp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <set>

#include "base/log.h"
#include "tests/fuzz/case_process.h"
#include "tests/fuzz/fuzz_case.h"
#include "tests/fuzz/multi_run.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

struct Arguments {
    uint64_t seed = 1;
    uint64_t budget_seconds = 20;
    uint64_t instances = 1;  // of each structure, for --all
    bool all = false;
    bool list = false;
    std::vector<std::string> only;  // STRUCTURE or STRUCTURE.FIELD; none: all
    std::string repeat;
    uint64_t multi = 0;  // cases of several fields
};

// What identifies a case, as printed and as read back by --case.
struct CaseId {
    size_t shape = 0;
    std::string structure, leaf;
    size_t target = 0;
    uint64_t value = 0;
    bool agree = false;
};

std::string text_of(const CaseId& id)
{
    char text[256];
    snprintf(text, sizeof text, "%zu:%s:%s:%zu:%#llx:%d", id.shape, id.structure.c_str(), id.leaf.c_str(),
             id.target, static_cast<unsigned long long>(id.value), id.agree ? 1 : 0);
    return text;
}

bool parse_case(const std::string& text, CaseId& id)
{
    char structure[64];
    char leaf[64];
    unsigned long long value;
    int agree;
    if (sscanf(text.c_str(), "%zu:%63[^:]:%63[^:]:%zu:%lli:%d", &id.shape, structure, leaf, &id.target,
               reinterpret_cast<long long*>(&value), &agree) != 6)
        return false;
    id.structure = structure;
    id.leaf = leaf;
    id.value = value;
    id.agree = agree != 0;
    return true;
}

struct PendingCase {
    CaseId id;
    FuzzCase fuzz;
};

// A process begins with copies of all memory that it writes to: cases share it.
constexpr size_t kCasesOfProcess = 16;

class FieldWork final : public CaseWork {
public:
    FieldWork(const FuzzSubject& subject, const std::vector<PendingCase>& cases)
        : subject_(subject), cases_(cases)
    {
    }
    Verdict run(size_t index) override { return run_case(*copy_subject(subject_), cases_[index].fuzz); }

private:
    const FuzzSubject& subject_;
    const std::vector<PendingCase>& cases_;
};

struct Totals {
    uint64_t cases = 0, problems = 0;
    uint64_t refused = 0, reported = 0, accepted = 0;
    std::set<std::string> fields;
    std::map<std::string, uint64_t> by_structure;
};

class Fuzzer {
public:
    explicit Fuzzer(const Arguments& arguments) : arguments_(arguments), prng_(arguments.seed) { }

    int run();

private:
    const std::vector<Target>& targets(size_t shape, const std::string& structure);
    std::vector<Leaf> leaves(const std::string& structure, const Target& target);
    std::vector<uint64_t> values(size_t shape, const Leaf& leaf, size_t target);
    void add_addresses(size_t shape, size_t target, const Leaf& wanted_leaf, std::vector<uint64_t>& values);
    void add(const CaseId& id, const Leaf& leaf);
    void run_pending(size_t shape);
    void note(const PendingCase& one, const CaseOutcome& outcome);
    void run_leaf(size_t shape, const Leaf& leaf, size_t target);
    void run_rounds();
    void run_all();
    int run_repeat();
    [[nodiscard]] bool wanted(const Leaf& leaf) const;
    [[nodiscard]] bool out_of_time() const
    {
        return time(nullptr) >= started_ + static_cast<time_t>(arguments_.budget_seconds);
    }
    int report();

    const Arguments& arguments_;
    Prng prng_;
    time_t started_ = time(nullptr);
    std::vector<std::unique_ptr<FuzzSubject>> subjects_;
    std::map<std::pair<size_t, std::string>, std::vector<Target>> targets_;
    std::map<size_t, std::vector<PendingCase>> pending_;  // by shape
    Totals totals_;
};

uint64_t limit_of(const Leaf& leaf)
{
    return leaf.bytes == 8 ? UINT64_MAX : (uint64_t{1} << leaf.bytes * 8) - 1;
}

const std::vector<Target>& Fuzzer::targets(size_t shape, const std::string& structure)
{
    const auto [at, fresh] = targets_.try_emplace({shape, structure});
    if (fresh)
        at->second = subjects_[shape]->editor->targets(structure);
    return at->second;
}

// With what stands behind the structure, if anything does.
std::vector<Leaf> Fuzzer::leaves(const std::string& structure, const Target& target)
{
    std::vector<Leaf> leaves = leaves_of(structure);
    if (target.tail_bytes > 0)
        leaves.push_back({structure, "tail", "tail", bytes_of_structure(structure),
                          std::min<size_t>(8, target.tail_bytes)});
    return leaves;
}

bool Fuzzer::wanted(const Leaf& leaf) const
{
    const std::vector<std::string>& only = arguments_.only;
    return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& name) {
               return name == leaf.structure || name == leaf.structure + "." + leaf.field;
           });
}

// Where other things are: data, nodes, groups under parity.
void Fuzzer::add_addresses(size_t shape, size_t target, const Leaf& wanted_leaf,
                           std::vector<uint64_t>& values)
{
    // In the checksum tree keys are addresses: of blocks whose checksums stand below the item itself.
    if (wanted_leaf.structure == "DiskChildItem")
        for (const Leaf& leaf : leaves_of("DiskChildItem"))
            if (leaf.name == "object")
                values.push_back(
                    subjects_[shape]->editor->value(targets(shape, "DiskChildItem")[target], leaf));
    for (const char* structure : {"DiskExtent", "DiskNodeHeader", "DiskGroup"})
        for (const Leaf& leaf : leaves_of(structure)) {
            const std::vector<Target>& all = targets(shape, structure);
            if (leaf.name == "address")
                for (int i = 0; i < 2; ++i)
                    values.push_back(subjects_[shape]->editor->value(all[prng_.below(all.size())], leaf));
        }
}

// Values other than the one that is there.
std::vector<uint64_t> Fuzzer::values(size_t shape, const Leaf& leaf, size_t target)
{
    const std::vector<Target>& all = targets(shape, leaf.structure);
    const DiskEditor& editor = *subjects_[shape]->editor;
    const uint64_t max = limit_of(leaf);
    const uint64_t now = editor.value(all[target], leaf);
    std::vector<uint64_t> values = {0,
                                    1,
                                    max,
                                    max - 1,
                                    prng_.next(),
                                    prng_.below(70000),
                                    now + 1,
                                    now - 1,
                                    now * 2,
                                    now ^ (uint64_t{1} << prng_.below(64))};
    // The same field of others: of the next instance, and of any.
    for (const size_t other : {(target + 1) % all.size(), static_cast<size_t>(prng_.below(all.size()))})
        if (leaf.name != "tail" || all[other].tail_bytes >= leaf.bytes)
            values.push_back(editor.value(all[other], leaf));
    if (leaf.name.ends_with("address"))
        add_addresses(shape, target, leaf, values);
    for (uint64_t& value : values)
        value &= max;
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    values.erase(std::remove(values.begin(), values.end(), now), values.end());
    return values;
}

void Fuzzer::add(const CaseId& id, const Leaf& leaf)
{
    const FuzzSubject& subject = *subjects_[id.shape];
    const Target& target = targets(id.shape, id.structure)[id.target];
    FuzzCase fuzz{target, leaf, id.value, {id.agree}, {}};
    fuzz.session.fill = subject.shape->fills && subject.editor->describes_space(target);
    pending_[id.shape].push_back({id, fuzz});
    if (pending_[id.shape].size() >= kCasesOfProcess)
        run_pending(id.shape);
}

void Fuzzer::run_pending(size_t shape)
{
    const std::vector<PendingCase> cases = std::move(pending_[shape]);
    pending_[shape].clear();
    if (cases.empty())
        return;
    FieldWork work(*subjects_[shape], cases);
    const std::vector<CaseOutcome> outcomes = run_apart(work, cases.size());
    for (size_t index = 0; index < cases.size(); ++index)
        note(cases[index], outcomes[index]);
}

void Fuzzer::note(const PendingCase& one, const CaseOutcome& outcome)
{
    const auto& [id, fuzz] = one;
    const auto& [verdict, problem] = outcome;
    ++totals_.cases;
    totals_.fields.insert(id.structure + "." + fuzz.leaf.field);
    ++totals_.by_structure[id.structure];
    using Step = Verdict::Step;
    if (verdict.read_only == Step::kRefused)
        ++totals_.refused;
    else if (verdict.check == Step::kGood)
        ++totals_.accepted;
    else
        ++totals_.reported;
    if (problem.empty())
        return;
    ++totals_.problems;
    printf("PROBLEM --case=%s (was %#llx): %s\n", text_of(id).c_str(),
           static_cast<unsigned long long>(subjects_[id.shape]->editor->value(fuzz.target, fuzz.leaf)),
           problem.c_str());
}

// All values of one field of one instance.
void Fuzzer::run_leaf(size_t shape, const Leaf& leaf, size_t target)
{
    for (const uint64_t value : values(shape, leaf, target)) {
        const CaseId id{shape, leaf.structure, leaf.name, target, value, false};
        add(id, leaf);
        if (!DiskEditor::is_repeated(leaf))
            continue;
        CaseId agreeing = id;
        agreeing.agree = true;
        add(agreeing, leaf);
    }
}

void Fuzzer::run_all()
{
    for (size_t shape = 0; shape < subjects_.size(); ++shape)
        for (const std::string& structure : fuzzed_structures()) {
            const size_t count = targets(shape, structure).size();
            for (uint64_t i = 0; i < std::min<uint64_t>(arguments_.instances, count); ++i) {
                // Spread over the instances, another choice for another seed.
                const size_t target = (i * count / arguments_.instances + prng_.below(count)) % count;
                for (const Leaf& leaf : leaves(structure, targets(shape, structure)[target]))
                    if (wanted(leaf))
                        run_leaf(shape, leaf, target);
            }
        }
}

// Rounds over all fields, one value of a random instance each, until the time is up; at least one round.
void Fuzzer::run_rounds()
{
    for (uint64_t round = 0; round == 0 || !out_of_time(); ++round)
        for (const std::string& structure : fuzzed_structures()) {
            // Of a volume that has any: some structures are in few.
            size_t shape = prng_.below(subjects_.size());
            for (size_t step = 1; step < subjects_.size() && targets(shape, structure).empty(); ++step)
                shape = (shape + 1) % subjects_.size();
            const size_t count = targets(shape, structure).size();
            if (count == 0)
                continue;
            const size_t sample = prng_.below(count);
            for (const Leaf& leaf : leaves(structure, targets(shape, structure)[sample])) {
                const size_t target = leaf.name == "tail" ? sample : prng_.below(count);
                const std::vector<uint64_t> choice = values(shape, leaf, target);
                if (!wanted(leaf) || choice.empty() || (round > 0 && out_of_time()))
                    continue;
                const uint64_t value = choice[prng_.below(choice.size())];
                const bool agree = DiskEditor::is_repeated(leaf) && prng_.chance(1, 2);
                add({shape, structure, leaf.name, target, value, agree}, leaf);
            }
        }
}

int Fuzzer::run_repeat()
{
    CaseId id;
    if (!parse_case(arguments_.repeat, id) || id.shape >= subjects_.size() ||
        id.target >= targets(id.shape, id.structure).size())
        return 2;
    const Target& target = targets(id.shape, id.structure)[id.target];
    for (const Leaf& leaf : leaves(id.structure, target)) {
        if (leaf.name != id.leaf)
            continue;
        FuzzCase fuzz{target, leaf, id.value, {id.agree}, {}};
        fuzz.session.fill =
            subjects_[id.shape]->shape->fills && subjects_[id.shape]->editor->describes_space(target);
        log_set_level(LogLevel::kInfo);
        const Verdict verdict = run_case(*subjects_[id.shape], fuzz);
        printf("check %d read-only %d writable %d: %s\n", static_cast<int>(verdict.check),
               static_cast<int>(verdict.read_only), static_cast<int>(verdict.writable), verdict.problem);
        return verdict.problem[0] == 0 ? 0 : 1;
    }
    return 2;
}

// Behind the fields of another structure in the same item. The libFuzzer target of items has them.
bool stands_inside_another(const std::string& structure)
{
    return structure == "DiskAcl" || structure == "DiskAclEntry" || structure == "DiskExtentRun";
}

int Fuzzer::report()
{
    for (size_t shape = 0; shape < subjects_.size(); ++shape)
        run_pending(shape);
    size_t missing = 0;
    for (const std::string& structure : fuzzed_structures())
        for (const Leaf& leaf : leaves_of(structure))
            if (wanted(leaf) && !stands_inside_another(structure) &&
                !totals_.fields.contains(structure + "." + leaf.field)) {
                printf("not covered: %s.%s\n", structure.c_str(), leaf.field.c_str());
                ++missing;
            }
    printf(
        "field_fuzz seed=%llu: fields=%zu cases=%llu refused=%llu reported=%llu accepted=%llu problems=%llu "
        "in %lld s\n",
        static_cast<unsigned long long>(arguments_.seed), totals_.fields.size(),
        static_cast<unsigned long long>(totals_.cases), static_cast<unsigned long long>(totals_.refused),
        static_cast<unsigned long long>(totals_.reported), static_cast<unsigned long long>(totals_.accepted),
        static_cast<unsigned long long>(totals_.problems), static_cast<long long>(time(nullptr) - started_));
    return missing == 0 && totals_.problems == 0 ? 0 : 1;
}

int Fuzzer::run()
{
    for (const FuzzShape& shape : fuzz_shapes())
        subjects_.push_back(make_subject(shape));
    if (arguments_.repeat.starts_with("multi:"))
        return repeat_multi(subjects_, arguments_.repeat);
    if (arguments_.multi != 0)
        return run_multi(subjects_, arguments_.seed, arguments_.multi);
    if (!arguments_.repeat.empty())
        return run_repeat();
    if (arguments_.list) {
        for (const std::string& structure : fuzzed_structures())
            for (size_t shape = 0; shape < subjects_.size(); ++shape)
                printf("%s: %zu fields, %zu instances in %s\n", structure.c_str(),
                       leaves_of(structure).size(), targets(shape, structure).size(),
                       subjects_[shape]->shape->name);
        return 0;
    }
    if (arguments_.all)
        run_all();
    else
        run_rounds();
    return report();
}

enum Option {
    kSeed = 's',
    kBudget = 'b',
    kAll = 'a',
    kInstances = 'i',
    kOnly = 'o',
    kCase = 'c',
    kList = 'l',
    kMulti = 'm'
};

error_t parse_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<Arguments*>(state->input);
    switch (key) {
    case kSeed:
        arguments.seed = strtoull(text, nullptr, 0);
        return 0;
    case kBudget:
        arguments.budget_seconds = strtoull(text, nullptr, 0);
        return 0;
    case kInstances:
        arguments.instances = strtoull(text, nullptr, 0);
        return 0;
    case kAll:
        arguments.all = true;
        return 0;
    case kList:
        arguments.list = true;
        return 0;
    case kOnly:
        arguments.only.emplace_back(text);
        return 0;
    case kMulti:
        arguments.multi = strtoull(text, nullptr, 0);
        return 0;
    case kCase:
        arguments.repeat = text;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

}  // namespace

int main(int argc, char** argv)
{
    static const argp_option options[] = {
        {"seed", kSeed, "N", 0, "seed of instances and random values", 0},
        {"budget", kBudget, "SECONDS", 0, "rounds over all fields until the time is up (20)", 0},
        {"all", kAll, nullptr, 0, "every field times every value on every volume, whatever it takes", 0},
        {"instances", kInstances, "N", 0, "instances of each structure for --all (1)", 0},
        {"only", kOnly, "STRUCTURE[.FIELD]", 0, "these fields only; may be given again", 0},
        {"multi", kMulti, "N", 0, "N cases of several fields that agree with each other instead", 0},
        {"case", kCase, "ID", 0, "repeat one case, as printed, in this process", 0},
        {"list", kList, nullptr, 0, "print structures and numbers of instances", 0},
        {nullptr, 0, nullptr, 0, nullptr, 0}};
    Arguments arguments;
    const argp parser{options, parse_option, nullptr, "On-disk fields with values they should not have.",
                      nullptr, nullptr,      nullptr};
    argp_parse(&parser, argc, argv, 0, nullptr, &arguments);
    log_set_level(LogLevel::kNone);
    return Fuzzer(arguments).run();
}
