// SPDX-License-Identifier: MIT
// What the mount helper and the daemon say to each other over a socket pair, descriptors included.
//   helper -> daemon: kMember or kNamedMember (path, descriptor) for each, then kOpen
//   daemon -> helper: kOpened (JSON: uuid, read_only, degraded, warnings) or kFailed (one line)
//   helper -> daemon: kServe (device number of the mount, descriptor of the FUSE connection)
// The helper then asks the mount itself whether it answers. Either side ends by closing its end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace cowraid {

enum class HandshakeKind : uint32_t {
    kMember = 1,
    kOpen = 2,
    kOpened = 3,
    kFailed = 4,
    kServe = 5,
    kNamedMember = 6,
    // Between the daemon and its monitor, tools/mount_monitor.h.
    kDetach = 7,
    kStartDropper = 8,
    kDone = 9,
};

struct HandshakeMessage {
    HandshakeKind kind = HandshakeKind::kFailed;
    std::string text;
    UniqueFd fd;
};

// Two connected ends. kIo when the system refuses.
Result<std::pair<UniqueFd, UniqueFd>> make_handshake_pair();

// `fd` may be -1; the receiver gets a copy. kIo when the other side is gone.
Status send_handshake(int channel, HandshakeKind kind, std::string_view text, int fd);
// kNotFound: the other side closed its end. kIo: anything malformed.
Result<HandshakeMessage> receive_handshake(int channel);

}  // namespace cowraid
