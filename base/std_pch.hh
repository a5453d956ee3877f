// SPDX-License-Identifier: MIT
// Precompiled headers of the standard library (meson.build). Files include what they use all the same.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
