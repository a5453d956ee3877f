// SPDX-License-Identifier: MIT
#include "tests/posix/expect.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/print.h"

namespace cowraid::posix {

namespace {

struct FeatureState {
    const char* name;
    bool missing;
};
std::array<FeatureState, kFeatureCount> features{{{"acl", false},
                                                  {"security", false},
                                                  {"whiteout", false},
                                                  {"tmpfile", false},
                                                  {"handles", false},
                                                  {"btime", false},
                                                  {"chattr", false},
                                                  {"dirtimes", false}}};

struct SharedCounts {
    std::atomic<uint64_t> done, failed, skipped;
};
SharedCounts* shared = nullptr;
std::string current_area;

// Each line begins with what happened, so that a reader finds it.
void fail_line(const std::string& name, const std::string& why)
{
    shared->failed.fetch_add(1);
    printf("FAILED: %s: %s%s%s\n", current_area.c_str(), name.c_str(), why.empty() ? "" : ": ", why.c_str());
}

std::string error_text(int error)
{
    const char* name = error == 0 ? nullptr : strerrorname_np(error);
    return error == 0 ? "success" : name != nullptr ? name : std::to_string(error);
}

// Long contents are cut.
std::string shortened(const std::string& text)
{
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

void begin_counting()
{
    void* memory =
        mmap(nullptr, sizeof(SharedCounts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    shared = new (memory) SharedCounts{};
}

Counts counts()
{
    return {shared->done.load(), shared->failed.load(), shared->skipped.load()};
}

void set_area(const std::string& name)
{
    current_area = name;
}

bool expect(bool held, const char* format, ...)
{
    shared->done.fetch_add(1);
    if (held)
        return true;
    va_list arguments;
    va_start(arguments, format);
    fail_line(text_format_list(format, arguments), "");
    va_end(arguments);
    return false;
}

bool expect_result(int error, long result, const char* format, ...)
{
    const int is = result < 0 ? errno : 0;
    shared->done.fetch_add(1);
    if (is == error)
        return true;
    va_list arguments;
    va_start(arguments, format);
    fail_line(text_format_list(format, arguments),
              "expected " + error_text(error) + ", is " + error_text(is));
    va_end(arguments);
    return false;
}

bool expect_equal(int64_t wanted, int64_t is, const char* format, ...)
{
    shared->done.fetch_add(1);
    if (is == wanted)
        return true;
    va_list arguments;
    va_start(arguments, format);
    fail_line(text_format_list(format, arguments),
              text_format("expected %ld (0%lo), is %ld (0%lo)", wanted, wanted, is, is));
    va_end(arguments);
    return false;
}

bool expect_text(const std::string& wanted, const std::string& is, const char* format, ...)
{
    shared->done.fetch_add(1);
    if (is == wanted)
        return true;
    size_t at = 0;
    while (at < wanted.size() && at < is.size() && wanted[at] == is[at])
        ++at;
    va_list arguments;
    va_start(arguments, format);
    fail_line(text_format_list(format, arguments),
              printable(text_format(
                  "%zu bytes expected, %zu there, different from %zu on: \"%s\", not \"%s\"", wanted.size(),
                  is.size(), at, shortened(is.substr(at)).c_str(), shortened(wanted.substr(at)).c_str())));
    va_end(arguments);
    return false;
}

const char* feature_name(Feature feature)
{
    return features[static_cast<size_t>(feature)].name;
}

bool set_missing(const std::string& name)
{
    for (FeatureState& feature : features) {
        if (name == feature.name)
            return feature.missing = true;
    }
    return false;
}

bool is_missing(Feature feature)
{
    return features[static_cast<size_t>(feature)].missing;
}

bool has(Feature feature, const char* what)
{
    if (!is_missing(feature))
        return true;
    shared->skipped.fetch_add(1);
    printf("skipped: %s: %s, the filesystem lacks %s\n", current_area.c_str(), what, feature_name(feature));
    return false;
}

}  // namespace cowraid::posix
