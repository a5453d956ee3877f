// SPDX-License-Identifier: MIT
// Input: how to read it, then the bytes that a peer sends before it closes.
#include <sys/socket.h>

#include <string>

#include "base/unique_fd.h"
#include "control/control_frame.h"
#include "control/json.h"
#include "tests/fuzz_targets/fuzz_input.h"
#include "tests/fuzz_targets/targets.h"

using namespace cowraid;

namespace {

using namespace frame_input;

// A socket takes this much at once.
constexpr size_t kSentBytesMax = 64 * kKiB;

struct SocketPair {
    SocketPair()
    {
        int fds[2];
        CW_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        sender = UniqueFd(fds[0]);
        receiver = UniqueFd(fds[1]);
    }
    UniqueFd sender, receiver;
};

std::string bytes_from(FuzzInput& input, uint8_t fit)
{
    const std::span<const std::byte> rest = input.take(kSentBytesMax);
    const le32 length(static_cast<uint32_t>(rest.size()));
    std::string bytes;
    if ((fit & kFitLength) != 0)
        bytes.assign(reinterpret_cast<const char*>(&length), sizeof length);
    return bytes.append(reinterpret_cast<const char*>(rest.data()), rest.size());
}

// What a command asks of its request.
void check_request(const Json& request)
{
    for (const char* key : {"command", "volume", "members", "ok"}) {
        const std::string text = json_get_text(request.get(), key);
        CW_ASSERT(json_get_integer(request.get(), key) <= INT64_MAX);
        CW_ASSERT(text.empty() || !json_get_flag(request.get(), key));
        CW_ASSERT(text.empty() || json_get(request.get(), key) != nullptr);
        Json copy = json_make_object();
        json_put_text(copy.get(), key, text);
        CW_ASSERT(json_get_text(copy.get(), key) == text);
    }
}

void check_frame(const std::string& frame, const FrameLimits& limits)
{
    CW_ASSERT(!frame.empty() && frame.size() <= limits.bytes_max);
    const Result<Json> object = json_parse_object(frame);
    if (!object.ok())
        return;
    check_request(*object);
    const std::string printed = json_print(object->get());
    const Result<Json> again = json_parse_object(printed);
    CW_ASSERT(again.ok() && json_print(again->get()) == printed);
    SocketPair pair;
    if (printed.size() > kSentBytesMax)
        return;
    CW_ASSERT(write_frame(pair.sender.get(), printed, limits).ok());
    const Result<std::string> received = read_frame(pair.receiver.get(), limits);
    CW_ASSERT(received.ok() && *received == printed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    FuzzInput input(data, size);
    const uint8_t fit = input.take_u8();
    const FrameLimits limits{.bytes_max =
                                 (fit & kAnswer) != 0 ? kControlAnswerBytesMax : kControlRequestBytesMax};
    const std::string sent = bytes_from(input, fit);
    SocketPair pair;
    CW_ASSERT(send(pair.sender.get(), sent.data(), sent.size(), 0) == static_cast<ssize_t>(sent.size()));
    pair.sender = UniqueFd();
    for (;;) {
        const Result<std::string> frame = read_frame(pair.receiver.get(), limits);
        if (!frame.ok()) {
            CW_ASSERT(frame.err() != Err::kInterrupted);
            break;
        }
        check_frame(*frame, limits);
    }
    return 0;
}
