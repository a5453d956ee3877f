// SPDX-License-Identifier: MIT
// Intrusive shared ownership: an object derives from RefCounted<T>, holders keep a Ref<T>.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace cowraid {

template <typename T> class RefCounted {
public:
    void ref() const { references_.fetch_add(1, std::memory_order_relaxed); }
    void unref() const
    {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete static_cast<const T*>(this);
    }
    // A hint while others may still take references.
    [[nodiscard]] uint32_t reference_count() const { return references_.load(std::memory_order_acquire); }

protected:
    RefCounted() = default;
    ~RefCounted() = default;
    RefCounted(const RefCounted&) = delete;
    RefCounted& operator=(const RefCounted&) = delete;

private:
    mutable std::atomic<uint32_t> references_{0};
};

template <typename T> class Ref {
public:
    Ref() = default;
    explicit Ref(T* object) : object_(object)
    {
        if (object_ != nullptr)
            object_->ref();
    }
    Ref(const Ref& other) : Ref(other.object_) { }
    Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) { }
    Ref& operator=(Ref other) noexcept
    {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Ref() { reset(); }

    void reset()
    {
        if (object_ != nullptr)
            std::exchange(object_, nullptr)->unref();
    }
    [[nodiscard]] T* get() const { return object_; }
    T* operator->() const { return object_; }
    T& operator*() const { return *object_; }
    explicit operator bool() const { return object_ != nullptr; }
    friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }

private:
    T* object_ = nullptr;
};

template <typename T, typename... Arguments> Ref<T> make_ref(Arguments&&... arguments)
{
    return Ref<T>(new T(std::forward<Arguments>(arguments)...));
}

}  // namespace cowraid
