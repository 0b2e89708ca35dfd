# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The tree kernel modules are compiled in, still without kernel headers.
title='gcc and make in a tree'
needs=(base)
inputs=(lib/tree.sh packages/toolchain.txt)

build() {
	copy_tree "$need_base" "$out"
	# shellcheck disable=SC2046
	install_packages "$out" $(packages toolchain)
	rm -rf "$out"/var/lib/apt/lists/* "$out"/var/cache/apt/*.bin
}
