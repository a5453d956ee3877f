// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "base/print.h"
#include "tests/support/capture.h"

using namespace cowraid;

TEST_CASE("text from elsewhere cannot drive a terminal or forge a line")
{
    CHECK(printable("a\x1b[31mb\\\n") == "a\\x1b[31mb\\\\x0a");
    CHECK(printable("\xff") == "\\xff");
    CHECK(printable("Müll 東京 🗄") == "Müll 東京 🗄");
    // A control character, a bidirectional override, an overlong form, a surrogate, a cut character.
    CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");
    CHECK(printable("a\u202eb") == "a\\xe2\\x80\\xaeb");
    CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");
    CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");
    CHECK(printable("\xe6\x9d") == "\\xe6\\x9d");
    CHECK(printable("\xf5\x80\x80\x80z") == "\\xf5\\x80\\x80\\x80z");
    // What is printable stays as it is.
    CHECK(printable(printable("a\x1b\n\t\\")) == printable("a\x1b\n\t\\"));
}

TEST_CASE("a printed line is one line")
{
    Captured captured;
    print_line(stderr, "file '%s' is lost", "a\nResult: clean\x1b[2J");
    print_empty_line(stderr);
    CHECK(captured.text() == "file 'a\\x0aResult: clean\\x1b[2J' is lost\n\n");
    CHECK(line_text("file '%s'", "a\nb") == "file 'a\\x0ab'\n");
}
