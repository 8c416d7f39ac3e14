#!/bin/sh
# An outside program that knows only what `make install` put down: with pkg-config, statically, as C++17, with CMake, and
# after the whole installation has been moved; then one with a LIBDIR of its own. Usage: install_consumer.sh <build directory> [make variables]
# SPDX-License-Identifier: Apache-2.0
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/saker-consumer.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
try() { # name, command...
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok   $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name: $*"
        sed 's/^/     /' "$work/log" | tail -15
    fi
}
skip() { skipped=$((skipped + 1)); echo "skipped: $1"; }
have() { command -v "$1" >/dev/null 2>&1; }

cp "$root/tests/test_header.c" "$work/user.c"
cp "$root/tests/test_header.cpp" "$work/user.cpp"
cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(user C CXX)
find_package(saker 0.1 REQUIRED)
set(CMAKE_CXX_STANDARD 17)
foreach(kind saker saker_static)
  add_executable(c_${kind} user.c)
  target_link_libraries(c_${kind} saker::${kind})
  add_executable(cxx_${kind} user.cpp)
  target_link_libraries(cxx_${kind} saker::${kind})
endforeach()
if(NOT saker_VERSION VERSION_GREATER_EQUAL 0.1)
  message(FATAL_ERROR "version ${saker_VERSION}")
endif()
END

echo 'if(CMAKE_VERSION VERSION_LESS 3.19)
  message(FATAL_ERROR "no ranges")
endif()' >"$work/ranges.cmake"
minor=$(awk '/define SAKER_VERSION_MINOR /{print $3}' "$root/include/saker.h")
next=$((minor + 1))
asks() { # version, file: a project without a compiler that asks for it
    mkdir -p "$(dirname "$2")"
    printf 'cmake_minimum_required(VERSION 3.13)\nproject(asks NONE)\nfind_package(saker %s REQUIRED)\n' "$1" >"$2"
}

# Into a path with spaces, which the moved one has not: pkg-config's answer could not be used in $(...) there.
first="$work/first place/opt/with space"
try "make install" sh -c 'umask 077; make "$@"' sh -C "$root" --no-print-directory install BUILD="$build" \
    DESTDIR="$work/first place" PREFIX="/opt/with space" "$@"
for f in include/saker.h lib/libsaker.so lib/libsaker.a lib/pkgconfig/saker.pc lib/cmake/saker/saker-config.cmake bin/saker; do
    try "installed $f" test -e "$first/$f"
done
try "all may read it, whatever the umask was" sh -c "[ -z \"\$(find '$first' ! -type l ! -perm -444)\" ]"
try "nothing else is installed" sh -c "[ \$(find '$first' -name '*.h' | wc -l) = 1 ]"
prefix=$work/moved
mv "$first" "$prefix" # the installation can be moved: no path is baked in
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig" LD_LIBRARY_PATH="$prefix/lib"
if have pkg-config; then
    cc=${CC:-gcc}
    try "pkg-config, shared" sh -c "cd '$work' && $cc -std=c11 -pedantic -Wall -Wextra -Werror user.c \$(pkg-config --cflags --libs saker) -o shared && ./shared"
    try "it uses the shared library" sh -c "ldd '$work/shared' | grep -q '$prefix/lib/libsaker.so'"
    mkdir "$work/static" && cp "$prefix/lib/libsaker.a" "$work/static/"
    try "pkg-config, static" sh -c "cd '$work' && $cc user.c \$(pkg-config --cflags saker) -Lstatic \$(pkg-config --libs --static saker | sed 's|-L[^ ]*||') -o fixed && env -u LD_LIBRARY_PATH ./fixed"
    try "version agrees" sh -c "[ \$(pkg-config --modversion saker) = \$(awk '/SAKER_VERSION_(MAJOR|MINOR|PATCH) /{printf s \$3; s = \".\"}' '$prefix/include/saker.h') ]"
    if have g++; then
        try "C++17" sh -c "cd '$work' && g++ -std=c++17 -pedantic -Wall -Wextra -Werror user.cpp \$(pkg-config --cflags --libs saker) -o cxx && ./cxx"
    else
        skip "C++17: no g++"
    fi
else
    skip "pkg-config: not on this machine"
fi
if have cmake && have g++; then
    try "CMake configures" cmake -S "$work" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix"
    try "CMake builds" cmake --build "$work/cmake"
    for kind in c_saker c_saker_static cxx_saker cxx_saker_static; do
        try "CMake $kind runs" "$work/cmake/$kind"
    done
    no_range="" range=""
    if cmake -P "$work/ranges.cmake" 2>/dev/null; then
        no_range="0.$next...1 0.0...0.0.9 0.0...<0.$minor" range="0.0...<0.$next 0.$minor...1"
    else
        skip "CMake: ranges of versions need cmake 3.19"
    fi
    for version in 99 0.0 "0.$next" "0.${minor}0" $no_range; do
        asks "$version" "$work/no/CMakeLists.txt"
        try "CMake refuses version $version" sh -c "! cmake -S '$work/no' -B '$work/no/build' -DCMAKE_PREFIX_PATH='$prefix'"
    done
    for version in "0.$minor" "0.$minor.0" $range; do
        asks "$version" "$work/yes/CMakeLists.txt"
        try "CMake takes version $version" cmake -S "$work/yes" -B "$work/yes/build" -DCMAKE_PREFIX_PATH="$prefix"
    done
else
    skip "CMake: cmake or g++ is not on this machine"
fi
try "the installed command runs" "$prefix/bin/saker" list

other="$work/other"
set -- -C "$root" --no-print-directory BUILD="$build" PREFIX="$other" LIBDIR="$other/lib64" "$@"
try "make install LIBDIR" make "$@" install
export PKG_CONFIG_PATH="$other/lib64/pkgconfig" LD_LIBRARY_PATH="$other/lib64"
if have pkg-config; then
    try "pkg-config with LIBDIR" sh -c "cd '$work' && $cc user.c \$(pkg-config --cflags --libs saker) -o other_user && ./other_user"
fi
if have cmake && have g++; then
    try "CMake with LIBDIR" sh -c "cmake -S '$work' -B '$work/cmake_other' -Dsaker_DIR='$other/lib64/cmake/saker' && cmake --build '$work/cmake_other' --target c_saker && ldd '$work/cmake_other/c_saker' | grep -q '$other/lib64/libsaker.so'"
fi
try "make uninstall" make "$@" uninstall
try "nothing of it is left" sh -c "[ -z \"\$(find '$other' ! -type d)\" ]"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
