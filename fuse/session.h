// SPDX-License-Identifier: MIT
// Serves one mounted FUSE file system from a Filesystem.
#pragma once

#include <atomic>
#include <memory>

#include "base/status.h"
#include "base/unique_fd.h"
#include "fs/filesystem.h"
#include "fuse/page_dropper.h"

namespace cowraid {

struct Frontend;

struct SessionOptions {
    InodeNumber root;  // of the volume: node id 1
    PageDropperHost& page_dropper_host;  // must outlive the session
    // Threads are started when requests wait, up to this number. Generous, because a request that reads
    // members holds its thread. They stay: one that ends takes its ring along (device/ring.h), and the next
    // one makes another.
    uint32_t max_threads = 64;
};

class Session {
public:
    // `filesystem` must outlive the session. kIo when libfuse refuses.
    static Result<std::unique_ptr<Session>> create(Filesystem& filesystem, const SessionOptions& options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // What works beside those that serve. Once, before serve(); kNoThread: there were not enough threads.
    Status start_threads();
    // Serves the connection `fuse_fd` (an opened and mounted /dev/fuse) until it is unmounted or stop() is
    // called. Once. kIo when the connection cannot be served.
    Status serve(UniqueFd fuse_fd);
    // After serve(), or instead of it: waits for requests that wait for a commit. Filesystem::close() comes
    // first; the filesystem may go afterwards.
    void finish_requests();
    // After finish_requests(): closes the connection. An umount(2) that waits for this daemon returns.
    void disconnect();
    // Makes serve() return soon, even while the mount is in use: its users get ENOTCONN. Thread-safe.
    void stop();
    [[nodiscard]] bool serving() const { return serving_.load(); }

private:
    explicit Session(const SessionOptions& options);
    // Ends what works beside those that serve, but for what looks after them. Any number of times.
    void finish_queues();

    std::unique_ptr<Frontend> frontend_;
    SessionOptions options_;
    std::atomic<pthread_t> serving_thread_{0};
    std::atomic<bool> serving_{false};
};

}  // namespace cowraid
