# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# File systems of what is attached to VMs.

# lean_tree TREE: takes out what only apt needs, and lets the tree go without policy-rc.d.
lean_tree() {
	rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/{apt,debconf}/* "$1"/var/log/* "$1/usr/sbin/policy-rc.d"
}

# make_ext4 TOOLS TREE FILE SIZE LABEL [OPTIONS…]: with mke2fs of the tree TOOLS.
make_ext4() {
	local tools=$1 tree=$2 file=$3 size=$4 label=$5
	local -a binds=("$tree" /mnt "${file%/*}" /media)
	shift 5
	truncate -s "$size" "$file"
	in_tree "$tools" mke2fs -q -t ext4 -m 0 -E lazy_itable_init=1,root_owner=0:0 -L "$label" "$@" \
		-d /mnt "/media/${file##*/}"
}
