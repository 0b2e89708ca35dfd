# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The cache: artefacts keyed by what they are made from, built aside, renamed when whole.
#
# An artefact NAME[@SERIES] is described by artefacts/NAME.sh (NAME@SERIES-VARIANT: by
# artefacts/NAME-VARIANT.sh, if there is one), which sets
#   needs=(…)   artefacts it is made from ("NAME@@": of the same kernel series)
#   inputs=(…)  files and directories it is made from, relative to qemu-tests/image
#   title=…     what the progress line says
# and defines build(), which fills the directory $out. While build() runs, need_NAME holds the
# path of each needed artefact ("-" written "_") and $series the kernel series.

image_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
checkout=$(cd "$image_dir/../.." && pwd)
cache=$(realpath -m "${PCILEND_CACHE:-/var/cache/pcilend}")
: "${build_id:=$$}" "${build_start:=$EPOCHREALTIME}"

die() {
	printf 'image: %s\n' "$*" >&2
	exit 1
}

# The user, the programs and the space that a build needs.
check_host() {
	local missing='' program
	((EUID == 0)) || die "not root: it makes device nodes and chroots; run it as root"
	for program in debootstrap dpkg-deb flock unshare xz zstd; do
		command -v "$program" >/dev/null || missing+=" $program"
	done
	[[ ! $missing ]] || die "missing programs:$missing; run tools/setup/install-packages"
	mkdir -p "$cache" || die "cannot make the cache directory; set PCILEND_CACHE to another one"
	[[ -e $cache/.locks ]] || (($(df --output=avail -k "$cache" | tail -n1) > 4 << 20)) ||
		die "less than 4 GiB free in $cache; free some, or set PCILEND_CACHE to another directory"
}

kernel_names() { # SEPARATOR: the names in kernels.txt
	sed -n 's/^\([^# ]\+\) .*/\1/p' "$image_dir/kernels.txt" | paste -sd "$1"
}

check_series() {
	kernel_names '\n' | grep -qxF -e "$1" || die "no kernel '$1': use --kernel $(kernel_names \|)"
}

suite_of() { # SERIES: the suite of Debian that it is of
	awk -v "name=$1" '$1 == name { print $2 }' "$image_dir/kernels.txt"
}

seconds_since() {
	local now=$EPOCHREALTIME us
	us=$((${now/[.,]/} - ${1/[.,]/}))
	printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10))
}

progress() { # SECONDS TEXT
	printf '%7s s  %s\n' "$1" "$2" >&2
}

# Hash of the named files (and of all files below the named directories): content, mode, path.
hash_inputs() {
	(
		cd "$image_dir"
		find "$@" -type f -printf '%m %p\n' | LC_ALL=C sort
		find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
	) | sha256sum | cut -c1-12
}

declare -A made=()

# need NAME[@SERIES]: makes the artefact if it is not in the cache; its path is left in $artefact.
# Not to be called where bash ignores set -e (in conditions).
need() {
	local name=$1 base=${1%@*} series='' title='' dep key dir log start
	local -a needs=() inputs=() ids=()
	if [[ ${made[$name]-} ]]; then
		artefact=${made[$name]}
		return
	fi
	if [[ $name == *@* ]]; then
		series=${name#*@}
		[[ $series != *-* || ! -e $image_dir/artefacts/$base-${series#*-}.sh ]] || base+=-${series#*-}
	fi
	source "$image_dir/artefacts/$base.sh"
	local -a my_needs=("${needs[@]}") my_inputs=("${inputs[@]}")
	local my_title=$title

	for dep in "${my_needs[@]}"; do
		need "${dep/%@@/@$series}"
		ids+=("$(<"$artefact/.id")")
		local "need_$(tr - _ <<<"${dep%%@*}")=$artefact"
	done

	key=$({
		printf '%s\n' "$name" "${ids[@]}"
		hash_inputs "artefacts/$base.sh" "${my_inputs[@]}"
	} | sha256sum | cut -c1-12)
	dir=$cache/$name-$key
	artefact=$dir made[$name]=$dir
	if [[ -e $dir/.id ]]; then
		touch -c "$dir"
		return
	fi

	# Whoever started us may have been killed.
	kill -0 "$build_id" 2>/dev/null || exit 1
	mkdir -p "$cache"/{.building,.locks,logs}
	local lock
	exec {lock}>>"$cache/.locks/$name-$key"
	if ! flock -n "$lock"; then
		local holder
		holder=$(head -n1 "$cache/.locks/$name-$key.holder" 2>/dev/null || true)
		[[ $holder == "$build_id" ]] ||
			printf '           waiting for another build to finish %s\n' "$name" >&2
		flock "$lock"
	fi
	if [[ ! -e $dir/.id ]]; then
		printf '%s\n' "$build_id" >"$cache/.locks/$name-$key.holder"
		local out=$cache/.building/$name-$key
		log=$cache/logs/$name.log
		start=$EPOCHREALTIME
		rm -rf --one-file-system "$out"
		mkdir -p "$out"
		source "$image_dir/artefacts/$base.sh"
		set +e
		(
			set -eE
			trap 'printf "%s:%s: failed: %s\n" "${BASH_SOURCE[0]}" "$LINENO" "$BASH_COMMAND"' ERR
			build
		) >"$log" 2>&1 </dev/null
		local rc=$?
		set -e
		if ((rc)); then
			printf 'image: making %s failed; the end of %s:\n' "$name" "$log" >&2
			tail -n 15 "$log" | sed 's/^/  | /' >&2
			exit 1
		fi
		printf '%s %s\n' "$key" "$EPOCHREALTIME" >"$out/.id"
		mv -T "$out" "$dir"
		progress "$(seconds_since "$start")" "$name: $my_title"
	fi
	artefact=$dir
	exec {lock}>&-
}

# Removes what interrupted builds left behind, artefacts that were not used for a day and have a
# newer version or are of a kernel that there is no more, and old packages.
prune_cache() {
	local dir lock name known
	local -A newest=()
	known="|$(kernel_names '|')|"
	for dir in "$cache"/.building/*; do
		[[ -d $dir ]] || continue
		exec {lock}>>"$cache/.locks/${dir##*/}"
		! flock -n "$lock" || rm -rf --one-file-system "$dir"
		exec {lock}>&-
	done
	while IFS= read -r dir; do
		name=${dir%-*}
		if [[ ! ${newest[$name]-} && ($name != *@* || $known == *"|${name#*@}|"*) ]]; then
			newest[$name]=$dir
		elif [[ $(find "$cache/$dir" -maxdepth 0 -mmin +1440) ]]; then
			rm -rf --one-file-system "${cache:?}/$dir"
		fi
	done < <(find "$cache" -mindepth 1 -maxdepth 1 -type d -name '*-????????????' -printf '%T@ %f\n' |
		sort -rn | cut -d' ' -f2)
	find "$cache/apt" -name '*.deb' -ctime +60 -delete
}
