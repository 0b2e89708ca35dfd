# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Archives for the kernel's initramfs.

# make_cpio BUSYBOX DIR: everything below DIR, owned by root, to stdout. The size is a multiple of
# 512 bytes, so that archives can be concatenated. BUSYBOX, because hosts may have no cpio.
make_cpio() {
	(
		cd "$2"
		find . -mindepth 1 -printf '%P\n' | LC_ALL=C sort | "$1" cpio -o -H newc -R 0:0
	) | dd bs=512 conv=sync iflag=fullblock status=none
}
