// SPDX-License-Identifier: MIT
#include "base/log.h"

// What is wrong with an input is for the sanitizers and the asserts to say.
extern "C" int LLVMFuzzerInitialize(int* argument_count, char*** arguments);

extern "C" int LLVMFuzzerInitialize(int* /*argument_count*/, char*** /*arguments*/)
{
    cowraid::log_set_level(cowraid::LogLevel::kError);
    return 0;
}
