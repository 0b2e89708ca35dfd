# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The tree whole kernels are compiled in.
title='tree that compiles kernels'
needs=(toolchain)
inputs=(lib/tree.sh packages/kernel.txt)

build() {
	copy_tree "$need_toolchain" "$out"
	in_tree "$out" apt-get -q update
	# shellcheck disable=SC2046
	install_packages "$out" $(packages kernel)
	mkdir "$out"/{src,out}
	rm -rf "$out"/var/lib/apt/lists/* "$out"/var/cache/apt/*.bin
}
