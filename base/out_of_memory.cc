// SPDX-License-Identifier: MIT
#include "base/out_of_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <new>

#include "base/log.h"
#include "base/sanitizer.h"
#include "base/units.h"

namespace cowraid {

namespace {

int code_at_end = 1;
uint64_t bytes_allowed = 0;  // 0: no limit of ours
const char* step_at_limit = "";

}  // namespace

void out_of_memory()
{
    std::set_new_handler([] { _exit(code_at_end); });  // should the line want memory
    char text[200];
    if (bytes_allowed != 0)
        snprintf(text, sizeof text, "out of memory: %llu MiB are allowed; %s",
                 static_cast<unsigned long long>(bytes_allowed / kMiB), step_at_limit);
    else
        snprintf(text, sizeof text, "out of memory: the system gives no more");
    log_last_words(text);
    _exit(code_at_end);
}

void end_when_out_of_memory(int exit_code)
{
    code_at_end = exit_code;
    std::set_new_handler(out_of_memory);
}

uint64_t usual_memory_bytes()
{
    const uint64_t machine =
        static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return machine / 4 * 3;
}

bool limit_memory(uint64_t bytes, const char* next_step)
{
    if (kSanitized || (bytes_allowed != 0 && bytes >= bytes_allowed))
        return true;
    const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
    if (setrlimit(RLIMIT_DATA, &limit) != 0)
        return false;
    bytes_allowed = bytes;
    step_at_limit = next_step;
    return true;
}

}  // namespace cowraid
