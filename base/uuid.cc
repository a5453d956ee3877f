// SPDX-License-Identifier: MIT
#include "base/uuid.h"

#include <uuid/uuid.h>

namespace cowraid {

Uuid uuid_random()
{
    Uuid uuid;
    uuid_generate_random(uuid.bytes.data());
    return uuid;
}

std::string uuid_text(const Uuid& uuid)
{
    char text[UUID_STR_LEN];
    uuid_unparse_lower(uuid.bytes.data(), text);
    return text;
}

Result<Uuid> uuid_parse(std::string_view text)
{
    Uuid uuid;
    if (uuid_parse_range(text.data(), text.data() + text.size(), uuid.bytes.data()) != 0)
        return Err::kInvalid;
    return uuid;
}

}  // namespace cowraid
