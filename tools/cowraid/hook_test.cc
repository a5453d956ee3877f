// SPDX-License-Identifier: MIT
#include "tools/cowraid/hook.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/unique_fd.h"

namespace cowraid {

namespace {

// A program in a folder of its own, which writes its arguments to a file.
class Hook {
public:
    explicit Hook(const std::string& more)
    {
        char name[] = "/tmp/cowraid-hook-XXXXXX";
        folder_ = mkdtemp(name);
        const std::string text =
            "#!/bin/sh\nfor word; do echo \"<$word>\"; done >" + folder_ + "/out\n" + more;
        const UniqueFd file(open(path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0755));
        REQUIRE(write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    ~Hook() { std::filesystem::remove_all(folder_); }
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;

    [[nodiscard]] std::string folder() const { return folder_; }
    [[nodiscard]] std::string path() const { return folder_ + "/hook"; }
    [[nodiscard]] std::string output() const
    {
        const UniqueFd file(open((folder_ + "/out").c_str(), O_RDONLY | O_CLOEXEC));
        char bytes[256];
        const ssize_t count = read(file.get(), bytes, sizeof bytes);
        return {bytes, static_cast<size_t>(std::max<ssize_t>(count, 0))};
    }

private:
    std::string folder_;
};

}  // namespace

TEST_CASE("a hook gets its arguments as they are")
{
    const Hook hook("exit 0\n");
    std::string why;
    CHECK(validate_hook(hook.path(), why).ok());
    CHECK(run_hook(hook.path(), {"Fail", "/mnt/a b;$(id)", "/dev/x"}, 10, why).ok());
    CHECK(hook.output() == "<Fail>\n</mnt/a b;$(id)>\n</dev/x>\n");
}

TEST_CASE("a hook that others may change is not called")
{
    const Hook hook("exit 0\n");
    std::string why;
    CHECK(validate_hook("hook", why).err() == Err::kInvalid);
    CHECK(validate_hook(hook.folder() + "/none", why).err() == Err::kNotFound);
    CHECK(validate_hook(hook.folder(), why).err() == Err::kInvalid);
    chmod(hook.path().c_str(), 0644);
    CHECK(validate_hook(hook.path(), why).err() == Err::kInvalid);
    for (const mode_t mode : {0775, 0757}) {
        chmod(hook.path().c_str(), mode);
        CHECK(validate_hook(hook.path(), why).err() == Err::kAccess);
        CHECK(why.find("others may change it") != std::string::npos);
    }
    chmod(hook.path().c_str(), 0755);
    chmod(hook.folder().c_str(), 0777);
    CHECK(validate_hook(hook.path(), why).err() == Err::kAccess);
    chmod(hook.folder().c_str(), 0755);
    CHECK(validate_hook(hook.path(), why).ok());
    // A folder further up, or a link, is as good for exchanging it.
    const std::string inner = hook.folder() + "/inner";
    REQUIRE(mkdir(inner.c_str(), 0755) == 0);
    std::filesystem::copy(hook.path(), inner + "/hook");
    CHECK(validate_hook(inner + "/hook", why).ok());
    chmod(hook.folder().c_str(), 0777);
    CHECK(validate_hook(inner + "/hook", why).err() == Err::kAccess);
    CHECK(why.find("a folder above it") != std::string::npos);
    chmod(hook.folder().c_str(), 0755);
    std::filesystem::create_directory_symlink(inner, hook.folder() + "/link");
    CHECK(validate_hook(hook.folder() + "/link/hook", why).err() == Err::kAccess);
    CHECK(why.find("name it as " + inner + "/hook") != std::string::npos);
}

TEST_CASE("a hook that fails or hangs is told")
{
    const Hook failing("exit 7\n");
    std::string why;
    CHECK(run_hook(failing.path(), {}, 60, why).err() == Err::kIo);
    CHECK(why == failing.path() + " ended with code 7");
    const Hook hanging("sleep 600\n");
    CHECK(run_hook(hanging.path(), {"x"}, 5, why).err() == Err::kIo);
    CHECK(why == hanging.path() + " was killed: it took longer than 5 s");
    CHECK(hanging.output() == "<x>\n");
}

}  // namespace cowraid
