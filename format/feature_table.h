// SPDX-License-Identifier: MIT
// What a volume may use beyond its format version, and what a program does about a bit it does not handle.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cowraid {

// A field of the superblock per class: what a program that does not handle a set bit must do.
enum class FeatureClass : uint8_t {
    kRefuse,  // incompat_features: do not mount, data would be misread
    kReadOnly,  // readonly_features: mount read-only, a write would break what the feature keeps
    kIgnore,  // compat_features: nothing is lost
};

enum class FeatureSupport : uint8_t {
    kHandled,  // this version reads and writes volumes that have it
    kReserved,  // the bit is taken; this version treats a volume that has it by the bit's class
};

// Name, class, bit, support, reason (what a program without it would get wrong), date of the entry. Bits
// are never reused.
#define COWRAID_FEATURES(X)                                                                                  \
    X(intent_log, kRefuse, 0, kReserved, "parity is incomplete until the write-intent log is recovered",     \
      "2026-11-20")                                                                                          \
    X(fsync_log, kRefuse, 1, kReserved, "synced writes are lost unless the fsync log is replayed",           \
      "2026-11-20")                                                                                          \
    X(zstd, kRefuse, 2, kHandled, "compressed extents need a decompressor", "2026-11-20")                    \
    X(remap, kRefuse, 3, kHandled, "addresses of moved blocks resolve through the remap tree", "2026-11-20") \
    X(sets, kRefuse, 4, kHandled, "raid0 and raid10 groups have chunks where none is looked for",            \
      "2026-11-25")                                                                                          \
    X(replace, kRefuse, 5, kHandled, "what is written to a member must be written to its successor, too",    \
      "2026-11-26")                                                                                          \
    X(spares, kRefuse, 6, kHandled, "lines behind the member table are devices in reserve", "2026-11-26")    \
    X(chosen, kRefuse, 7, kHandled, "a balance empties chosen block groups, not all that its record tells",  \
      "2026-11-26")                                                                                          \
    X(shrink, kRefuse, 8, kHandled, "a balance makes a member smaller, and removes none", "2026-11-26")      \
    X(inode_flags, kRefuse, 9, kHandled, "inodes with flags count as damaged", "2026-11-29")                 \
    X(inline_frames, kRefuse, 10, kHandled, "compressed files inside nodes count as damaged", "2026-11-29")  \
    X(cut_files, kRefuse, 11, kHandled, "what is behind the end of a file would come back when it grows",    \
      "2026-12-01")                                                                                          \
    X(shared_blocks, kReadOnly, 0, kReserved, "a free would release blocks that another owner shares",       \
      "2026-11-20")                                                                                          \
    X(rights, kReadOnly, 1, kHandled, "access lists and capabilities would not change with their files",     \
      "2026-11-29")

struct Feature {
    const char* name;
    FeatureClass feature_class;
    uint32_t bit;
    FeatureSupport support;
    const char* reason;
    const char* date;
};

// One line per format version, oldest first.
struct FormatVersion {
    uint32_t version;
    const char* date;
    const char* change;
};

std::span<const Feature> features();
std::span<const FormatVersion> format_versions();

// "refuse", "read-only" or "ignore".
const char* feature_class_name(FeatureClass feature_class);

// The bit of the feature of that name, which exists, in the field of its class.
uint64_t feature_bit(std::string_view name);

// The bits of `mask` (a feature field of a superblock) that this version does not handle.
uint64_t unhandled_features(FeatureClass feature_class, uint64_t mask);

// The set bits by name, reserved or not, comma separated; bits without a name as "bit 17". Empty for 0.
std::string feature_names(FeatureClass feature_class, uint64_t mask);

}  // namespace cowraid
