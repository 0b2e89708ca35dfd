# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# A file system to run things from (chroot) on a host VM: Debian with what makes hosts a cluster, and its file
# system. Not part of the lab; scenarios attach it.
#   cluster.ext4
title="Debian with corosync, dlm_controld, GFS2's tools"
needs=(base host-tree)
inputs=(lib/tree.sh lib/disk.sh packages/cluster.txt)

build() {
	local tree=$out/tree
	mkdir "$tree"
	copy_tree "$need_base" "$tree"
	# shellcheck disable=SC2046
	install_packages "$tree" $(packages cluster)
	lean_tree "$tree"
	make_ext4 "$need_host_tree" "$tree" "$out/cluster.ext4" 512M cluster -O ^has_journal
	rm -rf "$tree"
}
