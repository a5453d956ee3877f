// SPDX-License-Identifier: MIT
#include "base/status.h"

#include <cerrno>

namespace cowraid {

const char* err_text(Err err)
{
    switch (err) {
#define COWRAID_ERR_TEXT(name, number, text)                                                                 \
    case Err::name:                                                                                          \
        return text;
        COWRAID_ERRORS(COWRAID_ERR_TEXT)
#undef COWRAID_ERR_TEXT
    }
    return "unknown error";
}

int err_to_errno(Err err)
{
    switch (err) {
#define COWRAID_ERR_NUMBER(name, number, text)                                                               \
    case Err::name:                                                                                          \
        return number;
        COWRAID_ERRORS(COWRAID_ERR_NUMBER)
#undef COWRAID_ERR_NUMBER
    }
    return EIO;
}

}  // namespace cowraid
