// Command release makes everything that a version consists of, in a folder: static binaries in
// archives, packages (deb, rpm), an OCI image, the Helm chart, an SBOM for each binary, and
// checksums. It needs no daemon and no root. From one commit it makes the same bytes each time: all
// times are the commit's, and all lists are sorted.
//
// It is a module of its own, so that the product depends on nothing here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is one run.
type release struct {
	root    string    // of the repository
	out     string    // the folder to fill
	version string    // as git describes it, such as v1.2.3
	pgo     string    // the profile to compile with, or off
	time    time.Time // of the commit
	targets []target
}

// number is the version without its v.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// name is the start of the names of a target's files.
func (r *release) name(t target) string {
	return fmt.Sprintf("auditrelay_%s_%s_%s", r.number(), t.os, t.arch)
}

// file is a path in the folder.
func (r *release) file(name string) string { return filepath.Join(r.out, name) }

// target is what a binary runs on.
type target struct{ os, arch string }

func main() {
	r := &release{}
	var targets string
	flag.StringVar(&r.root, "root", ".", "the repository's `FOLDER`")
	flag.StringVar(&r.out, "out", "dist", "the `FOLDER` to fill; what is in it is removed")
	flag.StringVar(&r.version, "version", "", "the `VERSION`, such as v1.2.3")
	flag.StringVar(&r.pgo, "pgo", "off", "the `PROFILE` to compile with")
	flag.StringVar(&targets, "targets", "linux/amd64,linux/arm64,darwin/arm64", "the `TARGETS` to build for")
	flag.Parse()
	for name := range strings.SplitSeq(targets, ",") {
		system, arch, _ := strings.Cut(name, "/")
		r.targets = append(r.targets, target{system, arch})
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := r.run(ctx)
	stop()
	if err != nil {
		log.SetFlags(0)
		log.Fatalf("release: %v", err)
	}
}

func (r *release) run(ctx context.Context) error {
	if r.version == "" {
		return errors.New("name the version with -version")
	}
	seconds, err := r.command(ctx, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
	if err != nil {
		return fmt.Errorf("read the commit's time: %w", err)
	}
	r.time = time.Unix(unix, 0).UTC()
	if changed, err := r.command(ctx, "git", "status", "--porcelain"); err != nil || changed != "" {
		fmt.Println("WARNING: the tree has changes that are in no commit, so nobody can make these bytes again")
	}
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "auditrelay-release.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	return r.make(ctx, work)
}

// make does everything in order. Whatever fails ends it, without checksums.
func (r *release) make(ctx context.Context, work string) error {
	binaries := map[target]string{}
	for _, t := range r.targets {
		binary := filepath.Join(work, t.os+"-"+t.arch, "auditrelay")
		if err := r.build(ctx, t, binary); err != nil {
			return err
		}
		if err := r.writeSBOM(binary, r.file(r.name(t)+".cdx.json")); err != nil {
			return err
		}
		binaries[t] = binary
	}
	words, err := r.words(ctx, work, binaries)
	if err != nil {
		return err
	}
	for _, t := range r.targets {
		if err := r.archive(t, binaries[t], words); err != nil {
			return err
		}
		if t.os != "linux" {
			continue
		}
		if err := r.packages(t, binaries[t], words, work); err != nil {
			return err
		}
	}
	if err := r.image(binaries, work); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return err
	}
	if err := r.changes(); err != nil {
		return err
	}
	return r.checksums()
}

// command runs a program in the repository, and returns what it prints.
func (r *release) command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// checksums writes SHA256SUMS, as sha256sum --check reads it.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, entry := range entries {
		sum, err := sha256Of(r.file(entry.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, sum+"  "+entry.Name()+"\n")
	}
	slices.Sort(lines)
	text := strings.Join(lines, "")
	fmt.Print(text)
	return os.WriteFile(r.file("SHA256SUMS"), []byte(text), 0o644)
}
