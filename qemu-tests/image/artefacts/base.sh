# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The tree all others start from: minimal Debian trixie, with the lists of trixie and backports.
title='minimal Debian trixie'
needs=()
inputs=(lib/tree.sh)

build() {
	local sources=$out/etc/apt/sources.list.d/lab.sources
	mkdir -p "$out"/etc/{dpkg/dpkg.cfg.d,apt/apt.conf.d,apt/sources.list.d} "$out/usr/sbin"
	printf '%s\n' force-unsafe-io path-exclude=/usr/share/{doc,man,info,locale,lintian,bug}/'*' \
		>"$out/etc/dpkg/dpkg.cfg.d/lab"
	printf '%s\n' 'Acquire::Languages "none";' 'APT::Install-Recommends "false";' \
		'Acquire::Retries "3";' 'APT::Cache-Start "100000000";' 'Dpkg::Use-Pty "false";' \
		'APT::Keep-Downloaded-Packages "true";' 'Binary::apt-get::APT::Sandbox::User "root";' \
		>"$out/etc/apt/apt.conf.d/90lab"
	# In namespaces of its own, because debootstrap mounts /proc in the tree.
	unshare --mount --pid --fork --kill-child --mount-proc \
		debootstrap --variant=minbase trixie "$out" "$mirror"
	rm -f "$out/etc/apt/sources.list"
	printf '%s\n' 'Types: deb' "URIs: $mirror" 'Suites: trixie trixie-backports' 'Components: main' \
		'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$sources"
	printf '#!/bin/sh\nexit 101\n' >"$out/usr/sbin/policy-rc.d"
	chmod 755 "$out/usr/sbin/policy-rc.d"
	in_tree "$out" apt-get -q update
	keep_downloads "$out"
	rm -rf "$out"/usr/share/{doc,man,info,locale,lintian,bug}/*
}
