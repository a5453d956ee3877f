// SPDX-License-Identifier: MIT
// Lines over time as a picture.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace cowraid {

struct PlotLine {
    std::string name;
    std::vector<double> values;  // at equal distances, from the start
};

// An SVG document. `step_seconds`: between two values. Titles and names are escaped.
std::string plot_svg(const std::string& title, const std::string& unit, double step_seconds,
                     std::span<const PlotLine> lines);

// Replaces the file. kIo with one line in `why`.
Status write_text_file(const std::string& path, const std::string& text, std::string& why);

}  // namespace cowraid
