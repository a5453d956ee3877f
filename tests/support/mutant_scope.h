// SPDX-License-Identifier: MIT
#pragma once

#include "base/assert.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid::test {

// While it exists every volume of this process follows a wrong protocol. Begins and ends while no volume is
// in use by another thread. Without -Dmutants=true there is only the right one.
class MutantScope {
public:
#ifdef COWRAID_MUTANTS
    explicit MutantScope(CommitMutant mutant) : before_(chosen_mutant.exchange(mutant)) { }
    ~MutantScope()
    {
        chosen_mutant = before_;
    }
#else
    explicit MutantScope(CommitMutant mutant)
    {
        CW_ASSERT(mutant == CommitMutant::kNone);
    }
    ~MutantScope() { }
#endif
    MutantScope(const MutantScope&) = delete;
    MutantScope& operator=(const MutantScope&) = delete;

private:
#ifdef COWRAID_MUTANTS
    const CommitMutant before_;
#endif
};

}  // namespace cowraid::test
