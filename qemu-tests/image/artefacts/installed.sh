# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The disk of a host VM that is an installed Debian: systemd, and what the packages' defaults are. Booted
# once, as the usual disk (root.sh).
#   installed.ext4
title="disk of an installed Debian, kernel $series"
needs=(installed-tree host-tree modules@@ guest kernel@@ initrd@@ qemu)
inputs=(installed host/modprobe.conf lib/tree.sh lib/cpio.sh lib/warm.sh ../../tools/systemd/modules-load.conf)

build() {
	local tree=$out/tree name wants=etc/systemd/system/multi-user.target.wants
	mkdir "$tree"
	copy_tree "$need_installed_tree" "$tree"
	cp -a "$need_modules/lib/modules" "$tree/usr/lib/"
	(
		cd "$tree"
		install -D -m 755 "$image_dir/installed/init" usr/lib/pcilend-lab/init
		install -m 644 "$image_dir/installed/pcilend-lab-agent.service" etc/systemd/system/
		install -D -m 644 "$image_dir/installed/tmpfiles.conf" etc/tmpfiles.d/pcilend-lab.conf
		install -D -m 644 "$image_dir/installed/system.conf" etc/systemd/system.conf.d/pcilend-lab.conf
		install -m 644 "$image_dir/host/modprobe.conf" etc/modprobe.d/lab.conf
		install -D -m 644 "$image_dir/installed/modules-load.conf" etc/modules-load.d/lab.conf
		install -m 644 "$checkout/tools/systemd/modules-load.conf" etc/modules-load.d/pcilend.conf
		mkdir -p "$wants" usr/share/pcilend-lab/guest var/lib/libvirt/images/pcilend-lab
		cp "$need_guest"/{vmlinux,vmlinuz,initrd} usr/share/pcilend-lab/guest/
		ln -s /etc/systemd/system/pcilend-lab-agent.service "$wants/"
		# As the package does. The unit comes with a lab.
		ln -s /usr/lib/systemd/system/pcilend.service "$wants/"
		# Nobody logs in on the console, which is a log, and what is done once a day is not done here.
		for name in getty@tty1.service serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer \
			dpkg-db-backup.timer e2scrub_all.timer fstrim.timer logrotate.timer; do
			ln -sf /dev/null "etc/systemd/system/$name"
		done
		rm -f etc/machine-id etc/hostname etc/hosts
	)
	local -a binds=("$out" /mnt)
	truncate -s 6G "$out/installed.ext4"
	in_tree "$need_host_tree" mke2fs -q -t ext4 -m 0 -O ^metadata_csum,^orphan_file \
		-J size=16 -E lazy_itable_init=1,root_owner=0:0 -L pcilend-lab -d /mnt/tree /mnt/installed.ext4
	rm -rf "$tree"
	mkdir "$out/scratch"
	warm_disk "$out/installed.ext4" "$out/scratch" "$image_dir/installed/first-boot" 900
	in_tree "$need_host_tree" e2fsck -fp /mnt/installed.ext4 || (($? == 1))
	rm -rf "$out/scratch"
}
