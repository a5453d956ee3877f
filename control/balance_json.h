// SPDX-License-Identifier: MIT
// BalanceStatus as JSON and back.
#pragma once

#include "control/json.h"
#include "fs/maintain/balance.h"

namespace cowraid {

Json encode_balance(const BalanceStatus& status);
// kInvalid when it is not such an object.
Result<BalanceStatus> decode_balance(const json_t* object);

}  // namespace cowraid
