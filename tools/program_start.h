// SPDX-License-Identifier: MIT
// What a program inherits from who starts it and cannot work with.
#pragma once

namespace cowraid {

// First in main(), before anything is opened. Opens /dev/null on closed standard descriptors: a member opened
// there would receive messages. Raises the limit of file sizes as far as allowed: members may be image files.
void mend_inherited_state();

}  // namespace cowraid
