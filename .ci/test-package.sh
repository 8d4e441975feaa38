#!/bin/sh
# Run by .ci/test-packages in a bare system that has /aligntool.deb and .rpm: `prepare` with a network, `check` without.

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
    rm old.img page.html new.img
}

# shellcheck disable=SC2086 # commands of several words
check() { # PACKAGE HOW-TO-INSTALL HOW-TO-REMOVE
    files >before
    expect 0 $2
    try
    expect 0 $3
    files >after
    expect 0 diff before after
    # shellcheck disable=SC1091
    . /etc/os-release
    echo "test-packages: $1 on $PRETTY_NAME, $(python3 --version): installed, ran, removed; $(wc -l <after) files as before"
}

case $1 in
prepare) # what the package depends on is not part of what it leaves behind
    apt-get -qq update
    apt-get -qq -y --no-install-recommends satisfy \
        "$(dpkg-deb --field /aligntool.deb Depends)" "$(dpkg-deb --field /aligntool.deb Recommends)"
    apt-get -qq -y --no-install-recommends install rpm
    ;;
check)
    cd /tmp || exit
    expect 1 grep '^ *[^l ][^o:]*:' /proc/net/dev # only lo
    check .deb "dpkg --install /aligntool.deb" "dpkg --purge aligntool"
    mkdir -p /usr/share/licenses # of the package filesystem where .rpm is at home
    mkdir -p /usr/lib/systemd/catalog # of systemd
    rpm="rpm --dbpath=/tmp/rpmdb --noplugins" # the plugin unshare needs / to be a mount
    check .rpm "$rpm --install --nodeps /aligntool.rpm" "$rpm --erase aligntool"
    ;;
esac
