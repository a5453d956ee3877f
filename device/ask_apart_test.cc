// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/ask_apart.h"
#include "device/ring.h"

using namespace cowraid;

namespace {

constexpr uint64_t kPatienceMs = 60'000;

std::vector<std::byte> never()
{
    while (true)
        pause();
}

std::vector<std::byte> bytes_of(size_t count, int value)
{
    return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

}  // namespace

TEST_CASE("questions apart: answers come in the order of the questions, of any length")
{
    AskApart questions;
    for (int number = 0; number < 20; ++number)
        questions.ask(std::to_string(number), [&] {
            usleep(static_cast<unsigned>(20 - number) * 5000);
            return bytes_of(static_cast<size_t>(number) * 20'000, number);
        });
    const uint64_t begin = monotonic_ms();
    const std::vector<AskApart::Answer> answers = questions.wait(kPatienceMs);
    CHECK(monotonic_ms() - begin < kPatienceMs);
    REQUIRE(answers.size() == 20);
    for (int number = 0; number < 20; ++number) {
        REQUIRE(answers[static_cast<size_t>(number)].has_value());
        CHECK(*answers[static_cast<size_t>(number)] ==
              bytes_of(static_cast<size_t>(number) * 20'000, number));
    }
    CHECK(questions.wait(kPatienceMs).empty());
}

TEST_CASE("questions apart: what never answers holds up nobody, and is not asked again while it waits")
{
    AskApart questions;
    const auto answer = [] {
        return bytes_of(3, 7);
    };
    questions.ask("hangs", never);
    questions.ask("answers", answer);
    questions.ask("hangs, too", never);
    const uint64_t begin = monotonic_ms();
    std::vector<AskApart::Answer> answers = questions.wait(1000);
    CHECK(monotonic_ms() - begin >= 1000);
    CHECK_FALSE(answers[0].has_value());
    CHECK(answers[1] == answer());
    CHECK_FALSE(answers[2].has_value());
    // Nothing is waited for.
    AskApart again;
    again.ask("hangs", answer);
    again.ask("answers", answer);
    answers = again.wait(kPatienceMs);
    CHECK_FALSE(answers[0].has_value());
    CHECK(answers[1] == answer());
}

TEST_CASE("questions apart: a process that ends without an answer has an empty one; later it is asked again")
{
    for (const bool late : {false, true}) {
        AskApart questions;
        questions.ask("ends", [&]() -> std::vector<std::byte> {
            if (late)
                usleep(300'000);
            _exit(0);
        });
        const std::vector<AskApart::Answer> answers = questions.wait(late ? 1 : kPatienceMs);
        REQUIRE(answers[0].has_value() == !late);
        if (!late)
            CHECK(answers[0]->empty());
    }
    for (const uint64_t until = monotonic_ms() + kPatienceMs; monotonic_ms() < until; usleep(10'000)) {
        AskApart questions;
        questions.ask("ends", [] { return bytes_of(1, 1); });
        if (questions.wait(kPatienceMs)[0] == bytes_of(1, 1))
            return;
    }
    FAIL("it is not asked again");
}

TEST_CASE("questions apart: the process has no descriptor of this one")
{
    (void)Ring::of_this_thread();
    // Who waits for the end of this pipe must not wait for a device.
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    AskApart questions;
    questions.ask("keeps nothing", never);
    const std::vector<AskApart::Answer> answers = questions.wait(300);
    CHECK_FALSE(answers[0].has_value());
    close(ends[1]);
    pollfd end{.fd = ends[0], .events = POLLIN, .revents = 0};
    CHECK(poll(&end, 1, static_cast<int>(kPatienceMs)) == 1);
    CHECK((end.revents & POLLHUP) != 0);
    close(ends[0]);
    // Nor is one taken for a ring that was this one's.
    questions.ask("opens", [] {
        const int fd = open("/dev/zero", O_RDONLY);
        (void)Ring::of_this_thread();
        std::vector<std::byte> read_bytes(5);
        return ::read(fd, read_bytes.data(), 5) == 5 && fcntl(1, F_GETFD) == 0 ? bytes_of(5, 9)
                                                                               : bytes_of(1, 0);
    });
    CHECK(questions.wait(kPatienceMs)[0] == bytes_of(5, 9));
}
