#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Makes docs/screens/: what cowraid shows of a volume that is healthy, degraded, being filled and damaged,
and how it lies on its members. Run as root, with the programs built:

    scripts/screens.py build-release docs/screens

The volume is a live one on image files, in a mount namespace of its own: they are in /srv there, it is
mounted at /mnt. Each screen is a text file, as it was printed, and the same as an SVG picture; the heat map
is an SVG, and a PNG where rsvg-convert is."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

MIB = 1 << 20
MEMBERS, MEMBER_MIB = 5, 512
FONT, LINE, CHARACTER, MARGIN = 13, 18, 7.83, 12
COLOURS = {"ONLINE": "#50c878", "DEGRADED": "#f0c040", "DAMAGED": "#ff6b6b", "faulted": "#ff6b6b",
           "missing": "#ff6b6b", "rebuilding": "#f0c040", "stale": "#f0c040",
           "degraded": "#f0c040", "online": "#50c878"}


def picture(lines):
    """A terminal as SVG. Words that say how something is are coloured."""
    width = 2 * MARGIN + CHARACTER * max(len(line) for line in lines)
    height = 2 * MARGIN + LINE * len(lines)
    out = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height}' width='{width:.0f}' "
           f"height='{height}' font-family='DejaVu Sans Mono, monospace' font-size='{FONT}'>",
           f"<rect width='{width:.0f}' height='{height}' fill='#1e1e1e' rx='6'/>"]
    for number, line in enumerate(lines):
        words = escape(line)
        for word, colour in COLOURS.items():
            words = words.replace(f" {word} ", f" <tspan fill='{colour}'>{word}</tspan> ")
            if words.endswith(f" {word}"):
                words = f"{words[:-len(word)]}<tspan fill='{colour}'>{word}</tspan>"
        colour = "#9cdcfe" if line.startswith("# ") else "#dddddd"
        out.append(f"<text x='{MARGIN}' y='{MARGIN + LINE * (number + 0.75):.1f}' fill='{colour}' "
                   f"xml:space='preserve'>{words}</text>")
    return "\n".join([*out, "</svg>\n"])


class Screens:
    def __init__(self, build, output):
        self.tools, self.output = build / "tools", output
        self.folder = Path(tempfile.mkdtemp(prefix="cowraid-screens-"))
        subprocess.run(["mount", "--bind", self.folder, "/srv"], check=True)
        self.mount_point = Path("/mnt")
        self.images = []
        for _ in range(MEMBERS):
            self.new_image()

    def new_image(self):
        image = Path("/srv") / f"{'abcdefgh'[len(self.images)]}.img"
        with open(image, "wb") as file:
            file.truncate(MEMBER_MIB * MIB)
        self.images.append(image)
        return image

    def run(self, program, *arguments, check=True):
        command = [str(self.tools / program), *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if check and result.returncode != 0:
            sys.exit(f"{command} returned {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout

    def show(self, name, *arguments, check=True):
        """What a command prints."""
        text = self.run("cowraid", *arguments, self.mount_point, check=check)
        text = f"# cowraid {' '.join(arguments)} {self.mount_point}\n{text.rstrip()}\n"
        (self.output / f"{name}.txt").write_text(text, encoding="utf-8")
        (self.output / f"{name}.svg").write_text(picture(text.splitlines()), encoding="utf-8")
        return text

    def status(self):
        return json.loads(self.run("cowraid", "status", "--json", self.mount_point))["volumes"][0]

    def wait(self, condition):
        deadline = time.monotonic() + 300
        while not condition(self.status()):
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.1)

    def mount(self, members, *options):
        self.run("mount.cowraid", *members, self.mount_point, *options)

    def unmount(self):
        self.run("umount.fuse.cowraid", self.mount_point)

    def fill(self, name, mebibytes):
        folder = self.mount_point / name
        folder.mkdir()
        for number in range(mebibytes // 4):
            (folder / f"{number}.jpg").write_bytes(os.urandom(4 * MIB))
        self.run("cowraid", "filesystem", "sync", self.mount_point)

    def map(self):
        self.run("cowraid", "map", "-o", self.output / "map.svg", self.mount_point)
        if shutil.which("rsvg-convert"):
            self.run("cowraid", "map", "-o", self.output / "map.png", self.mount_point)

    def make_all(self):
        self.run("mkfs.cowraid", "-q", "-L", "tank", "-d", "raid6", "-m", "raid1c3", *self.images)
        self.mount(self.images)
        self.fill("photos", 400)
        self.fill("videos", 480)
        shutil.rmtree(self.mount_point / "photos")
        self.fill("music", 120)
        self.run("cowraid", "scrub", self.mount_point)
        assert " ONLINE\n" in self.show("status-healthy", "status")
        self.show("scrub", "scrub", "status", "-d")
        self.show("usage", "filesystem", "usage", "-T")
        self.show("layout", "filesystem", "usage", "--layout")
        self.map()
        self.unmount()
        lost = self.images[1]
        lost.rename(lost.with_suffix(".gone"))
        self.mount([image for image in self.images if image != lost], "-o", "degraded")
        self.fill("meanwhile", 200)
        assert "DEGRADED" in self.show("status-degraded", "status")
        new = self.new_image()
        self.run("cowraid", "replace", "start", "missing", new, self.mount_point)
        self.wait(lambda status: status["catch_up"]["bytes_done"] * 3 > status["catch_up"]["bytes_total"] > 0)
        text = self.show("status-rebuilding", "status")
        assert "Filling members:" in text, text
        self.wait(lambda status: status["health"] == "ONLINE")
        time.sleep(1.5)  # the daemon looks once a second
        self.show("events", "events")
        self.unmount()
        self.images.remove(lost)
        for image in self.images[1:4]:  # one more than raid6 tolerates
            with open(image, "r+b") as file:
                file.seek(200 * MIB)
                file.write(os.urandom(8 * MIB))
        self.mount(self.images)
        self.run("cowraid", "scrub", self.mount_point, check=False)
        text = self.show("status-damaged", "status", "-v")
        assert "DAMAGED" in text and ".jpg" in text, text

    def clean_up(self):
        subprocess.run([self.tools / "umount.fuse.cowraid", self.mount_point], capture_output=True,
                       check=False)
        if not os.path.ismount(self.mount_point):
            subprocess.run(["umount", "/srv"], check=True)
            shutil.rmtree(self.folder)


def main():
    if len(sys.argv) != 3 or os.geteuid() != 0:
        sys.exit(__doc__)
    if "COWRAID_SCREENS" not in os.environ:
        os.environ["COWRAID_SCREENS"] = "in its namespace"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    screens = Screens(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
    try:
        screens.output.mkdir(parents=True, exist_ok=True)
        screens.make_all()
    finally:
        screens.clean_up()


if __name__ == "__main__":
    main()
