// SPDX-License-Identifier: MIT
// Errors as values. A Status or Result must be looked at: dropping one is a compile error.
#pragma once

#include <cstdint>
#include <new>
#include <utility>

#include "base/assert.h"

namespace cowraid {

// Every error the program knows: name, errno at the FUSE boundary, text.
// kCorrupt and kTooManyFaults both reach applications as EIO; they differ in what is counted and logged.
#define COWRAID_ERRORS(X)                                                                                    \
    X(kOk, 0, "success")                                                                                     \
    X(kIo, EIO, "input/output error")                                                                        \
    X(kCorrupt, EIO, "checksum or structure is wrong")                                                       \
    X(kTooManyFaults, EIO, "too many members are faulty")                                                    \
    X(kMemberGone, EIO, "member is not present")                                                             \
    X(kShutdown, EIO, "filesystem stopped after an error")                                                   \
    X(kNotFound, ENOENT, "no such file or directory")                                                        \
    X(kExists, EEXIST, "already exists")                                                                     \
    X(kNotDirectory, ENOTDIR, "not a directory")                                                             \
    X(kIsDirectory, EISDIR, "is a directory")                                                                \
    X(kNotEmpty, ENOTEMPTY, "directory not empty")                                                           \
    X(kNameTooLong, ENAMETOOLONG, "name too long")                                                           \
    X(kNoSpace, ENOSPC, "no space left")                                                                     \
    X(kFileTooBig, EFBIG, "file too large")                                                                  \
    X(kReadOnly, EROFS, "read-only filesystem")                                                              \
    X(kInvalid, EINVAL, "invalid argument")                                                                  \
    X(kNotPermitted, EPERM, "operation not permitted")                                                       \
    X(kAccess, EACCES, "permission denied")                                                                  \
    X(kTooManyLinks, EMLINK, "too many links")                                                               \
    X(kNoData, ENODATA, "no such attribute")                                                                 \
    X(kRange, ERANGE, "result does not fit")                                                                 \
    X(kTooBig, E2BIG, "argument too large")                                                                  \
    X(kBusy, EBUSY, "busy")                                                                                  \
    X(kNoMemory, ENOMEM, "out of memory")                                                                    \
    X(kNoThread, EAGAIN, "no thread could be started; raise the limit of processes (ulimit -u, pids.max)")   \
    X(kUnsupported, EOPNOTSUPP, "not supported")                                                             \
    X(kStale, ESTALE, "stale handle")                                                                        \
    X(kInterrupted, EINTR, "interrupted")                                                                    \
    X(kWouldWait, EAGAIN, "would have to wait")

enum class Err : uint8_t {
#define COWRAID_ERR_ENUM(name, number, text) name,
    COWRAID_ERRORS(COWRAID_ERR_ENUM)
#undef COWRAID_ERR_ENUM
};

// Static text of an error; never null.
const char* err_text(Err err);
// The errno an application sees for it (0 for kOk).
int err_to_errno(Err err);

class [[nodiscard]] Status {
public:
    constexpr Status() = default;
    constexpr Status(Err err) : err_(err) { }  // NOLINT: implicit by intent, `return Err::kIo;`

    [[nodiscard]] constexpr bool ok() const { return err_ == Err::kOk; }
    [[nodiscard]] constexpr Err err() const { return err_; }
    // For the few places where a failure is already handled or cannot matter; say why beside the call.
    constexpr void ignore() const { }

    friend constexpr bool operator==(Status a, Status b) { return a.err_ == b.err_; }

private:
    Err err_ = Err::kOk;
};

// Either a value or an error. Asking for the value of an error aborts.
template <typename T> class [[nodiscard]] Result {
public:
    Result(T value) : err_(Err::kOk) { new (&storage_.value) T(std::move(value)); }  // NOLINT
    Result(Err err) : err_(err) { CW_ASSERT(err != Err::kOk); }  // NOLINT
    Result(Status status) : Result(status.err()) { }  // NOLINT
    Result(Result&& other) noexcept : err_(other.err_)
    {
        if (ok())
            new (&storage_.value) T(std::move(other.storage_.value));
    }
    Result& operator=(Result&& other) noexcept
    {
        if (this != &other) {
            destroy();
            err_ = other.err_;
            if (ok())
                new (&storage_.value) T(std::move(other.storage_.value));
        }
        return *this;
    }
    Result(const Result&) = delete;
    Result& operator=(const Result&) = delete;
    ~Result() { destroy(); }

    [[nodiscard]] bool ok() const { return err_ == Err::kOk; }
    [[nodiscard]] Err err() const { return err_; }
    [[nodiscard]] Status status() const { return err_; }

    T& value()
    {
        CW_ASSERT(ok());
        return storage_.value;
    }
    const T& value() const
    {
        CW_ASSERT(ok());
        return storage_.value;
    }
    T& operator*() { return value(); }
    const T& operator*() const { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T take() { return std::move(value()); }

private:
    void destroy()
    {
        if (ok())
            storage_.value.~T();
    }

    union Storage {
        Storage() { }
        ~Storage() { }
        T value;
    } storage_;
    Err err_;
};

// Returns early with the error of a Status or Result expression.
#define CW_TRY(expression)                                                                                   \
    do {                                                                                                     \
        if (auto cw_try_ = (expression); !cw_try_.ok())                                                      \
            return cw_try_.err();                                                                            \
    } while (false)

#define CW_CONCAT_(a, b) a##b
#define CW_CONCAT(a, b) CW_CONCAT_(a, b)
// CW_ASSIGN(auto x, f()): returns early with f()'s error, else binds its value.
#define CW_ASSIGN(lhs, expression)                                                                           \
    auto CW_CONCAT(cw_result_, __LINE__) = (expression);                                                     \
    if (!CW_CONCAT(cw_result_, __LINE__).ok())                                                               \
        return CW_CONCAT(cw_result_, __LINE__).err();                                                        \
    lhs = std::move(*CW_CONCAT(cw_result_, __LINE__))

}  // namespace cowraid
