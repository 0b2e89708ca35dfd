# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The tree in which modules for one kernel are built.
title="tree with gcc and headers of $series"
needs=(toolchain kernel@@)
inputs=(lib/tree.sh)

build() {
	copy_tree "$need_toolchain" "$out"
	cp -a --reflink=auto "$need_kernel/headers/." "$out/"
	cp "$need_kernel/release" "$out/release"
	mkdir -p "$out/src" "$out/out"
	ln -sT "/usr/src/linux-headers-$(<"$need_kernel/release")" "$out/headers"
	in_tree "$out" make -C /headers kernelversion
}
