// SPDX-License-Identifier: MIT
#include "format/feature_table.h"

#include <array>

#include "base/assert.h"
#include "format/superblock.h"

namespace cowraid {

namespace {

constexpr Feature kFeatures[] = {
#define COWRAID_FEATURE_ROW(name, feature_class, bit, support, reason, date)                                 \
    {#name, FeatureClass::feature_class, bit, FeatureSupport::support, reason, date},
    COWRAID_FEATURES(COWRAID_FEATURE_ROW)
#undef COWRAID_FEATURE_ROW
};

constexpr FormatVersion kFormatVersions[] = {
    {1, "2026-11-20", "first format"},
    {2, "2026-11-22", "columns of block groups say since when they are stale"},
    {3, "2026-11-24", "pointers to nodes have a checksum of each block"},
};
static_assert(std::size(kFormatVersions) == kFormatVersion, "a format version without its line of history");

constexpr bool bits_are_unique()
{
    uint64_t seen[3] = {};
    for (const Feature& feature : kFeatures) {
        const uint64_t bit = uint64_t{1} << feature.bit;
        uint64_t& mask = seen[static_cast<size_t>(feature.feature_class)];
        if ((mask & bit) != 0)
            return false;
        mask |= bit;
    }
    return true;
}
static_assert(bits_are_unique(), "a feature bit is used twice");

const Feature* find_feature(FeatureClass feature_class, uint32_t bit)
{
    for (const Feature& feature : kFeatures) {
        if (feature.feature_class == feature_class && feature.bit == bit)
            return &feature;
    }
    return nullptr;
}

}  // namespace

std::span<const Feature> features()
{
    return kFeatures;
}

std::span<const FormatVersion> format_versions()
{
    return kFormatVersions;
}

const char* feature_class_name(FeatureClass feature_class)
{
    switch (feature_class) {
    case FeatureClass::kRefuse:
        return "refuse";
    case FeatureClass::kReadOnly:
        return "read-only";
    case FeatureClass::kIgnore:
        return "ignore";
    }
    return "unknown";
}

uint64_t feature_bit(std::string_view name)
{
    for (const Feature& feature : kFeatures) {
        if (name == feature.name)
            return uint64_t{1} << feature.bit;
    }
    CW_ASSERT(false);
    return 0;
}

uint64_t unhandled_features(FeatureClass feature_class, uint64_t mask)
{
    for (const Feature& feature : kFeatures) {
        if (feature.feature_class == feature_class && feature.support == FeatureSupport::kHandled)
            mask &= ~(uint64_t{1} << feature.bit);
    }
    return mask;
}

std::string feature_names(FeatureClass feature_class, uint64_t mask)
{
    std::string names;
    for (uint32_t bit = 0; bit < 64; ++bit) {
        if ((mask >> bit & 1) == 0)
            continue;
        if (!names.empty())
            names += ", ";
        const Feature* feature = find_feature(feature_class, bit);
        names += feature != nullptr ? feature->name : "bit " + std::to_string(bit);
    }
    return names;
}

}  // namespace cowraid
