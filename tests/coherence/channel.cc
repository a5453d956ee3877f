// SPDX-License-Identifier: MIT
#include "tests/coherence/channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cowraid::test {

namespace {

void must(bool good, const char* what)
{
    if (good)
        return;
    printf("%s: %s\n", what, strerror(errno));
    exit(2);
}

int open_flags(Way way, Channel::Use use)
{
    switch (way) {
    case Way::kDirect:
    case Way::kAio:
        return (use == Channel::Use::kRead ? O_RDONLY : O_RDWR) | O_DIRECT;
    case Way::kWriteOnly:
        return O_WRONLY;
    default:
        return use == Channel::Use::kRead ? O_RDONLY : O_RDWR;
    }
}

// Word by word, so that neither side tears one.
void copy_words(void* to, const void* from, size_t bytes)
{
    auto* target = static_cast<volatile uint64_t*>(to);
    const auto* source = static_cast<const volatile uint64_t*>(from);
    for (size_t word = 0; word < bytes / sizeof(uint64_t); ++word)
        target[word] = source[word];
}

}  // namespace

Channel::Channel(const std::string& path, Way way, Use use)
    : way_(way), file_(open(path.c_str(), open_flags(way, use) | O_CLOEXEC)), requests_(kAioDepth)
{
    must(file_.valid(), "open");
    if (way == Way::kMapped) {
        void* const at = mmap(nullptr, kFileBytes, use == Use::kRead ? PROT_READ : PROT_READ | PROT_WRITE,
                              MAP_SHARED, file_.get(), 0);
        must(at != MAP_FAILED, "mmap");
        mapping_ = static_cast<std::byte*>(at);
    }
    if (way == Way::kAio)
        must(syscall(SYS_io_setup, kAioDepth, &context_) == 0, "io_setup");
}

Channel::~Channel()
{
    if (mapping_ != nullptr)
        munmap(mapping_, kFileBytes);
    if (context_ != 0)
        syscall(SYS_io_destroy, context_);
}

void Channel::read(Run run, std::span<std::byte> data)
{
    const auto bytes = static_cast<ssize_t>(run.bytes());
    const auto offset = static_cast<off_t>(run.offset());
    if (way_ == Way::kMapped) {
        copy_words(data.data(), mapping_ + run.offset(), run.bytes());
    } else if (way_ == Way::kAio) {
        iocb& request = requests_[0];
        request = {};
        request.aio_lio_opcode = IOCB_CMD_PREAD;
        request.aio_fildes = static_cast<uint32_t>(file_.get());
        request.aio_buf = reinterpret_cast<uint64_t>(data.data());
        request.aio_nbytes = run.bytes();
        request.aio_offset = offset;
        submit_one(request);
        (void)reap();
    } else {
        must(pread(file_.get(), data.data(), run.bytes(), offset) == bytes, "pread");
    }
}

void Channel::write(Run run, std::span<const std::byte> data)
{
    if (way_ == Way::kMapped)
        copy_words(mapping_ + run.offset(), data.data(), run.bytes());
    else
        must(pwrite(file_.get(), data.data(), run.bytes(), static_cast<off_t>(run.offset())) ==
                 static_cast<ssize_t>(run.bytes()),
             "pwrite");
}

void Channel::submit(Run run, std::span<const std::byte> data, uint64_t tag)
{
    iocb& request = requests_[tag];
    request = {};
    request.aio_data = tag;
    request.aio_lio_opcode = IOCB_CMD_PWRITE;
    request.aio_fildes = static_cast<uint32_t>(file_.get());
    request.aio_buf = reinterpret_cast<uint64_t>(data.data());
    request.aio_nbytes = run.bytes();
    request.aio_offset = static_cast<int64_t>(run.offset());
    submit_one(request);
}

void Channel::submit_one(iocb& request)
{
    iocb* list[] = {&request};
    must(syscall(SYS_io_submit, context_, 1, list) == 1, "io_submit");
}

std::vector<uint64_t> Channel::reap()
{
    io_event events[kAioDepth];
    const long count = syscall(SYS_io_getevents, context_, 1, kAioDepth, events, nullptr);
    must(count > 0, "io_getevents");
    std::vector<uint64_t> tags;
    for (long i = 0; i < count; ++i) {
        errno = static_cast<int>(-events[i].res);
        must(events[i].res == static_cast<int64_t>(requests_[events[i].data].aio_nbytes), "asynchronous I/O");
        tags.push_back(events[i].data);
    }
    return tags;
}

}  // namespace cowraid::test
