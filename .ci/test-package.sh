#!/bin/sh
# Run by .ci/test-packages in a bare system that has /aligntool.deb, .rpm and .pyz, and on one of them /PKGBUILD with its
# source archive: `prepare` with a network, `check` without.

files() {
    find / -xdev -path /tmp -prune -o -path /run -prune -o -path /var/log -prune -o -path '/var/lib/dpkg/*-old' -prune -o -print | sort
}

expect() { # STATUS COMMAND...
    wanted=$1 status=0
    shift
    "$@" || status=$?
    [ "$status" = "$wanted" ] || {
        echo "$*: exit $status, not $wanted"
        exit 1
    }
}

try() { # what the package is for
    expect 0 aligntool --version
    expect 0 env LC_ALL=ja_JP.UTF-8 aligntool explain AT101 >text
    expect 0 grep -q パーティション text
    expect 0 aligntool demo
    expect 0 aligntool demo old.img
    device=$(losetup --find --show old.img)
    trap 'losetup --detach "$device"' EXIT
    expect 1 aligntool audit "$device"
    expect 0 aligntool realign "$device" --yes
    expect 0 aligntool audit "$device"
    expect 0 aligntool report "$device" -o page.html
    losetup --detach "$device"
    trap - EXIT
    truncate --size 64M new.img
    expect 0 aligntool layout new.img --part rest:linux --yes
    expect 0 aligntool audit new.img
    expect 0 bash -c '. /usr/share/bash-completion/completions/aligntool && complete -p aligntool'
    rm old.img page.html new.img text
}

# shellcheck disable=SC2086 # commands of several words
check() { # PACKAGE HOW-TO-INSTALL HOW-TO-REMOVE
    files >before
    expect 0 $2
    try
    if [ "$1" = .deb ]; then # as by systemctl enable
        ln -s /lib/systemd/system/aligntool-audit.timer /etc/systemd/system/timers.target.wants/
    fi
    expect 0 $3
    files >after
    expect 0 diff before after
    # shellcheck disable=SC1091
    . /etc/os-release
    echo "test-packages: $1 on $PRETTY_NAME, $(python3 --version): installed, ran, removed; $(wc -l <after) files as before"
}

# Installed as on Arch, with Debian's names of dependencies and its folder of Python packages; pacman's own files in /tmp.
make_pkg() {
    mkdir /tmp/arch /tmp/pacman
    cp /PKGBUILD /aligntool-*.tar.gz /tmp/arch
    chown -R nobody /tmp/arch
    printf '[options]\n%s\n' SigLevel=Never LocalFileSigLevel=Never DBPath=/tmp/pacman CacheDir=/tmp/pacman \
        HookDir=/tmp/pacman LogFile=/tmp/pacman/log >/tmp/pacman.conf
    (cd /tmp/arch && setpriv --reuid=nobody --clear-groups env HOME=/tmp/arch DEB_PYTHON_INSTALL_LAYOUT=deb \
        makepkg --nodeps)
}

case $1 in
prepare) # what the package depends on is not part of what it leaves behind
    apt-get -qq update
    apt-get -qq -y --no-install-recommends satisfy \
        "$(dpkg-deb --field /aligntool.deb Depends)" "$(dpkg-deb --field /aligntool.deb Recommends)"
    apt-get -qq -y --no-install-recommends install rpm
    [ ! -e /PKGBUILD ] || apt-get -qq -y --no-install-recommends install makepkg pacman-package-manager binutils file \
        libarchive-tools python-is-python3 python3-build python3-hatchling python3-installer python3-typer
    ;;
check)
    cd /tmp || exit
    expect 1 grep '^ *[^l ][^o:]*:' /proc/net/dev # only lo
    expect 0 python3 -I -S /aligntool.pyz demo
    check .deb "dpkg --install /aligntool.deb" "dpkg --purge aligntool"
    if [ -e /PKGBUILD ]; then
        expect 0 make_pkg
        pacman="pacman --config /tmp/pacman.conf --noconfirm --nodeps --nodeps"
        check .pkg "$pacman --upgrade /tmp/arch/aligntool-*.pkg.tar.*" "$pacman --remove aligntool"
    fi
    mkdir -p /usr/share/licenses # of the package filesystem where .rpm is at home
    mkdir -p /usr/lib/systemd/catalog # of systemd
    rpm="rpm --dbpath=/tmp/rpmdb --noplugins" # the plugin unshare needs / to be a mount
    check .rpm "$rpm --install --nodeps /aligntool.rpm" "$rpm --erase aligntool"
    ;;
esac
