// SPDX-License-Identifier: MIT
// Asking the verifier about scattered blocks in as few calls as possible.
#pragma once

#include <vector>

#include "raid56/array_state.h"

namespace cowraid {

// Usage: add() everything, ask() once. No array lock may be held.
class Expectations {
public:
    // `out` receives the answer; it must stay where it is until ask() returns.
    void add(const ArrayGroup& group, const BlockPlace& place, BlockExpectation* out);
    // One call per run of adjoining addresses of a group. Without a verifier nothing is known.
    void ask(BlockVerifier* verifier);

private:
    struct Question {
        const ArrayGroup* group;
        VolumeAddress address;
        BlockExpectation* out;
    };
    std::vector<Question> questions_;
};

}  // namespace cowraid
