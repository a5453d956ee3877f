// SPDX-License-Identifier: MIT
#include "bench/bench_plot.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace cowraid {

namespace {

constexpr double kWidth = 800, kHeight = 360;
constexpr double kLeft = 70, kRight = 20, kTop = 40, kBottom = 45;
constexpr int kGridLines = 5;
// Told apart by people who see no red or green, too.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7"};

__attribute__((format(printf, 2, 3))) void append(std::string& out, const char* format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    out += text;
}

std::string escape_markup(const std::string& text)
{
    std::string out;
    for (const char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '&')
            out += "&amp;";
        else
            out += c;
    }
    return out;
}

// The next 1, 2 or 5 times a power of ten.
double round_limit(double value)
{
    if (value <= 0)
        return 1;
    const double power = std::pow(10.0, std::floor(std::log10(value)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (value <= factor * power)
            return factor * power;
    }
    return 10 * power;
}

struct Frame {
    double x_limit, y_limit;

    [[nodiscard]] double x(double value) const { return kLeft + value / x_limit * (kWidth - kLeft - kRight); }
    [[nodiscard]] double y(double value) const
    {
        return kHeight - kBottom - value / y_limit * (kHeight - kTop - kBottom);
    }
};

void draw_grid(std::string& out, const Frame& frame, const std::string& unit)
{
    for (int line = 0; line <= kGridLines; ++line) {
        const double value = frame.y_limit * line / kGridLines;
        append(out, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#ddd'/>\n", kLeft, frame.y(value),
               kWidth - kRight, frame.y(value));
        append(out, "<text x='%.1f' y='%.1f' text-anchor='end'>%g</text>\n", kLeft - 6, frame.y(value) + 4,
               value);
        const double time = frame.x_limit * line / kGridLines;
        append(out, "<text x='%.1f' y='%.1f' text-anchor='middle'>%.3g</text>\n", frame.x(time),
               kHeight - kBottom + 18, time);
    }
    out += "<text x='" + std::to_string(static_cast<int>(kWidth / 2)) + "' y='" +
           std::to_string(static_cast<int>(kHeight - 8)) + "' text-anchor='middle'>seconds</text>\n";
    append(out, "<text x='%.1f' y='%.1f' text-anchor='end'>", kLeft - 6, kTop - 10);
    out += escape_markup(unit) + "</text>\n";
}

void draw_line(std::string& out, const Frame& frame, const PlotLine& line, double step, size_t number)
{
    const char* const colour = kColours[number % std::size(kColours)];
    append(out, "<polyline fill='none' stroke='%s' stroke-width='1.5' points='", colour);
    for (size_t index = 0; index < line.values.size(); ++index)
        append(out, "%.1f,%.1f ", frame.x((static_cast<double>(index) + 0.5) * step),
               frame.y(line.values[index]));
    out += "'/>\n";
    const double x = kLeft + 10 + 180 * static_cast<double>(number);
    append(out, "<rect x='%.1f' y='%.1f' width='12' height='3' fill='%s'/>\n", x, kTop - 14, colour);
    append(out, "<text x='%.1f' y='%.1f'>", x + 18, kTop - 10);
    out += escape_markup(line.name) + "</text>\n";
}

}  // namespace

std::string plot_svg(const std::string& title, const std::string& unit, double step_seconds,
                     std::span<const PlotLine> lines)
{
    size_t longest = 1;
    double highest = 0;
    for (const PlotLine& line : lines) {
        longest = std::max(longest, line.values.size());
        for (const double value : line.values)
            highest = std::max(highest, value);
    }
    const Frame frame{static_cast<double>(longest) * step_seconds, round_limit(highest)};
    std::string out;
    append(out, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %g %g'", kWidth, kHeight);
    append(out, " width='%g' height='%g' font-family='sans-serif' font-size='12'>\n", kWidth, kHeight);
    append(out, "<rect width='%g' height='%g' fill='white'/>\n", kWidth, kHeight);
    append(out, "<text x='%g' y='16' text-anchor='middle' font-size='14'>", kWidth / 2);
    out += escape_markup(title) + "</text>\n";
    draw_grid(out, frame, unit);
    for (size_t number = 0; number < lines.size(); ++number)
        draw_line(out, frame, lines[number], step_seconds, number);
    return out + "</svg>\n";
}

Status write_text_file(const std::string& path, const std::string& text, std::string& why)
{
    FILE* const file = fopen(path.c_str(), "we");
    bool good = file != nullptr && fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file != nullptr)
        good = fclose(file) == 0 && good;
    if (good)
        return {};
    why = path + " cannot be written: " + std::strerror(errno) + "; choose another place";
    return Err::kIo;
}

}  // namespace cowraid
