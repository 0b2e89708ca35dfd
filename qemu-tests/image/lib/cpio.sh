# SPDX-License-Identifier: GPL-2.0-or-later
# Archives for the kernel's initramfs.

# make_cpio DIR FILE: everything below DIR, owned by root. Uses busybox of DIR: hosts may have no
# cpio. The size is a multiple of 512 bytes, so that archives can be concatenated.
make_cpio() {
	(
		cd "$1"
		find . -mindepth 1 -printf '%P\n' | LC_ALL=C sort |
			bin/busybox cpio -o -H newc -R 0:0 --quiet
	) >"$2"
	truncate -s %512 "$2"
}
