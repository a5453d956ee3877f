# SPDX-License-Identifier: MIT
"""Reads the tree's files and measures C++ function bodies; knows no rules."""

import os
import re
import subprocess
from collections import namedtuple

Function = namedtuple("Function", "path line name lines")
Include = namedtuple("Include", "line target quoted")
Token = namedtuple("Token", "text line")

CPP_SUFFIXES = (".h", ".cc")
TYPE_KEYWORDS = {"class", "struct", "union", "enum"}
SPECIFIERS = {"typedef", "static", "const", "constexpr", "inline", "friend", "extern"}
QUALIFIERS = {"const", "noexcept", "override", "final", "mutable", "volatile", "&"}

LITERAL = re.compile(
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)"
    r'|(?P<raw>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")'
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<char>(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+')",
    re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
MACRO = re.compile(r"[A-Z][A-Z0-9_]+")
TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.\']*|""|::|->|[-+*/%&|^=!<>]=|[^\s\w]')


def list_files(root):
    """Tracked plus untracked, unignored files; every file below root where git has no say."""
    command = ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        output = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        names = [name for name in output.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = list(walk_files(root))
    return sorted({name for name in names if os.path.isfile(os.path.join(root, name))})


def walk_files(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f == ".ci" or not f.startswith((".", "build", "__pycache__"))]
        for name in files:
            yield os.path.relpath(os.path.join(folder, name), root)


def blank(text, keep=""):
    """Spaces of the same shape, so that line numbers stay; `keep` replaces the first characters."""
    spaces = re.sub(r"[^\n]", " ", text)
    return keep + spaces[len(keep):] if len(spaces) >= len(keep) else spaces


class Source:
    """One text file; for C++ also without comments (`uncommented`) and without literals (`code`)."""

    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.lines = self.text.splitlines()
        self.is_cpp = path.endswith(CPP_SUFFIXES)
        if self.is_cpp:
            self.uncommented = LITERAL.sub(self._blank_comment, self.text)
            self.code = LITERAL.sub(self._blank_literal, self.text)

    @property
    def folder(self):
        return self.path.split("/")[0] if "/" in self.path else ""

    @property
    def is_test(self):
        return self.folder == "tests" or self.path.endswith("_test.cc")

    @staticmethod
    def _blank_comment(match):
        return blank(match.group()) if match.group("comment") else match.group()

    @staticmethod
    def _blank_literal(match):
        if match.group("comment"):
            return blank(match.group())
        return blank(match.group(), "' '" if match.group("char") else '""')

    def includes(self):
        for match in INCLUDE.finditer(self.uncommented):
            line = self.uncommented.count("\n", 0, match.start(1)) + 1
            yield Include(line, match.group(2), match.group(1) == '"')

    def functions(self):
        return FunctionScanner(self.path, tokens_of(without_preprocessor(self.code))).scan()


def without_preprocessor(code):
    """Blanks directives and every branch but the first of a conditional, so that braces balance."""
    result = []
    taken = []  # one entry per open conditional: is its present branch kept?
    continued = False
    for line in code.split("\n"):
        directive = continued or line.lstrip().startswith("#")
        if directive and not continued:
            track_conditional(line.lstrip()[1:].lstrip(), taken)
        result.append("" if directive or not all(taken) else line)
        continued = directive and line.endswith("\\")
    return "\n".join(result)


def track_conditional(directive, taken):
    if directive.startswith("if"):
        taken.append(True)
    elif directive.startswith(("else", "elif")) and taken:
        taken[-1] = False
    elif directive.startswith("endif") and taken:
        taken.pop()


def tokens_of(code):
    for number, line in enumerate(code.split("\n"), 1):
        for match in TOKEN.finditer(line):
            yield Token(match.group(), number)


class FunctionScanner:
    """Walks tokens at namespace and class scope and reports each function body it meets.

    `head` holds the tokens since the last boundary: what stands before a `{` tells what it opens.
    A lambda or a local type is part of the function around it.
    """

    def __init__(self, path, tokens):
        self.path = path
        self.tokens = iter(tokens)
        self.head = []
        self.parens = 0
        self.found = []

    def scan(self):
        for token in self.tokens:
            self.take(token)
        return self.found

    def take(self, token):
        if token.text == "{":
            self.open_brace(token)
        elif token.text == "}" or (token.text == ";" and self.parens == 0):
            self.head = []
            self.parens = 0
        elif token.text == ":" and self.head and self.head[-1].text in ("public", "private", "protected"):
            self.head = []
        else:
            self.parens += (token.text in "([") - (token.text in ")]")
            self.head.append(token)

    def open_brace(self, token):
        texts = [t.text for t in self.head]
        kind = "value" if self.parens > 0 else classify(texts)
        if kind == "scope":
            self.head = []
            return
        last = self.skip_braces(token)
        if kind == "value":
            self.head.append(Token("}", last))
            return
        first = self.head[0].line
        self.found.append(Function(self.path, first, function_name(texts), last - first + 1))
        self.head = []

    def skip_braces(self, opening):
        """Consumes up to the matching brace and returns its line."""
        depth, line = 1, opening.line
        while depth > 0:
            token = next(self.tokens, None)
            if token is None:
                break
            line = token.line
            depth += (token.text == "{") - (token.text == "}")
        return line


def classify(head):
    """What a `{` after these tokens opens: a "function" body, a "scope", or a "value"."""
    head = without_prefix(head)
    if "namespace" in head or head == ["extern", '""']:
        return "scope"
    equals = top_level(head, lambda i: head[i] == "=" and head[i - 1] != "operator")
    if equals:
        return "function" if head[equals[0] + 1:equals[0] + 2] == ["["] else "value"
    if opens_type(head):
        return "scope"
    return "function" if opens_function(head) else "value"


def without_prefix(head):
    """Drops `template <...>` and `[[...]]` in front of a declaration."""
    while head[:1] == ["template"] or head[:2] == ["[", "["]:
        opening, closing = ("<", ">") if head[0] == "template" else ("[", "]")
        depth, end = 0, 0
        for end, text in enumerate(head):
            depth += (text == opening) - (text == closing)
            if depth == 0 and text == closing:
                break
        head = head[end + 1:]
    return head


def top_level(head, wanted):
    """Indices outside parentheses where wanted(index) holds."""
    depth, found = 0, []
    for index, text in enumerate(head):
        depth -= text in (")", "]")
        if depth == 0 and wanted(index):
            found.append(index)
        depth += text in ("(", "[")
    return found


def opens_type(head):
    start = next((i for i, text in enumerate(head) if text not in SPECIFIERS), len(head))
    if head[start:start + 1] == [] or head[start] not in TYPE_KEYWORDS:
        return False
    plain = " ".join(head[start:])
    plain = re.sub(r"\b(alignas|__attribute__|[A-Z][A-Z_]+)( \( [^()]*(\([^()]*\) )*\))", "", plain)
    return not opens_function(plain.split())


def opens_function(head):
    closes = top_level(head, lambda i: head[i] == ")")
    if not closes:
        return False
    if any(index > closes[0] for index in top_level(head, lambda i: head[i] == ":")):
        return head[-1] in (")", "}")  # a constructor's initialisers end before its body
    tail = head[closes[-1] + 1:]
    return tail[:1] in (["->"], ["requires"]) or all(is_qualifier(text) for text in tail)


def is_qualifier(text):
    """What may stand between a parameter list and its body: keywords, and macros of attributes."""
    return text in QUALIFIERS or MACRO.fullmatch(text) is not None


def function_name(head):
    head = without_prefix(head)
    if "operator" in head:
        start = head.index("operator")
        return "".join(head[start:start + 3])
    opening = head.index("(") if "(" in head else len(head)
    start = opening - 1
    while start >= 2 and head[start - 1] == "::":
        start -= 2
    return "".join(head[max(start, 0):opening]) or "lambda"
