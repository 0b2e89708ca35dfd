# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# An installed Debian's root file system without kernel and our files: as the packages have left it.
title='packages of an installed Debian'
needs=(base)
inputs=(lib/tree.sh packages/installed.txt)

build() {
	copy_tree "$need_base" "$out"
	# shellcheck disable=SC2046
	install_packages "$out" $(packages installed)
	rm -rf "$out"/var/lib/apt/lists/* "$out"/var/cache/apt/*.bin "$out"/usr/sbin/policy-rc.d
}
