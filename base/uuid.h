// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cowraid {

struct Uuid {
    std::array<uint8_t, 16> bytes{};

    friend auto operator<=>(const Uuid&, const Uuid&) = default;
};

// Version 4, from the kernel's random source.
Uuid uuid_random();
// Lower-case 8-4-4-4-12 form.
std::string uuid_text(const Uuid& uuid);
// kInvalid for anything but the 8-4-4-4-12 form, either case.
Result<Uuid> uuid_parse(std::string_view text);

}  // namespace cowraid
