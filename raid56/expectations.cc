// SPDX-License-Identifier: MIT
#include "raid56/expectations.h"

#include <algorithm>

namespace cowraid {

void Expectations::add(const ArrayGroup& group, const BlockPlace& place, BlockExpectation* out)
{
    questions_.push_back({&group, address_of(group, place), out});
}

void Expectations::ask(BlockVerifier* verifier)
{
    if (verifier == nullptr) {
        for (const Question& question : questions_)
            *question.out = {};
        return;
    }
    std::sort(questions_.begin(), questions_.end(),
              [](const Question& a, const Question& b) { return a.address < b.address; });
    std::vector<BlockExpectation> answers;
    for (size_t first = 0; first < questions_.size();) {
        // A block may be asked for twice; the run then covers it once.
        size_t end = first + 1;
        while (end < questions_.size() && questions_[end].group == questions_[first].group &&
               questions_[end].address - questions_[end - 1].address <= kBlockBytes)
            ++end;
        const VolumeAddress begin = questions_[first].address;
        answers.assign((questions_[end - 1].address - begin) / kBlockBytes + 1, {});
        verifier->expect(begin, answers);
        for (; first < end; ++first)
            *questions_[first].out = answers[(questions_[first].address - begin) / kBlockBytes];
    }
}

}  // namespace cowraid
