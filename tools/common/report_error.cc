// SPDX-License-Identifier: MIT
#include "tools/common/report_error.h"

#include <cstdio>
#include <cstring>

#include "base/print.h"
#include "control/volume_json.h"

namespace cowraid {

Status invalid(std::string& why, std::string text)
{
    why = std::move(text);
    return Err::kInvalid;
}

void print_json(const json_t* value)
{
    fputs((json_print(value, JsonStyle::kIndented) + "\n").c_str(), stdout);
}

void print_error(const char* program, OutputFormat format, Err err, const std::string& why)
{
    const std::string text = why.empty() ? err_text(err) : why;
    print_line(stderr, "%s: %s", program, text.c_str());
    if (format != OutputFormat::kJson)
        return;
    const char* const code = strerrorname_np(err_to_errno(err));
    Json error = json_make_object();
    json_put_text(error.get(), "code", code != nullptr ? code : "EIO");
    json_put_text(error.get(), "message", text);
    Json out = json_with_schema("error");
    json_put(out.get(), "error", std::move(error));
    print_json(out.get());
}

void print_warning(const char* program, const std::string& text)
{
    print_line(stderr, "%s: warning: %s", program, text.c_str());
}

}  // namespace cowraid
