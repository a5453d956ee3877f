# SPDX-License-Identifier: MIT
"""scripts/style finds what it promises to find: each rule meets a tree that breaks it, and one that does not.

Runs under pytest and as `python3 tests/style/test_style.py`.
"""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import style_rules  # noqa: E402
import style_tools  # noqa: E402
from style_source import Source, classify, list_files, tokens_of  # noqa: E402

SPDX = "// SPDX-License-Identifier: MIT\n"


class Tree:
    """A throw-away source tree."""

    def __init__(self, files):
        self.folder = tempfile.TemporaryDirectory(prefix="cw-style-")
        self.root = self.folder.name
        for path, text in files.items():
            full = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.folder.cleanup()

    def findings(self, path):
        return style_rules.check_source(Source(self.root, path), self.root)

    def run(self, *options):
        command = [os.path.join(ROOT, "scripts/style"), "--root", self.root, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def messages(files, path):
    with Tree(files) as tree:
        return [f"{f.line}: {f.message}" for f in tree.findings(path)]


def code_messages(code, path="fs/x.cc"):
    return messages({path: SPDX + code}, path)


def functions_of(code):
    with Tree({"fs/x.cc": code}) as tree:
        return [(f.name, f.line, f.lines) for f in Source(tree.root, "fs/x.cc").functions()]


def function_of_lines(name, lines):
    return f"int {name}()\n{{\n" + "    step();\n" * (lines - 3) + "}\n"


class TypeNames(unittest.TestCase):
    EXTENT = "struct Extent {\n};\n"

    @staticmethod
    def in_space(name, text):
        return f"namespace {name} {{\n{text}}}  // namespace {name}\n" if name else (
            f"namespace {{\n{text}}}  // namespace\n")

    def findings(self, files):
        with Tree({path: SPDX + text for path, text in files.items()}) as tree:
            sources = [Source(tree.root, path) for path in files]
            return [f"{f.path}:{f.line}" for f in style_rules.check_type_names(sources)]

    def test_second_definition_is_found(self):
        other = "class Extent final : public Base<Extent> {\n};\n"
        self.assertEqual(self.findings({"alloc/a.h": self.in_space("cowraid", self.EXTENT),
                                        "raid56/b.cc": self.in_space("cowraid", other)}), ["raid56/b.cc:3"])

    def test_other_scopes_are_not(self):
        inner = "struct Holder {\n    struct Extent {\n    };\n};\nclass Extent;\n"
        self.assertEqual(self.findings({
            "alloc/a.h": self.in_space("cowraid", self.EXTENT),
            "tests/b.h": self.in_space("cowraid::test", self.EXTENT),
            "fs/c.cc": self.in_space("cowraid", self.in_space("", self.EXTENT)),
            "raid56/d.h": self.in_space("cowraid", inner)}), [])


class FunctionMeasure(unittest.TestCase):
    def test_plain_function_counts_signature_to_brace(self):
        self.assertEqual(functions_of(function_of_lines("f", 70)), [("f", 1, 70)])

    def test_braces_in_literals_and_comments_do_not_count(self):
        code = ('void f()\n{\n    g("}{", \'}\');  // }\n    /* } */ h(R"x(}})" }})x");\n'
                "    big(1'000);\n}\nint a() { }\n")
        self.assertEqual(functions_of(code), [("f", 1, 6), ("a", 7, 1)])

    def test_classes_namespaces_and_enums_are_not_functions(self):
        code = ("namespace a::b {\nclass CW_CAPABILITY(\"m\") T final : public B {\npublic:\n"
                "    int f() const\n    {\n        return 1;\n    }\n"
                "    enum class E : int { kA, kB };\n    int v_{3};\n};\n}\n")
        self.assertEqual(functions_of(code), [("f", 4, 4)])

    def test_constructor_initialisers_with_braces(self):
        code = "T::T(int a) : B(a), x_{a}, y_(1)\n{\n    f();\n}\nT::T() : x_{1}, z_{}\n{\n}\n"
        self.assertEqual(functions_of(code), [("T::T", 1, 4), ("T::T", 5, 3)])

    def test_default_arguments_and_operators(self):
        code = ("S f(O o = {}, int n = 3)\n{\n}\nT& T::operator=(T&& o) noexcept\n{\n}\n"
                "bool operator==(T a, T b)\n{\n}\nexplicit operator bool() const { return true; }\n")
        self.assertEqual([f[2] for f in functions_of(code)], [3, 3, 3, 1])

    def test_tables_are_not_functions(self):
        code = ("constexpr T kTable[] = {\n    {1, f(2)},\n    {3, f(4)},\n};\n"
                "std::array<int, sizeof(int)> kMore{\n    1,\n};\n")
        self.assertEqual(functions_of(code), [])

    def test_templates_trailing_returns_attributes_and_macros(self):
        code = ("template <typename T, typename... A>\n[[nodiscard]] auto f(T t) -> Result<T>\n{\n}\n"
                "void g() CW_REQUIRES(mutex_)\n{\n}\nvoid n() const CW_NO_ANALYSIS\n{\n}\n"
                "static struct stat h(int fd)\n{\n}\n"
                'TEST_CASE("a { b")\n{\n}\nextern "C" int m()\n{\n}\n')
        self.assertEqual([f[0] for f in functions_of(code)], ["f", "g", "n", "h", "TEST_CASE", "m"])

    def test_lambda_belongs_to_its_function(self):
        code = ("void f()\n{\n    run([&](int a) {\n        return a;\n    });\n}\n"
                "const auto g = [](int a) {\n    h(a);\n};\n")
        self.assertEqual([(f[1], f[2]) for f in functions_of(code)], [(1, 6), (7, 3)])

    def test_only_the_first_branch_of_a_conditional_is_read(self):
        code = "#ifdef A\nvoid f()\n{\n#else\nvoid f(int a)\n{\n#endif\n    g();\n}\nvoid h()\n{\n}\n"
        self.assertEqual(functions_of(code), [("f", 2, 8), ("h", 10, 3)])

    def test_classify_attribute_struct(self):
        head = [t.text for t in tokens_of("struct __attribute__((packed)) ")]
        self.assertEqual(classify(head), "scope")

    def test_share_and_limits(self):
        with Tree({"fs/x.cc": "".join(function_of_lines(f"f{i}", 10) for i in range(99))
                   + function_of_lines("long_one", 71)}) as tree:
            functions = Source(tree.root, "fs/x.cc").functions()
        self.assertEqual(len(functions), 100)
        self.assertEqual(style_rules.long_share(functions), 0.01)
        self.assertEqual(list(style_rules.check_functions(functions)), [])
        few = functions[-40:]
        self.assertEqual([f.line for f in style_rules.check_functions(few)], [991])

    def test_short_functions_do_not_dilute_and_very_long_always_fails(self):
        code = "".join(f"int s{i}() {{ return 1; }}\n" for i in range(500)) + function_of_lines("f", 71)
        with Tree({"fs/x.cc": code}) as tree:
            self.assertEqual(style_rules.long_share(Source(tree.root, "fs/x.cc").functions()), 1.0)
        code = "".join(function_of_lines(f"f{i}", 10) for i in range(99)) + function_of_lines("g", 121)
        with Tree({"fs/x.cc": code}) as tree:
            found = list(style_rules.check_functions(Source(tree.root, "fs/x.cc").functions()))
        self.assertEqual(len(found), 1)


class Layers(unittest.TestCase):
    HEADERS = {f"{folder}/y.h": SPDX + "#pragma once\n" for folder in style_rules.LAYERS}
    HEADERS["raid56/geometry.h"] = SPDX + "#pragma once\n"

    def verdict(self, path, target):
        found = messages({**self.HEADERS, path: f'{SPDX}#include "{target}"\n'}, path)
        return [m for m in found if "layer" in m or "include" in m]

    def test_up_is_refused_and_down_is_not(self):
        found = self.verdict("base/x.cc", "device/y.h")
        self.assertEqual(found, ["2: layer: base/ may not include device/y.h"])
        found = self.verdict("btree/x.cc", "fs/y.h")
        self.assertEqual(found, ["2: layer: btree/ may not include fs/y.h"])
        for target in ("btree/y.h", "alloc/y.h", "raid56/y.h", "base/y.h", "fs/y.h", "fs/txn/y.h"):
            self.assertEqual(self.verdict("fs/x.cc", target), [])

    def test_folders_in_folders(self):
        self.assertEqual(self.verdict("fs/files/x.cc", "fs/txn/y.h"), [])
        found = self.verdict("fs/txn/x.cc", "fs/files/y.h")
        self.assertEqual(found, ["2: layer: fs/txn/ may not include fs/files/y.h"])
        self.assertEqual(len(self.verdict("fs/txn/x.cc", "fs/y.h")), 1)
        self.assertEqual(len(self.verdict("fs/other/x.cc", "fs/y.h")), 0)
        self.assertEqual(messages({"fs/other/x.cc": SPDX}, "fs/other/x.cc"),
                         ["1: C++ outside the folders of docs/STYLE.md"])

    def test_what_is_simulated_is_for_tests(self):
        self.assertEqual(len(self.verdict("fs/txn/x.cc", "sim/y.h")), 1)
        self.assertEqual(self.verdict("fs/txn/x_test.cc", "sim/y.h"), [])
        self.assertEqual(self.verdict("fs/txn/x_test.cc", "tests/y.h"), [])
        self.assertEqual(self.verdict("bench/x.cc", "sim/y.h"), [])

    def test_exceptions(self):
        self.assertEqual(self.verdict("alloc/x.cc", "raid56/geometry.h"), [])
        self.assertEqual(len(self.verdict("alloc/x.cc", "raid56/y.h")), 1)
        self.assertEqual(self.verdict("fuse/x.cc", "fs/y.h"), [])
        self.assertEqual(len(self.verdict("fuse/x.cc", "device/y.h")), 1)
        self.assertEqual(self.verdict("tools/mount/x.cc", "fuse/y.h"), [])
        self.assertEqual(len(self.verdict("tools/mount/x.cc", "tests/y.h")), 1)
        self.assertEqual(self.verdict("tests/x.cc", "tools/mount/y.h"), [])

    def test_a_commented_include_is_none_and_a_missing_one_is_named(self):
        code = SPDX + '// #include "fs/y.h"\n/*\n#include "fs/y.h"\n*/\n'
        found = messages({**self.HEADERS, "base/x.cc": code}, "base/x.cc")
        self.assertEqual(found, [])
        self.assertEqual(len(self.verdict("base/x.cc", "y.h")), 1)
        self.assertEqual(len(self.verdict("base/x.cc", "base/absent.h")), 1)

    def test_angle_brackets_do_not_hide_a_violation(self):
        path = "base/x.cc"
        self.assertEqual(len(messages({**self.HEADERS, path: SPDX + "#include <fs/y.h>\n"}, path)), 1)

    def test_code_outside_the_layers(self):
        found = messages({"misc/x.cc": SPDX}, "misc/x.cc")
        self.assertEqual(found, ["1: C++ outside the folders of docs/STYLE.md"])


class Documents(unittest.TestCase):
    def test_files_that_a_document_names_exist(self):
        files = {"fs/txn/x.h": SPDX + "#pragma once\n",
                 "docs/A.md": "`fs/txn/x.h` `fs/txn/x` `fs/txn/`\n`fs/txn/y.h` `y.h` `build/x`\n"}
        self.assertEqual(messages(files, "docs/A.md"), ["2: fs/txn/y.h: no such file"])

    def test_readme_of_a_folder_is_short(self):
        for path, lines, found in [("fs/README.md", 60, 0), ("fs/README.md", 61, 1),
                                   ("fs/txn/README.md", 61, 1), ("README.md", 61, 0), ("docs/A.md", 61, 0)]:
            self.assertEqual(len(messages({path: "word\n" * lines}, path)), found, (path, lines))


GLOSSARY = """# Words

| word | meaning |
|---|---|
| row | slice of a stripe |

## Not used

| word | instead |
|---|---|
| judge, weigh up | examine |
"""


class Words(unittest.TestCase):
    def found(self, text, path="fs/x.h"):
        with Tree({"docs/GLOSSARY.md": GLOSSARY, path: text}) as tree:
            sources = [Source(tree.root, path), Source(tree.root, "docs/GLOSSARY.md")]
            return [f"{f.line}: {f.message}" for f in style_rules.check_words(sources, tree.root)]

    def test_words_of_the_last_table_are_found(self):
        self.assertEqual(self.found("a row\n// It judges them.\n"),
                         ["2: judge: say examine (docs/GLOSSARY.md)"])
        self.assertEqual(len(self.found("void judge_rows();\n// Weigh up\n")), 2)
        self.assertEqual(len(self.found("They judged.\n", "docs/A.md")), 1)

    def test_other_words_are_not(self):
        self.assertEqual(self.found("// prejudge, adjudge, weigh, row\n"), [])
        self.assertEqual(self.found("judge\n", "docs/decisions/0001-x.md"), [])


class Tokens(unittest.TestCase):
    BANNED = [
        "assert(a);", "std::function<void()> f;", "std::shared_ptr<T> p;", "std::mutex m;", "throw 1;",
        "std::lock_guard l(m);", "auto* p = dynamic_cast<T*>(q);", "try {", "goto out;", "std::cout << 1;",
        "co_return;", "printf(\"x\");", "std::puts(s);", "fprintf(stderr, s);", "strcpy(a, b);",
        "print_line(stdout, s);",
        "int r = rand();"]
    FINE = [
        "static_assert(sizeof(T) == 4);", "CW_ASSERT(a);", "// throw, try, goto, std::mutex",
        "f(\"try std::mutex\");", "print_line(stderr, s);", "snprintf(b, sizeof b, s);", "pthread_mutex_t m;",
        "bool try_lock();", "prng.rand();", "int entry, retry;", "vsnprintf(a, n, f, v);"]

    def test_banned(self):
        for code in self.BANNED:
            self.assertEqual(len(code_messages(f"{code}\n")), 1, code)

    def test_allowed(self):
        for code in self.FINE:
            self.assertEqual(code_messages(f"{code}\n"), [], code)

    def test_standard_output(self):
        for path in ("bench/x.cc", "tests/sim/x.cc", "fs/x_test.cc", "base/print.cc",
                     "tools/common/report_error.cc"):
            self.assertEqual(code_messages("printf(a);\n", path), [], path)
        self.assertEqual(code_messages("print_line(stdout, a);\n", "tools/common/x.cc"), [])
        self.assertEqual(len(code_messages("fprintf(stderr, a);\n", "tools/common/x.cc")), 1)

    def test_headers(self):
        for header in ("functional", "iostream", "mutex", "ranges", "cassert"):
            self.assertEqual(len(code_messages(f"#include <{header}>\n")), 1, header)
        self.assertEqual(code_messages("#include <vector>\n#include <atomic>\n"), [])

    def test_structures_of_the_disk(self):
        for code in ("DiskLink link;", "f(reinterpret_cast<const DiskInode*>(p));",
                     "size_t a = sizeof(DiskA) + DiskB();"):
            self.assertEqual(len(code_messages(f"{code}\n")), 1, code)
            for path in ("format/x.cc", "btree/x.cc", "fs/x_test.cc", "tests/x.cc"):
                self.assertEqual(code_messages(f"{code}\n", path), [], path)
        for code in ("size_t a = sizeof(DiskLink);", "// a DiskLink", "void give_Disk(Disk& disk);"):
            self.assertEqual(code_messages(f"{code}\n"), [], code)

    def test_unfinished_marks_anywhere(self):
        for mark in ("TO" + "DO", "FIX" + "ME", "XX" + "X", "??" + "?"):
            self.assertEqual(len(code_messages(f"// {mark}: later\n")), 1, mark)
            self.assertEqual(len(messages({"docs/A.md": f"{mark}\n"}, "docs/A.md")), 1, mark)
        template = "#!/bin/sh\n# SPDX-License-Identifier: MIT\nmktemp a.XX" + "XXXX\n"
        self.assertEqual(messages({"s.sh": template}, "s.sh"), [])


class Text(unittest.TestCase):
    def test_licence(self):
        bare = {"fs/x.cc": "int a;\n", "fs/meson.build": "x = 1\n", "scripts/x.py": "a = 1\n",
                "scripts/run": "#!/bin/sh\ntrue\n"}
        for path, text in bare.items():
            self.assertIn("first line must be", messages({path: text}, path)[0])
        ok = "#!/bin/sh\n# SPDX-License-Identifier: MIT\ntrue\n"
        self.assertEqual(messages({"scripts/run": ok}, "scripts/run"), [])

    def test_line_length(self):
        self.assertEqual(len(code_messages("// " + "a" * 107 + "\n")), 0)
        self.assertEqual(len(code_messages("// " + "a" * 108 + "\n")), 1)
        self.assertEqual(len(messages({"A.md": "a" * 160 + "\n"}, "A.md")), 0)
        self.assertEqual(len(messages({"A.md": "a" * 161 + "\n"}, "A.md")), 1)
        self.assertEqual(messages({"A.md": "| " + "a" * 200 + " |\n"}, "A.md"), [])

    def test_file_length(self):
        self.assertEqual(code_messages("int a;\n" * 799), [])
        self.assertIn("file of 801 lines", code_messages("int a;\n" * 800)[0])

    def test_white_space_and_pragma(self):
        self.assertEqual(len(code_messages("int a; \n")), 1)
        self.assertEqual(len(code_messages("int a;")), 1)
        self.assertEqual(len(code_messages("int a;\n", "fs/x.h")), 1)
        self.assertEqual(code_messages("#pragma once\n", "fs/x.h"), [])


class LockTable(unittest.TestCase):
    HEADER = SPDX + "#pragma once\nenum class LockRank {\n    kOne,  // a\n    kTwo,\n};\n"

    def table(self, *ranks):
        rows = "".join(f"| `{rank}` | what |\n" for rank in ranks)
        with Tree({"base/lock_rank.h": self.HEADER, "docs/LOCKING.md": rows}) as tree:
            return [f.message for f in style_rules.check_lock_table(tree.root)]

    def test_complete_missing_unknown_and_misplaced(self):
        self.assertEqual(self.table("kOne", "kTwo"), [])
        self.assertEqual(len(self.table("kOne")), 1)
        self.assertEqual(len(self.table("kOne", "kTwo", "kThree")), 1)
        self.assertEqual(len(self.table("kTwo", "kOne")), 1)

    def test_this_tree_has_ranks(self):
        with open(os.path.join(ROOT, "base/lock_rank.h"), encoding="utf-8") as file:
            self.assertIn("kLeaf", file.read())


class Programs(unittest.TestCase):
    GOOD = {"base/a.h": SPDX + "#pragma once\n\n#include <cstdint>\n\nint32_t f();\n"}

    def test_header_that_needs_another_include(self):
        text = "#pragma once\n\n#include \"base/a.h\"\n\nstd::vector<int> g();\n"
        bad = {"fs/b.h": SPDX + text, **self.GOOD}
        with Tree(bad) as tree:
            sources = [Source(tree.root, path) for path in bad]
            self.assertEqual(style_tools.check_alone(tree.root, sources, ["base/a.h"]), [])
            found = style_tools.check_alone(tree.root, sources, ["base/a.h", "fs/b.h"])
        self.assertEqual([(f.path, f.line) for f in found], [("fs/b.h", 6)])

    def test_headers_that_the_build_compiles_first(self):
        begin = {"fs/a.h": "base/one.h", "fs/x.cc": "fs/a.h", "fs/y.cc": "base/two.h",
                 "base/two.h": "base/one.h", "fs/not_built.cc": "base/three.h", "base/three.h": None,
                 "base/one.h": None}
        files = {path: f'{SPDX}#include "{target}"\n#include "base/four.h"\n' if target else SPDX
                 for path, target in begin.items()}
        files["fs/meson.build"] = "static_library('fs', 'x.cc', 'y.cc')\n"
        with Tree(files) as tree:
            shown = style_tools.headers_shown_by_build([Source(tree.root, path) for path in files])
        self.assertEqual(shown, {"fs/a.h", "base/one.h", "base/two.h"})

    def test_the_script_compiles_a_header_that_no_file_begins_with(self):
        needy = {"base/b.h": SPDX + "#pragma once\n\nstd::vector<int> g();\n",
                 "base/b.cc": SPDX + '#include "base/b.h"\n', **self.GOOD}
        for build, status in (("", 1), (SPDX + "\nstatic_library('base', 'b.cc')\n", 0)):
            with Tree({"base/meson.build": build or f"# {SPDX}", **needy}) as tree:
                run = tree.run("--no-format")
            self.assertEqual("base/b.h:4: does not compile on its own" in run.stdout, status == 1)

    @unittest.skipUnless(style_tools.first_program(style_tools.FORMATTERS), "no clang-format-14")
    def test_formatting(self):
        with Tree({"base/b.h": SPDX + "int   f( );\n", **self.GOOD}) as tree:
            found = style_tools.check_format(tree.root, ["base/a.h", "base/b.h"])
        self.assertEqual([(f.path, f.line) for f in found], [("base/b.h", 2)])

    def test_whole_script(self):
        with Tree(self.GOOD) as tree:
            good = tree.run("--report", "--no-format")
        self.assertEqual(good.returncode, 0, good.stdout + good.stderr)
        self.assertIn("layer violations: 0", good.stdout)
        bad = {"base/b.cc": SPDX + '#include "fs/c.h"\n', "fs/c.h": SPDX + "#pragma once\n", **self.GOOD}
        with Tree(bad) as tree:
            run = tree.run("--report", "--no-format")
            self.assertEqual(tree.run("--no-format", "fs").returncode, 0)
        self.assertEqual(run.returncode, 1)
        self.assertIn("base/b.cc:2: layer: base/ may not include fs/c.h\n", run.stdout)
        self.assertIn("layer violations: 1", run.stdout)

    def test_git_decides_which_files_count(self):
        with Tree({**self.GOOD, "build/x.cc": "int a;\n", ".gitignore": "build\n"}) as tree:
            self.assertNotIn("build/x.cc", list_files(tree.root))
            subprocess.run(["git", "init", "-q", tree.root], check=True)
            self.assertEqual(list_files(tree.root), [".gitignore", "base/a.h"])

    def test_a_share_of_the_files_is_another_one_for_each_commit(self):
        paths = [f"fs/{number}.h" for number in range(300)]
        shares = []
        with Tree(self.GOOD) as tree:
            self.assertEqual(style_tools.share_of(tree.root, paths, 1), paths)
            git = ["git", "-C", tree.root, "-c", "user.name=n", "-c", "user.email=n@example.org"]
            subprocess.run(["git", "init", "-q", tree.root], check=True)
            for number in range(12):
                subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", str(number)], check=True)
                shares.append(style_tools.share_of(tree.root, paths, 3))
                self.assertEqual(style_tools.share_of(tree.root, paths, 3), shares[-1])
        self.assertTrue(all(50 < len(share) < 150 for share in shares))
        self.assertGreater(len({path for share in shares for path in share}), 280)


if __name__ == "__main__":
    unittest.main()
