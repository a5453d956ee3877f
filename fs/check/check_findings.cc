// SPDX-License-Identifier: MIT
#include "fs/check/check_findings.h"

#include <utility>

#include "base/print.h"

namespace cowraid {

std::string check_text(const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    std::string text = text_format_list(format, arguments);
    va_end(arguments);
    return text;
}

void Findings::add(CheckFinding finding)
{
    Count& count = counts_[finding.kind];
    if (++count.findings <= kListedMax)
        report_.findings.push_back(std::move(finding));
    else
        count.all_left_out_repairable = count.all_left_out_repairable && finding.repairable;
}

void Findings::add(const char* kind, VolumeAddress address, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add({.kind = kind, .text = text_format_list(format, arguments), .address = address.value});
    va_end(arguments);
}

void Findings::close()
{
    for (const auto& [kind, count] : counts_)
        if (count.findings > kListedMax)
            report_.findings.push_back({.kind = kind,
                                        .text = check_text("%llu more findings of this kind are not listed",
                                                           as_ull(count.findings - kListedMax)),
                                        .repairable = count.all_left_out_repairable});
}

}  // namespace cowraid
