# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Working in Debian trees: running commands in one, installing packages into one.

mirror=${PCILEND_MIRROR:-http://deb.debian.org/debian}

# Pairs SOURCE DEST that in_tree mounts inside the tree; a caller sets its own local array.
binds=()

# in_tree TREE CMD…: runs CMD chrooted in TREE. All mounts live in a private mount namespace and
# die with it, as does every process left behind, also when we are killed.
in_tree() {
	local tree=$1
	shift
	# shellcheck disable=SC2016
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
		DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} \
		unshare --mount --pid --fork --kill-child bash -ec '
			tree=$1 binds=$2
			shift 2
			mount -t proc proc "$tree/proc"
			mount --rbind /dev "$tree/dev"
			mount -t tmpfs tmpfs "$tree/tmp"
			for ((; binds; binds -= 2)); do
				mount --bind "$1" "$tree$2"
				shift 2
			done
			exec chroot "$tree" "$@"' in_tree "$tree" ${#binds[@]} "${binds[@]}" "$@"
}

# copy_tree FROM TO: FROM's content without the cache's own files.
copy_tree() {
	cp -a --reflink=auto "$1/." "$2/"
	rm -f "$2/.id"
}

packages() { # LIST-FILE: the names in it
	sed 's/#.*//' "$image_dir/packages/$1.txt" | xargs
}

# install_packages TREE APT-ARGS…
install_packages() {
	local tree=$1
	shift
	offer_downloads "$tree"
	in_tree "$tree" apt-get -y -q install "$@" || {
		in_tree "$tree" apt-get -q update
		in_tree "$tree" apt-get -y -q install "$@"
	}
	keep_downloads "$tree"
}

# download_packages TREE VERSION NAME…: into the shared cache, by the lists of TREE.
download_packages() {
	local tree=$1 version=$2
	shift 2
	offer_downloads "$tree"
	# shellcheck disable=SC2016
	in_tree "$tree" sh -c 'cd /var/cache/apt/archives && exec apt-get -q download "$@"' sh \
		"${@/%/=$version}"
	keep_downloads "$tree"
}

# extract_packages VERSION DIR NAME…: content of downloaded packages, without their scripts.
extract_packages() {
	local version=$1 dir=$2 name
	shift 2
	for name in "$@"; do
		dpkg-deb -x "$cache/apt/${name}_${version}"_*.deb "$dir"
	done
}

# Downloads are shared among trees by hard links.
offer_downloads() { # TREE
	mkdir -p "$cache/apt"
	find "$cache/apt" -name '*.deb' -exec ln -t "$1/var/cache/apt/archives" {} +
}

keep_downloads() { # TREE
	local deb
	mkdir -p "$cache/apt"
	for deb in "$1"/var/cache/apt/archives/*.deb; do
		mv -n "$deb" "$cache/apt/${deb##*/}"
		rm -f "$deb"
	done
}
