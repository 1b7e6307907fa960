package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// entry is a file in an archive, or a folder if its name ends in a slash.
type entry struct {
	name string
	mode int64
	data []byte
	uid  int
}

// writeTar writes the entries as a tar, with one time, and sorted by name.
func writeTar(w io.Writer, at time.Time, entries []entry) error {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	t := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: at, Uid: e.uid, Gid: e.uid, Format: tar.FormatPAX}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("archive %s: %w", e.name, err)
		}
		if _, err := t.Write(e.data); err != nil {
			return fmt.Errorf("archive %s: %w", e.name, err)
		}
	}
	return t.Close()
}

// writeTarGz compresses it too. The header of gzip has no name and no time.
func (r *release) writeTarGz(name string, entries []entry) error {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // a valid level
	if err := errors.Join(writeTar(z, r.time, entries), z.Close()); err != nil {
		return err
	}
	return os.WriteFile(r.file(name), out.Bytes(), 0o644)
}

// archive is for those who have no package: the binary with its texts.
func (r *release) archive(t target, binary string, w words) error {
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	entries := []entry{{name: r.name(t) + "/bin/auditrelay", mode: 0o755, data: program}}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		entries = append(entries, entry{name: r.name(t) + "/share/" + name, mode: 0o644, data: w[name]})
	}
	if t.os == "linux" {
		for _, file := range slices.Sorted(maps.Keys(systemdFiles)) {
			text, err := os.ReadFile(filepath.Join(r.root, file))
			if err != nil {
				return err
			}
			entries = append(entries, entry{name: r.name(t) + "/systemd/" + filepath.Base(file), mode: 0o644, data: text})
		}
	}
	return r.writeTarGz(r.name(t)+".tar.gz", entries)
}

// chart packs the Helm chart under the version's number. Its links to the rules and dashboards become
// files.
func (r *release) chart() error {
	folder := filepath.Join(r.root, "deploy/helm/auditrelay")
	number := chartNumber(r.number())
	var entries []entry
	var add func(dir, name string) error
	add = func(dir, name string) error {
		return eachFile(dir, func(file string, data []byte) error {
			if file == "Chart.yaml" && name == "" {
				data = regexp.MustCompile(`(?m)^(version|appVersion): .*$`).ReplaceAll(data, []byte("$1: "+number))
			}
			if file != ".helmignore" {
				entries = append(entries, entry{name: path.Join("auditrelay", name, file), mode: 0o644, data: data})
			}
			return nil
		}, func(link string) error { return add(filepath.Join(dir, link), path.Join(name, link)) })
	}
	if err := add(folder, ""); err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	return r.writeTarGz("auditrelay-chart-"+number+".tgz", entries)
}

// eachFile calls visit for each file below dir, and folder for each link to a folder.
func eachFile(dir string, visit func(name string, data []byte) error, folder func(name string) error) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			return errors.Join(err, folder(name))
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(name), data)
	})
}

// semver is a version number as packages and charts take it.
var semver = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// chartNumber is the version's number, or of a commit without a tag one before all others.
func chartNumber(number string) string {
	if semver.MatchString(number) {
		return number
	}
	return "0.0.0-dev." + regexp.MustCompile(`[^0-9A-Za-z]+`).ReplaceAllString("g"+number, ".")
}
