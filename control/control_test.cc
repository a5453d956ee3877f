// SPDX-License-Identifier: MIT
#include "control/control.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "control/control_client.h"
#include "control/control_frame.h"
#include "control/control_path.h"

namespace {

std::atomic<int> accept_error{0}, accept_calls{0};

}  // namespace

// As the system's, which the server would else call; fails with accept_error.
extern "C" int accept4(int socket, sockaddr* address, socklen_t* length, int flags)
{
    ++accept_calls;
    if (accept_error != 0) {
        errno = accept_error;
        return -1;
    }
    return static_cast<int>(syscall(SYS_accept4, socket, address, length, flags));
}

namespace cowraid {

namespace {

struct Pair {
    UniqueFd a, b;
};

Pair make_pair()
{
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void write_raw(int fd, std::string_view bytes)
{
    REQUIRE(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

// What is in the file whose descriptor came with the request.
Status read_file(const ControlRequest& request, ControlAnswer& answer)
{
    char bytes[64] = "";
    const ssize_t count = pread(request.descriptor.get(), bytes, sizeof bytes - 1, 0);
    answer.result = json_make_object();
    json_put_text(answer.result.get(), "text", count < 0 ? "none" : bytes);
    return {};
}

// Answers "echo" and "file", refuses "fail", holds "hold".
class TestHandler final : public ControlHandler {
public:
    Status handle(ControlRequest& request, ControlAnswer& answer, std::string& why) override
    {
        calls.fetch_add(1);
        if (request.command == "fail") {
            why = "because";
            return Err::kReadOnly;
        }
        if (request.command == "file")
            return read_file(request, answer);
        if (request.command != "echo" && request.command != "hold")
            return Err::kUnsupported;
        answer.result = json_make_object();
        json_put_text(answer.result.get(), "text", json_get_text(request.body.get(), "text"));
        answer.hold = request.command == "hold";
        return {};
    }
    std::atomic<int> calls{0};
};

// A server in a directory of its own.
class Fixture {
public:
    explicit Fixture(uint32_t clients_max = 16, uint32_t deadline_milliseconds = 2000)
    {
        char name[] = "/tmp/cowraid-control-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        directory = name;
        options.path = directory + "/control";
        options.owner = geteuid();
        options.clients_max = clients_max;
        options.deadline_milliseconds = deadline_milliseconds;
        auto started = ControlServer::start(options, handler);
        REQUIRE(started.ok());
        server = started.take();
    }
    ~Fixture()
    {
        server.reset();
        unlink(options.path.c_str());
        rmdir(directory.c_str());
    }

    [[nodiscard]] UniqueFd connect() const
    {
        UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        memcpy(address.sun_path, options.path.c_str(), options.path.size() + 1);
        REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        return fd;
    }

    TestHandler handler;
    std::string directory;
    ControlOptions options;
    std::unique_ptr<ControlServer> server;
};

Json receive(int fd)
{
    auto frame = read_frame(fd, {.bytes_max = kControlAnswerBytesMax, .milliseconds = 60'000});
    REQUIRE(frame.ok());
    auto parsed = json_parse_object(*frame);
    REQUIRE(parsed.ok());
    return parsed.take();
}

Json ask(int fd, std::string_view request)
{
    REQUIRE(write_frame(fd, request, {}).ok());
    return receive(fd);
}

std::string error_code(const Json& answer)
{
    CHECK_FALSE(json_get_flag(answer.get(), "ok"));
    return json_get_text(json_get(answer.get(), "error"), "code");
}

bool closed_by_server(int fd)
{
    return read_frame(fd, {.bytes_max = 1000, .milliseconds = 60'000}).err() == Err::kNotFound;
}

}  // namespace

TEST_CASE("frame: goes through a socket, in pieces too")
{
    Pair pair = make_pair();
    REQUIRE(write_frame(pair.a.get(), "{\"x\":1}", {}).ok());
    CHECK(*read_frame(pair.b.get(), {}) == "{\"x\":1}");

    write_raw(pair.a.get(), std::string_view("\x03\0", 2));
    write_raw(pair.a.get(), std::string_view("\0\0ab", 4));
    write_raw(pair.a.get(), "c");
    CHECK(*read_frame(pair.b.get(), {}) == "abc");

    const std::string large(kControlRequestBytesMax, 'x');
    std::thread writer([&] { CHECK(write_frame(pair.a.get(), large, {}).ok()); });
    const auto received = read_frame(pair.b.get(), {});
    writer.join();
    REQUIRE(received.ok());
    CHECK(*received == large);
}

TEST_CASE("frame: lengths out of bounds are refused before they are believed")
{
    for (const std::string_view header :
         {std::string_view("\x01\x00\x01\x00", 4),  // limit + 1
          std::string_view("\xff\xff\xff\xff", 4), std::string_view("\0\0\0\0", 4)}) {
        Pair pair = make_pair();
        write_raw(pair.a.get(), header);
        CHECK(read_frame(pair.b.get(), {}).err() == Err::kTooBig);
    }
    Pair pair = make_pair();
    CHECK(write_frame(pair.a.get(), std::string(kControlRequestBytesMax + 1, 'x'), {}).err() == Err::kTooBig);
    CHECK(write_frame(pair.a.get(), "", {}).err() == Err::kTooBig);
}

TEST_CASE("frame: ends and deadlines are told apart")
{
    {
        Pair pair = make_pair();
        pair.a = UniqueFd();
        CHECK(read_frame(pair.b.get(), {}).err() == Err::kNotFound);
    }
    for (const std::string_view part : {std::string_view("\x05\0", 2), std::string_view("\x05\0\0\0ab", 6)}) {
        Pair cut = make_pair();
        write_raw(cut.a.get(), part);
        cut.a = UniqueFd();
        CHECK(read_frame(cut.b.get(), {}).err() == Err::kIo);
        Pair slow = make_pair();
        write_raw(slow.a.get(), part);
        CHECK(read_frame(slow.b.get(), {.bytes_max = 100, .milliseconds = 30}).err() == Err::kInterrupted);
    }
    // A peer that takes nothing does not hold the writer.
    Pair full = make_pair();
    CHECK(write_frame(full.a.get(), std::string(8 << 20, 'x'), {.bytes_max = 16 << 20, .milliseconds = 30})
              .err() == Err::kInterrupted);
}

TEST_CASE("frame: what came in time is taken, however late it is looked at")
{
    const Pair ends = make_pair();
    const std::string sent(100'000, 'x');
    int taken = 0;
    for (int round = 0; round < 2000; ++round) {
        REQUIRE(write_frame(ends.a.get(), sent, {.bytes_max = 200'000}).ok());
        const auto frame = read_frame(ends.b.get(), {.bytes_max = 200'000, .milliseconds = 1});
        if (!frame.ok())
            break;
        taken += *frame == sent ? 1 : 0;
    }
    CHECK(taken == 2000);
}

TEST_CASE("frame: who looks for one in short turns loses nothing of it")
{
    const Pair ends = make_pair();
    CHECK(wait_for_frame(ends.b.get(), 1).err() == Err::kInterrupted);
    std::thread writer([&] {
        usleep(190'000);
        write_raw(ends.a.get(), std::string_view("\x04\0\0\0", 4));
        usleep(60'000);
        write_raw(ends.a.get(), "body");
    });
    while (wait_for_frame(ends.b.get(), 200).err() == Err::kInterrupted) { }
    const auto frame = read_frame(ends.b.get(), {.milliseconds = 10'000});
    writer.join();
    REQUIRE(frame.ok());
    CHECK(*frame == "body");
}

TEST_CASE("control: commands and errors")
{
    Fixture fixture;
    struct stat info { };
    REQUIRE(stat(fixture.options.path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);

    const UniqueFd fd = fixture.connect();
    const Json echoed = ask(fd.get(), R"({"command": "echo", "text": "hello"})");
    CHECK(json_get_flag(echoed.get(), "ok"));
    CHECK(json_get_text(json_get(echoed.get(), "result"), "text") == "hello");

    const Json failed = ask(fd.get(), R"({"command": "fail"})");
    CHECK(error_code(failed) == "EROFS");
    CHECK(json_get_text(json_get(failed.get(), "error"), "message") == "because");

    CHECK(error_code(ask(fd.get(), R"({"command": "nonsense"})")) == "EOPNOTSUPP");
    // The connection outlives errors of commands.
    CHECK(json_get_flag(ask(fd.get(), R"({"command": "echo"})").get(), "ok"));
    CHECK(fixture.handler.calls.load() == 4);
}

TEST_CASE("control: a descriptor goes with a request, one at a time")
{
    Fixture fixture;
    const UniqueFd fd = fixture.connect();
    const UniqueFd file(open(fixture.directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    REQUIRE(file.valid());
    REQUIRE(write(file.get(), "inside", 6) == 6);
    for (int round = 0; round < 100; ++round) {
        REQUIRE(write_frame(fd.get(), R"({"command":"file"})", {}, file.get()).ok());
        CHECK(json_get_text(json_get(receive(fd.get()).get(), "result"), "text") == "inside");
        CHECK(json_get_text(json_get(ask(fd.get(), R"({"command":"file"})").get(), "result"), "text") ==
              "none");
    }
    // None of them stayed open.
    size_t open_files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        ++open_files;
    CHECK(open_files < 50);
}

// Who is told that a device was refused may open it exclusively.
TEST_CASE("control: a descriptor that nobody took is closed when the answer comes")
{
    Fixture fixture;
    const UniqueFd fd = fixture.connect();
    for (int round = 0; round < 500; ++round) {
        int ends[2];
        REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        const UniqueFd mine(ends[0]);
        UniqueFd others(ends[1]);
        REQUIRE(write_frame(fd.get(), R"({"command":"nonsense"})", {}, others.get()).ok());
        others = UniqueFd();
        CHECK(error_code(receive(fd.get())) == "EOPNOTSUPP");
        char byte;
        REQUIRE(read(mine.get(), &byte, 1) == 0);
    }
}

TEST_CASE("control: malformed requests end the connection, not the server")
{
    Fixture fixture;
    for (const char* request :
         {"x", "[]", "{}", R"({"command": 1})", R"({"command": ""})", "{\"command\": \"echo\"", "\xff\xfe"}) {
        const UniqueFd fd = fixture.connect();
        CHECK(error_code(ask(fd.get(), request)) == "EINVAL");
        CHECK(closed_by_server(fd.get()));
    }
    {
        const UniqueFd fd = fixture.connect();
        write_raw(fd.get(), std::string_view("\xff\xff\xff\x7f", 4));
        CHECK(error_code(receive(fd.get())) == "E2BIG");
        CHECK(closed_by_server(fd.get()));
    }
    {
        const UniqueFd fd = fixture.connect();
        write_raw(fd.get(), std::string_view("\x10\0\0\0abc", 7));
    }
    CHECK(fixture.handler.calls.load() == 0);
    const UniqueFd fd = fixture.connect();
    CHECK(json_get_flag(ask(fd.get(), R"({"command": "echo"})").get(), "ok"));
}

TEST_CASE("control: a silent client is dropped, and the number of clients is bounded")
{
    Fixture fixture(2, 20'000);
    const UniqueFd first = fixture.connect();
    CHECK(json_get_flag(ask(first.get(), R"({"command": "echo"})").get(), "ok"));
    const UniqueFd second = fixture.connect();
    CHECK(json_get_flag(ask(second.get(), R"({"command": "hold"})").get(), "ok"));
    // Who only waits takes nobody's place.
    const UniqueFd beside = fixture.connect();
    CHECK(json_get_flag(ask(beside.get(), R"({"command": "echo"})").get(), "ok"));
    {
        const UniqueFd third = fixture.connect();
        CHECK(error_code(receive(third.get())) == "EBUSY");
        CHECK(closed_by_server(third.get()));
    }
    Fixture quiet(1, 1000);
    const UniqueFd silent = quiet.connect();
    CHECK(closed_by_server(silent.get()));
    // Its place is free again. Who comes too early is turned away, at any step.
    for (int round = 0; round < 200; ++round) {
        const UniqueFd next = quiet.connect();
        if (write_frame(next.get(), R"({"command": "echo"})", {}).ok()) {
            const auto frame = read_frame(next.get(), {.bytes_max = 1000, .milliseconds = 60'000});
            const auto answer = frame.ok() ? json_parse_object(*frame) : Result<Json>(frame.err());
            if (answer.ok() && json_get_flag(answer->get(), "ok"))
                return;
        }
        usleep(10'000);
    }
    FAIL("the place of a dropped client stays taken");
}

TEST_CASE("control: clients on hold hear announcements, and the end")
{
    constexpr size_t kRounds = 20;
    Fixture fixture(kRounds + 1);
    const UniqueFd other = fixture.connect();
    CHECK(json_get_flag(ask(other.get(), R"({"command": "echo"})").get(), "ok"));
    Json message = json_make_object();
    json_put_text(message.get(), "state", "closed");
    std::vector<UniqueFd> held;
    for (size_t round = 0; round < kRounds; ++round) {
        held.push_back(fixture.connect());
        CHECK(json_get_flag(ask(held.back().get(), R"({"command": "hold"})").get(), "ok"));
        fixture.server->announce(message.get());
        const auto frame = read_frame(held.back().get(), {.bytes_max = 1000, .milliseconds = 2000});
        REQUIRE(frame.ok());
        CHECK(*frame == R"({"state": "closed"})");
    }
    CHECK(read_frame(other.get(), {.bytes_max = 1000, .milliseconds = 20}).err() == Err::kInterrupted);
    fixture.server.reset();
    CHECK(closed_by_server(held.back().get()));
}

TEST_CASE("control: a connection that cannot be taken for want of memory does not keep a processor busy")
{
    Fixture fixture;
    for (const int error : {ENOMEM, ENOBUFS, EMFILE}) {
        CAPTURE(error);
        accept_calls = 0;
        accept_error = error;
        const UniqueFd fd = fixture.connect();
        REQUIRE(write_frame(fd.get(), R"({"command":"echo"})", {}).ok());
        usleep(350'000);
        CHECK(accept_calls.load() >= 1);
        CHECK(accept_calls.load() <= 8);
        accept_error = 0;
        CHECK(json_get_flag(receive(fd.get()).get(), "ok"));
    }
}

TEST_CASE("control: a dead socket is replaced, a living one is not")
{
    Fixture fixture;
    CHECK(ControlServer::start(fixture.options, fixture.handler).err() == Err::kBusy);
    fixture.server.reset();
    CHECK(access(fixture.options.path.c_str(), F_OK) == 0);
    auto again = ControlServer::start(fixture.options, fixture.handler);
    REQUIRE(again.ok());
    const UniqueFd fd = fixture.connect();
    CHECK(json_get_flag(ask(fd.get(), R"({"command": "echo"})").get(), "ok"));
}

namespace {

// The daemon of a volume; its mount has no device while it starts.
class MountHandler final : public ControlHandler {
public:
    MountHandler(const char* volume, const char* mount_device, unsigned answer_milliseconds)
        : uuid(volume), device(mount_device), milliseconds(answer_milliseconds)
    {
    }
    Status handle(ControlRequest&, ControlAnswer& answer, std::string&) override
    {
        usleep(milliseconds * 1000);
        answer.result = json_make_object();
        json_put_text(answer.result.get(), "uuid", uuid);
        json_put_text(answer.result.get(), "device", device);
        return {};
    }
    const std::string uuid, device;
    const unsigned milliseconds;
};

constexpr const char* kVolume = "11111111-1111-4111-8111-111111111111";

// A directory for control sockets that clients find.
class RunDirectory {
public:
    RunDirectory()
    {
        char name[] = "/tmp/cowraid-control-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        path = name;
        REQUIRE(setenv("COWRAID_RUN_DIR", name, 1) == 0);
    }
    ~RunDirectory()
    {
        unsetenv("COWRAID_RUN_DIR");
        std::filesystem::remove_all(path);
    }
    [[nodiscard]] std::unique_ptr<ControlServer> serve(const std::string& volume, ControlHandler& handler,
                                                       uint32_t deadline_milliseconds = 5000) const
    {
        ControlOptions options;
        options.path = *make_control_socket_path(path, *uuid_parse(volume));
        options.owner = geteuid();
        options.deadline_milliseconds = deadline_milliseconds;
        auto server = ControlServer::start(options, handler);
        REQUIRE(server.ok());
        return server.take();
    }

    std::string path;
};

// Another process: a daemon that takes a request and closes the connection, again and again. Exits with the
// number of requests once a connection brings none.
pid_t start_silent_daemon(const std::string& path)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const pid_t child = fork();
    if (child != 0)
        return child;
    alarm(60);  // whatever becomes of the test
    const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM, 0));
    bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    listen(listener.get(), 8);
    for (int requests = 0;; ++requests) {
        const UniqueFd fd(accept(listener.get(), nullptr, nullptr));
        if (!read_frame(fd.get(), {.bytes_max = 1000, .milliseconds = 60'000}).ok())
            _exit(requests);
    }
}

}  // namespace

TEST_CASE("control: a client connects again when the daemon closed the connection before the request")
{
    const RunDirectory directory;
    TestHandler handler;
    auto server = directory.serve(kVolume, handler, 100);
    auto client = ControlClient::connect(*uuid_parse(kVolume));
    REQUIRE(client.ok());
    const UniqueFd file(open(directory.path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    REQUIRE(write(file.get(), "inside", 6) == 6);
    std::string why;
    for (int round = 0; round < 3; ++round) {
        CHECK(client->next(60'000).err() == Err::kNotFound);  // it looked at something for long
        const auto answer = client->call("file", nullptr, why, file.get());
        REQUIRE(answer.ok());
        CHECK(json_get_text(answer->get(), "text") == "inside");
    }
    CHECK(handler.calls.load() == 3);
    server.reset();
    CHECK_FALSE(client->call("echo", nullptr, why).ok());
    CHECK(why == "the daemon of the volume does not answer; see the system log");
}

TEST_CASE("control: a request that was sent is not sent again, nor to another daemon")
{
    const RunDirectory directory;
    const Uuid volume = *uuid_parse(kVolume);
    TestHandler handler;
    auto server = directory.serve(kVolume, handler);
    auto former = ControlClient::connect(volume);
    REQUIRE(former.ok());
    server.reset();
    const std::string path = *make_control_socket_path(directory.path, volume);
    unlink(path.c_str());
    const pid_t child = start_silent_daemon(path);
    auto client = ControlClient::connect(volume);
    for (int round = 0; round < 1000 && !client.ok(); ++round) {
        usleep(10'000);
        client = ControlClient::connect(volume);
    }
    REQUIRE(client.ok());
    std::string why;
    CHECK_FALSE(client->call("echo", nullptr, why).ok());
    CHECK_FALSE(former->call("echo", nullptr, why).ok());
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 1);
}

TEST_CASE("control: all mounted volumes are waited for, also beside one whose mount is still starting")
{
    const RunDirectory directory;
    MountHandler starting(kVolume, "", 0);
    MountHandler slow("22222222-2222-4222-8222-222222222222", "0:52", 300);
    std::vector<std::unique_ptr<ControlServer>> servers;
    for (MountHandler* handler : {&starting, &slow})
        servers.push_back(directory.serve(handler->uuid, *handler));
    std::vector<int> silent;
    const std::vector<MountedVolume> mounted = list_mounted_volumes(&silent);
    CHECK(mounted.size() == 2);
    CHECK(silent.empty());
    const auto found = find_mount_of_device("0:52");
    REQUIRE(found.has_value());
    CHECK(uuid_text(found->uuid) == slow.uuid);
}

}  // namespace cowraid
