#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds and runs every test; installs what it needs. Run as root (mounts need it); safe to repeat.
#   scripts/test.sh [--quick]     --quick: style and unit tests only
# A stage that fails does not stop the stages that do not need it. The last line is the total.
# JOBS=N sets the number of parallel jobs.
set -uo pipefail
cd "$(dirname "$0")/.."

quick=false
passed=0
failed=0
failed_stages=()
mount_tests=  # process
logs=$(mktemp -d)
trap end EXIT

# Tests print their seeds; sanitizers must stop a test at the first finding. To remember 30 callers of each
# allocation takes a fifth of the time; five name the place, and a seed repeats the rest. To keep freed memory
# from use until it is 256 MiB, and not 32, takes a sixth: every volume is in new pages then.
export ASAN_OPTIONS=${ASAN_OPTIONS:-check_initialization_order=1:malloc_context_size=5:quarantine_size_mb=32}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:history_size=5}

# A compile job takes up to 1.5 GiB with a sanitizer.
default_jobs() {
    local cores memory
    cores=$(nproc)
    memory=$(awk '/^MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
    [ "$memory" -ge 1 ] || memory=1
    echo $((cores < memory ? cores : memory))
}

# count_files RESULT...: adds what the result files of a test run say.
count_files() {
    local more_passed more_failed
    read -r more_passed more_failed < <(scripts/test_count.py "$@")
    passed=$((passed + more_passed))
    failed=$((failed + more_failed))
}

# stage NAME COMMAND...: runs it, says how long it took, remembers a failure.
stage() {
    local name=$1 started=$SECONDS outcome=ok failed_before=$failed
    shift
    echo "== $name"
    if ! "$@"; then
        outcome=FAILED
        failed_stages+=("$name")
        [ "$failed" -gt "$failed_before" ] || failed=$((failed + 1))
    fi
    echo "-- $name: $outcome, $((SECONDS - started)) s"
    [ "$outcome" = ok ]
}

first_program() {
    local name
    for name in "$@"; do
        command -v "$name" && return 0
    done
    return 1
}

# The distribution's pytest belongs to the distribution's Python, which may not be the first in PATH.
python_with_pytest() {
    local python
    for python in /usr/bin/python3 python3; do
        "$python" -c 'import pytest' 2>/dev/null && echo "$python" && return 0
    done
    return 1
}

run_pytest() {
    local report=$logs/pytest.xml python status=0
    python=$(python_with_pytest) || { echo "no Python with pytest"; return 1; }
    rm -f "$report"
    "$python" -m pytest -q -rs -p no:cacheprovider --junitxml="$report" "$@" || status=$?
    [ ! -s "$report" ] || count_files "$report"
    return $status
}

check_style() {
    scripts/style --report --alone-share 3 || return 1
    passed=$((passed + 1))
}

# configure FOLDER OPTION...: a folder left half made by an interrupted run starts again.
configure() {
    local folder=$1
    shift
    if [ -f "$folder/build.ninja" ]; then
        meson configure "$folder" "$@" >"$logs/setup" 2>&1 &&
            ninja -C "$folder" build.ninja >"$logs/setup" 2>&1 && return 0
    fi
    rm -rf "$folder"
    meson setup "$folder" "$@" >"$logs/setup" 2>&1 || { tail -n 30 "$logs/setup"; return 1; }
}

# What is installed, and what mount tests run besides; Meson builds tests when they run.
build_programs() {
    configure build-test "${test_options[@]}" || return 1
    meson introspect build-test --targets |
        scripts/installed_targets.py build-test coherence file_ops posix_suite |
        xargs ninja -C build-test -j "$jobs" >"$logs/build" 2>&1 && return 0
    grep -v '^\[' "$logs/build" | head -n 80
    return 1
}

# run_meson_returns: as run_meson, with use of a stack frame after its return found, too. That takes a quarter
# of the time: it is for unit tests and libFuzzer, which walk the code that whole volumes repeat.
run_meson_returns() {
    ASAN_OPTIONS=$ASAN_OPTIONS:detect_stack_use_after_return=1 run_meson "$@"
}

# Whether the compiler has libFuzzer.
fuzzes() {
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
        "$CXX" -fsanitize=fuzzer -x c++ -o "$logs/fuzzer" - 2>/dev/null && return 0
    echo "skipped: libFuzzer targets, $CXX has no libFuzzer"
    return 1
}

# run_meson FOLDER OPTION...: Meson builds what the chosen tests need. No test at all is not a failure.
run_meson() {
    local folder=$1 log=$1/meson-logs/testlog.json status=0
    shift
    rm -f "$log"
    # One more than there are processors: some tests wait.
    meson test -C "$folder" --print-errorlogs --num-processes "$((jobs + 1))" "$@" >"$logs/tests" 2>&1 ||
        status=$?
    grep -v -E '^(ninja: .*|\[[0-9]+/[0-9]+\].*|[A-Z][A-Za-z ]*: +[0-9]+ *|Full log.*|)$' "$logs/tests"
    [ ! -s "$log" ] || { count_files "$log"; scripts/test_count.py --slowest 10 "$log"; }
    return $status
}

# clang's thread sanitizer cannot place its shadow when the kernel randomises addresses widely.
run_meson_tsan() {
    local wrapper=()
    setarch -R true 2>/dev/null && wrapper=(setarch -R)
    run_meson build-tsan --suite tsan --timeout-multiplier 10 ${wrapper[0]:+--wrapper "${wrapper[*]}"}
}

have_mount_tests() {
    compgen -G 'tests/mount/test_*.py' >/dev/null || { echo "no mount tests in the tree"; return 1; }
    [ -c /dev/fuse ] || modprobe fuse 2>/dev/null
    [ -c /dev/fuse ] || { echo "skipped: mount tests, no /dev/fuse"; return 1; }
    [ "$(id -u)" -eq 0 ] || { echo "skipped: mount tests, not root"; return 1; }
}

# start_mount_tests, finish_mount_tests: beside all other stages, because they wait most of their time. What
# the shell starts so would ignore SIGINT.
start_mount_tests() {
    local python
    python=$(python_with_pytest) || { echo "no Python with pytest"; return 1; }
    COWRAID_BUILD_DIR=$PWD/build-test env --default-signal=INT "$python" -m pytest -q -rs \
        -p no:cacheprovider --durations=12 --junitxml="$logs/mount.xml" tests/mount >"$logs/mount" 2>&1 &
    mount_tests=$!
}

finish_mount_tests() {
    local status=0
    wait "$mount_tests" || status=$?
    mount_tests=
    cat "$logs/mount"
    [ ! -s "$logs/mount.xml" ] || count_files "$logs/mount.xml"
    return $status
}

# Mount tests that still run when the script ends clean up what they mounted.
end() {
    [ -z "$mount_tests" ] || { kill "$mount_tests" && wait "$mount_tests"; } 2>/dev/null
    rm -rf "$logs"
}

stages_quick() {
    stage "self-tests of scripts/style" run_pytest tests/style
    stage "style" check_style
    stage "build of the programs (g++)" build_programs &&
        stage "unit tests" run_meson build-test --timeout-multiplier 4 --no-suite sim --no-suite crash \
            --no-suite mutant --no-suite long
}

stages_all() {
    local built=true
    stage "build of the programs (g++)" build_programs || built=false
    ! $built || ! have_mount_tests || stage "mount tests, start" start_mount_tests
    stage "self-tests of scripts/style" run_pytest tests/style
    stage "style" check_style
    ! $built || stage "simulator, crash, model, space and mutant tests" run_meson build-test \
        --timeout-multiplier 4 --no-suite unit --no-suite volume --no-suite fuzz
    # The sanitizer builds are also the check that clang compiles without a warning what they need.
    export CXX=$clang
    # Random volumes: suite long has more.
    export COWRAID_SCRUB_ROUNDS=25 COWRAID_WINDOW_ROUNDS=4
    local fuzzed=false
    fuzzes && fuzzed=true
    # Meson builds what the chosen tests need.
    stage "configure (address and undefined sanitizer)" \
        configure build-asan "${asan_options[@]}" "-Dfuzz_targets=$fuzzed" &&
        stage "volumes and simulator, address and undefined sanitizer" \
            run_meson build-asan --timeout-multiplier 5 --suite volume --suite sim --suite fuzz &&
        stage "unit tests, address and undefined sanitizer" \
            run_meson_returns build-asan --timeout-multiplier 5 --suite unit
    stage "configure (thread sanitizer)" configure build-tsan "${tsan_options[@]}" &&
        stage "threaded tests, thread sanitizer" run_meson_tsan
    # Last, beside what mount tests wait for.
    ! $fuzzed || stage "libFuzzer targets" run_meson_returns build-asan --suite libfuzzer
    [ -z "$mount_tests" ] || stage "mount tests, end" finish_mount_tests
}

# Warnings are errors here and nowhere else: another compiler has others, which must not stop who
# only installs.
common_options=(-Dwerror=true -Ddebug_checks=true -Dmutants=true)
# Up to 60 files of a target are compiled as one, which takes a quarter of the time: the headers are compiled
# once for all of them. That no file lives on includes of another is for scripts/style to show.
# -g1 is what reports need, functions and lines; -g takes a quarter longer.
unity_options=(-Dunity=on -Dunity_size=60)
# GCC takes the anonymous namespace of a file that is compiled with others for one in a header.
test_options=("${common_options[@]}" "${unity_options[@]}" -Dbuildtype=debugoptimized -Db_pch=false
    '-Dcpp_args=-g1 -Wno-subobject-linkage')
sanitizer_options=("${common_options[@]}" "${unity_options[@]}" -Ddebug=true -Doptimization=1
    -Db_lundef=false -Dtcmalloc=disabled -Db_pch=false)
# What is wrong about null pointers and sizes of objects the address sanitizer sees at the access; to ask for
# it twice takes a fifth of the time to compile.
asan_options=("${sanitizer_options[@]}" -Db_sanitize=address,undefined
    '-Dcpp_args=-g1 -fno-sanitize-recover=all -fno-sanitize=null,object-size')
# Without mutants, like what is installed: shows that the product compiles so.
tsan_options=("${sanitizer_options[@]}" -Db_sanitize=thread -Dcpp_args=-g1 -Dmutants=false)

main() {
    case "${1:-}" in
    --quick) quick=true ;;
    "") ;;
    *) sed -n '3,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    stage "dependencies" scripts/install-deps.sh || echo "going on with what is there"
    jobs=${JOBS:-$(default_jobs)}
    clang=$(first_program clang++-14 clang++ g++)
    export CXX=g++
    if $quick; then stages_quick; else stages_all; fi
    echo "total time: $SECONDS s"
    [ ${#failed_stages[@]} -eq 0 ] || printf 'failed: %s\n' "${failed_stages[@]}"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ ${#failed_stages[@]} -eq 0 ]
}

main "$@"
