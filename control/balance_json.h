// SPDX-License-Identifier: MIT
// BalanceStatus and BalancePlan as JSON and back.
#pragma once

#include "control/json.h"
#include "fs/maintain/balance.h"

namespace cowraid {

Json encode_balance(const BalanceStatus& status);
// kInvalid when it is not such an object.
Result<BalanceStatus> decode_balance(const json_t* object);

Json encode_filter(const BalanceFilter& filter);
BalanceFilter decode_filter(const json_t* object);  // null: one that leaves nothing out

Json encode_plan(const BalancePlan& plan);
// kInvalid when it is not such an object.
Result<BalancePlan> decode_plan(const json_t* object);

}  // namespace cowraid
