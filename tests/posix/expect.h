// SPDX-License-Identifier: MIT
// Assertions of the suite. The format says what is expected, with its values: it names the assertion. Counted
// across processes; a line is printed for each that fails. Each returns whether it held.
#pragma once

#include <cstdint>
#include <string>

namespace cowraid::posix {

struct Counts {
    uint64_t done, failed, skipped;
};

// Before the first assertion and the first child.
void begin_counting();
Counts counts();
// Printed before the name of an assertion; of this process and its later children.
void set_area(const std::string& name);

[[gnu::format(printf, 2, 3)]] bool expect(bool held, const char* format, ...);
// Of a call that returns a negative number and sets errno when it fails; `error` is 0 when it must not.
[[gnu::format(printf, 3, 4)]] bool expect_result(int error, long result, const char* format, ...);
[[gnu::format(printf, 3, 4)]] bool expect_equal(int64_t wanted, int64_t is, const char* format, ...);
[[gnu::format(printf, 3, 4)]] bool expect_text(const std::string& wanted, const std::string& is,
                                               const char* format, ...);

// What the filesystem may lack for now, said by the caller of the program.
enum class Feature : uint8_t {
    kAcl,
    kSecurity,
    kWhiteout,
    kTemporary,
    kHandles,
    kBirthTime,
    kFlags,
    kDirectoryTimes,
};
constexpr int kFeatureCount = 8;
const char* feature_name(Feature feature);
// By name; false when no feature has that.
bool set_missing(const std::string& name);
// Whether assertions that need it are made. If not a line says that `what` is skipped.
bool has(Feature feature, const char* what);
bool is_missing(Feature feature);

}  // namespace cowraid::posix
