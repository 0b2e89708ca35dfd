# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The host VM's root file system without kernel, our files and what the lab does not need.
title='packages of the host VM'
needs=(base)
inputs=(lib/tree.sh packages/host.txt)

build() {
	copy_tree "$need_base" "$out"
	# shellcheck disable=SC2046
	install_packages "$out" $(packages host)
	(
		cd "$out"
		rm -rf dev/* var/lib/apt/lists/* var/cache/{apt,debconf}/* var/log/* var/lib/dpkg/info \
			usr/share/{doc,man,info,locale,zoneinfo,perl5,bash-completion,lintian,bug} \
			usr/lib/python3* usr/lib/x86_64-linux-gnu/{gconv,perl-base} usr/lib/apt \
			usr/lib/systemd/system usr/lib/systemd/catalog usr/lib/udev/hwdb.{d,bin} etc/systemd \
			usr/bin/pkttyagent

		# Coldplug of a few devices, not of a desktop.
		cd usr/lib/udev/rules.d
		local rule
		for rule in *; do
			case $rule in
			50-udev-default.rules | 60-mdevctl.rules | 80-drivers.rules) ;;
			*) rm -f "$rule" ;;
			esac
		done
	)
}
