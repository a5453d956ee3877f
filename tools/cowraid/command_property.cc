// SPDX-License-Identifier: MIT
// cowraid property: what a file or folder asks for, whatever the mount says.
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstring>

#include "base/print.h"
#include "control/json.h"
#include "tools/cowraid/command.h"

namespace cowraid {

namespace {

constexpr const char* kCompressionAttribute = "btrfs.compression";
constexpr std::string_view kCompressionProperty = "compression";

// Path, then the property, which is "compression". False: said so.
bool are_operands(const CommandOptions& options, size_t least, size_t most)
{
    const std::vector<std::string>& operands = options.operands;
    if (operands.size() < least || operands.size() > most) {
        command_failed(options, Err::kInvalid, "name a file or folder, then what the usage says");
        return false;
    }
    if (operands.size() > 1 && operands[1] != kCompressionProperty) {
        command_failed(options, Err::kInvalid,
                       "no property '" + operands[1] + "'; there is compression: zstd or none");
        return false;
    }
    return true;
}

int failed(const CommandOptions& options, int error)
{
    const std::string& path = options.operands.front();
    if (error == EOPNOTSUPP)
        return command_failed(options, Err::kUnsupported, path + " is not on a cowraid volume");
    if (error == EINVAL) {
        command_failed(options, Err::kInvalid, "compression is zstd, none, or empty: as the mount says");
        return kExitUsage;
    }
    return command_failed(options, Err::kIo, path + ": " + strerror(error));
}

}  // namespace

int command_property_get(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "PATH [compression]",
                      "Prints what a file or folder asks for, nothing where the mount decides.", options) ||
        !are_operands(options, 1, 2))
        return kExitUsage;
    char value[64];
    const ssize_t bytes =
        getxattr(options.operands.front().c_str(), kCompressionAttribute, value, sizeof value);
    if (bytes < 0 && errno != ENODATA)
        return failed(options, errno);
    const std::string text(value, bytes > 0 ? static_cast<size_t>(bytes) : 0);
    if (options.format == OutputFormat::kJson) {
        const Json out = json_make_object();
        json_put_text(out.get(), "compression", text);
        print_json(out.get());
    } else if (!text.empty()) {
        print_line(stdout, "compression=%s", text.c_str());
    }
    return kExitOk;
}

int command_property_set(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(
            argc, argv, "PATH compression zstd|none|\"\"",
            "Sets whether a file is compressed when it is written: zstd, none (whatever the mount says, also "
            "compress-force=), or empty for what the mount says. What is stored stays as it is until it is "
            "written anew. New files of a folder get what it has. Programs see it as the extended attribute "
            "btrfs.compression.",
            options) ||
        !are_operands(options, 3, 3))
        return kExitUsage;
    const std::string& value = options.operands[2];
    const char* const path = options.operands.front().c_str();
    struct stat info { };
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return command_failed(options, Err::kUnsupported,
                              options.operands.front() +
                                  " is neither a file nor a folder: nothing to compress");
    int result = value.empty() ? removexattr(path, kCompressionAttribute)
                               : setxattr(path, kCompressionAttribute, value.data(), value.size(), 0);
    if (result != 0 && value.empty() && errno == ENODATA)
        result = 0;
    return result == 0 ? kExitOk : failed(options, errno);
}

}  // namespace cowraid
