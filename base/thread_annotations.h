// SPDX-License-Identifier: MIT
// Names for clang's thread-safety attributes; empty elsewhere.
#pragma once

#if defined(__clang__)
#define CW_ATTRIBUTE(x) __attribute__((x))
#else
#define CW_ATTRIBUTE(x)
#endif

#define CW_CAPABILITY(x) CW_ATTRIBUTE(capability(x))
#define CW_SCOPED_CAPABILITY CW_ATTRIBUTE(scoped_lockable)
#define CW_GUARDED_BY(x) CW_ATTRIBUTE(guarded_by(x))
#define CW_ACQUIRE(...) CW_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define CW_ACQUIRE_SHARED(...) CW_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define CW_RELEASE(...) CW_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
#define CW_RELEASE_SHARED(...) CW_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define CW_TRY_ACQUIRE(...) CW_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define CW_REQUIRES(...) CW_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define CW_REQUIRES_SHARED(...) CW_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define CW_ASSERT_HELD(...) CW_ATTRIBUTE(assert_capability(__VA_ARGS__))
#define CW_ASSERT_HELD_SHARED(...) CW_ATTRIBUTE(assert_shared_capability(__VA_ARGS__))
#define CW_NO_THREAD_SAFETY_ANALYSIS CW_ATTRIBUTE(no_thread_safety_analysis)
