// SPDX-License-Identifier: MIT
// A pointer that owns, null until it is set, while other threads look at it.
#pragma once

#include <atomic>
#include <memory>

#include "base/assert.h"

namespace cowraid {

// One thread sets it, once; any thread reads it. Ends with its owner, when nobody reads it any more.
template <typename T> class SetOnce {
public:
    SetOnce() = default;
    ~SetOnce() { delete get(); }
    SetOnce(const SetOnce&) = delete;
    SetOnce& operator=(const SetOnce&) = delete;

    void set(std::unique_ptr<T> object)
    {
        CW_ASSERT(!*this);
        object_.store(object.release(), std::memory_order_release);
    }
    [[nodiscard]] T* get() const { return object_.load(std::memory_order_acquire); }
    T* operator->() const { return get(); }
    T& operator*() const { return *get(); }
    explicit operator bool() const { return get() != nullptr; }

private:
    std::atomic<T*> object_{nullptr};
};

}  // namespace cowraid
