package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// systemdFiles are the packages' files for systemd, with where they go.
var systemdFiles = map[string]string{
	"deploy/systemd/auditrelay.service":  "/usr/lib/systemd/system/auditrelay.service",
	"deploy/systemd/auditrelay.socket":   "/usr/lib/systemd/system/auditrelay.socket",
	"deploy/systemd/auditrelay.sysusers": "/usr/lib/sysusers.d/auditrelay.conf",
}

// The scripts of the packages. Nothing is started at an installation, since there is no configuration yet;
// an upgrade restarts a relay that runs, and a removal stops it. The data stays. The relay's user may read
// the folder of its configuration, and not change it: in an image that is only built, too.
//
// Nobody waits for the restart: one that cannot start, or whose cluster is away, is no fault of the package.
const (
	afterInstall = `#!/bin/sh
set -e
[ -z "$DPKG_ROOT" ] || exit 0
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers auditrelay.conf
  chgrp auditrelay /etc/auditrelay
  chmod 0750 /etc/auditrelay
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart --no-block auditrelay.service
`
	beforeRemove = `#!/bin/sh
set -e
case "$1" in upgrade | 1) exit 0 ;; esac
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
systemctl disable --now auditrelay.socket auditrelay.service
`
	afterRemove = `#!/bin/sh
set -e
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
`
)

// packages makes the deb and the rpm of a target.
func (r *release) packages(t target, binary string, w words, work string) error {
	dir := filepath.Join(work, t.os+"-"+t.arch, "package")
	contents, err := r.contents(dir, binary, w)
	if err != nil {
		return fmt.Errorf("gather the files of the packages: %w", err)
	}
	scripts := nfpm.Scripts{PostInstall: filepath.Join(dir, "after-install"), PreRemove: filepath.Join(dir, "before-remove"), PostRemove: filepath.Join(dir, "after-remove")}
	for path, text := range map[string]string{scripts.PostInstall: afterInstall, scripts.PreRemove: beforeRemove, scripts.PostRemove: afterRemove} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			return err
		}
	}
	for _, p := range []nfpm.PackagerWithExtension{deb.Default, rpm.DefaultRPM} {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "auditrelay", Arch: t.arch, Platform: t.os, Version: chartNumber(r.number()), Release: "1", MTime: r.time,
			Section: "net", Priority: "optional", Maintainer: "auditrelay <https://github.com/auditrelay/auditrelay>", License: "Apache-2.0",
			Homepage: "https://github.com/auditrelay/auditrelay", DisableGlobbing: true,
			Description: "durable relay of authentication event logs\n Keeps every pushed event before it answers, delivers it to Kafka, NATS, Loki,\n Datadog, webhooks and files, and keeps a provable audit trail of settings.",
			Overridables: nfpm.Overridables{
				Contents: contents, Scripts: scripts, Recommends: []string{"ca-certificates"},
				RPM: nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons"},
			},
		})
		if err := nfpm.PrepareForPackager(info, p.ConventionalExtension()[1:]); err != nil {
			return fmt.Errorf("prepare a package: %w", err)
		}
		var out bytes.Buffer
		if err := p.Package(info, &out); err != nil {
			return fmt.Errorf("make the %s for %s: %w", p.ConventionalExtension(), t.arch, err)
		}
		if err := os.WriteFile(r.file(r.name(t)+p.ConventionalExtension()), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// contents writes the texts to dir, and lists all files of a package.
func (r *release) contents(dir, binary string, w words) (files.Contents, error) {
	all := map[string][]byte{}
	for file, to := range systemdFiles {
		text, err := os.ReadFile(filepath.Join(r.root, file))
		if err != nil {
			return nil, err
		}
		all[to] = bytes.ReplaceAll(text, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	}
	for name, text := range w {
		all["/usr/share/"+name] = text
	}
	of := func(mode os.FileMode) *files.ContentFileInfo {
		return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time}
	}
	list := files.Contents{
		{Source: binary, Destination: "/usr/bin/auditrelay", FileInfo: of(0o755)},
		{Destination: "/etc/auditrelay", Type: "dir", FileInfo: of(0o700)},
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		source := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(source, all[name], 0o644); err != nil {
			return nil, err
		}
		list = append(list, &files.Content{Source: source, Destination: name, FileInfo: of(0o644)})
	}
	return list, nil
}
