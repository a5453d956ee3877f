// SPDX-License-Identifier: MIT
#include "fs/check_findings.h"

#include <cstdio>
#include <utility>

namespace cowraid {

namespace {

[[gnu::format(printf, 1, 0)]] std::string text_of(const char* format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(nullptr, 0, format, again);
    va_end(again);
    std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
    vsnprintf(text.data(), text.size() + 1, format, arguments);
    return text;
}

}  // namespace

std::string check_text(const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    std::string text = text_of(format, arguments);
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
    add({.kind = kind, .text = text_of(format, arguments), .address = address.value});
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
