// SPDX-License-Identifier: MIT
// Makes the kernel drop or renew cached pages, from a process of its own.
//
// The kernel waits for the lock of a page, which no signal ends, and the page may be locked for a READ that
// only the daemon can answer. If a thread of the daemon waited there when the daemon is killed, the daemon
// would never end: the connection stays open while a thread is left, and nobody answers. A second process can
// wait instead. When the daemon is gone it answers what is left with an error, until nothing waits, and ends.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"

namespace cowraid {

// The name by which the program is started for this; main() then calls page_dropper_main().
inline constexpr const char* kPageDropperName = "cowraid-page-dropper";
int page_dropper_main();
// Starts this program under that name, with a copy of `connection`, the session's /dev/fuse. Returns the
// daemon's end of the channel; invalid when there is no process to be had.
UniqueFd spawn_page_dropper(int connection);

// Who spawns, because the daemon itself may not start programs.
class PageDropperHost {
public:
    virtual ~PageDropperHost() = default;
    // As spawn_page_dropper(). Thread-safe.
    virtual UniqueFd start_page_dropper(int connection) = 0;
};

struct DropOrder;

// For one thread at a time.
class PageDropper {
public:
    PageDropper() = default;
    ~PageDropper() { stop(); }
    PageDropper(const PageDropper&) = delete;
    PageDropper& operator=(const PageDropper&) = delete;

    // Before the rest; must outlive it.
    void set_host(PageDropperHost& host) { host_ = &host; }

    // Returns when the kernel has dropped the pages. False: no process could be had, nothing is known. `node`
    // and the range as in fuse_lowlevel_notify_inval_inode(); `connection` is the session's /dev/fuse. The
    // process starts with the first call.
    bool drop(int connection, uint64_t node, uint64_t offset, uint64_t bytes);
    // Likewise puts `data` into the kernel's page at `offset`. It does not reach into the next one.
    bool store(int connection, uint64_t node, uint64_t offset, std::span<const std::byte> data);
    // Ends the process, and with it its copy of the connection. Requests must be served meanwhile, or the
    // connection be dead, unless no drop() is under way.
    void stop();

private:
    bool carry_out(int connection, const DropOrder& order);

    PageDropperHost* host_ = nullptr;
    UniqueFd channel_;  // invalid: there is no process
};

}  // namespace cowraid
