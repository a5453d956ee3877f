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

MallocBytes malloc_bytes()
{
    MallocBytes bytes;
#ifdef COWRAID_TCMALLOC
    size_t heap = 0, unmapped = 0;
    MallocExtension_GetNumericProperty("generic.heap_size", &heap);
    MallocExtension_GetNumericProperty("tcmalloc.pageheap_unmapped_bytes", &unmapped);
    MallocExtension_GetNumericProperty("tcmalloc.pageheap_free_bytes", &bytes.free);
    bytes.held = heap - unmapped;
#endif
    return bytes;
}

void malloc_limit_caches([[maybe_unused]] size_t bytes)
{
#ifdef COWRAID_TCMALLOC
    constexpr const char* kLimit = "tcmalloc.max_total_thread_cache_bytes";
    size_t most = 0;
    if (MallocExtension_GetNumericProperty(kLimit, &most) != 0 && bytes < most)
        MallocExtension_SetNumericProperty(kLimit, bytes);
#endif
}

}  // namespace cowraid
