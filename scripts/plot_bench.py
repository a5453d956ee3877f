#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Draws throughput over time, of the median round of every series, as an SVG picture.

    cowraid bench raid56 --json ... | scripts/plot_bench.py >plot.svg
"""

import json
import math
import sys
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 360, 70, 20, 40, 45
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]  # told apart by people who see no red or green, too
GRID_LINES = 5


def scale_limit(value):
    """The next 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1
    return next(power * factor for factor in (1, 2, 5, 10) if value <= power * factor)


def median_round(series):
    rounds = sorted(series["rounds"], key=lambda one: one["bytes_per_second"])
    return rounds[(len(rounds) - 1) // 2]


def text(x, y, words, anchor="start"):
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{escape(words)}</text>"


def draw(title, step, lines):
    """`lines`: (name, MB/s of each step of so many seconds)."""
    seconds = step * max([1, *(len(values) for _, values in lines)])
    limit = scale_limit(max((value for _, values in lines for value in values), default=0))

    def place(second, value):
        return (LEFT + second / seconds * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - value / limit * (HEIGHT - TOP - BOTTOM))

    out = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' "
           f"height='{HEIGHT}' font-family='sans-serif' font-size='12'>",
           f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>", text(WIDTH / 2, 16, title, "middle"),
           text(LEFT - 6, TOP - 10, "MB/s", "end"), text(WIDTH / 2, HEIGHT - 8, "seconds", "middle")]
    for line in range(GRID_LINES + 1):
        second, value = seconds * line / GRID_LINES, limit * line / GRID_LINES
        x, y = place(second, value)
        out += [f"<line x1='{LEFT}' y1='{y:.1f}' x2='{WIDTH - RIGHT}' y2='{y:.1f}' stroke='#ddd'/>",
                text(LEFT - 6, y + 4, f"{value:g}", "end"),
                text(x, HEIGHT - BOTTOM + 18, f"{second:.3g}", "middle")]
    for number, (name, values) in enumerate(lines):
        places = (place((index + 0.5) * step, value) for index, value in enumerate(values))
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour, x = COLOURS[number % len(COLOURS)], LEFT + 10 + 180 * number
        out += [f"<polyline fill='none' stroke='{colour}' stroke-width='1.5' points='{points}'/>",
                f"<rect x='{x}' y='{TOP - 14}' width='12' height='3' fill='{colour}'/>",
                text(x + 18, TOP - 10, name)]
    return "\n".join([*out, "</svg>\n"])


def main():
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    document = json.load(sys.stdin)
    if not document.get("series"):
        sys.exit(document.get("error", {}).get("message", "no series of measurements"))
    series = document["series"]
    rounds = [(one["name"], median_round(one)) for one in series]
    step = rounds[0][1]["tick_ns"] / 1e9
    options = series[0]["options"]
    title = (f"{options['profile']}, {options['members']} members, {options['pattern']}, "
             f"{options['block_bytes'] >> 10} KiB, {options['writers']} writers")
    sys.stdout.write(draw(title, step, [(name, [count / step / 1e6 for count in one["bytes_per_tick"]])
                                        for name, one in rounds]))


if __name__ == "__main__":
    main()
