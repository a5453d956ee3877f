// SPDX-License-Identifier: MIT
#include "base/malloc_release.h"

#ifdef COWRAID_TCMALLOC
#include <gperftools/malloc_extension_c.h>
#else
#include <malloc.h>
#endif

namespace cowraid {

void malloc_release()
{
#ifdef COWRAID_TCMALLOC
    MallocExtension_ReleaseFreeMemory();
#else
    malloc_trim(0);
#endif
}

}  // namespace cowraid
