package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// build compiles the product for t, statically.
func (r *release) build(ctx context.Context, t target, to string) error {
	fmt.Printf("-- %s/%s\n", t.os, t.arch)
	pgo := r.pgo
	if pgo != "off" {
		pgo = filepath.Join(r.root, pgo)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-pgo="+pgo,
		"-gcflags=all=-dwarf=false", "-ldflags", "-s -w -buildid= -X main.version="+r.version, "-o", to, "./cmd/auditrelay")
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	// Whatever a person has set for daily work must not get into a release.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOEXPERIMENT=", "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOOS="+t.os, "GOARCH="+t.arch)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build for %s/%s: %w", t.os, t.arch, err)
	}
	return static(to)
}

// static refuses a binary that needs a library at run time, or was built with cgo: such a one ends with
// an abort of its thread library under a limit of its address space (RLIMIT_AS), where a static one runs on.
func static(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read how %s was built: %w", path, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" {
		return fmt.Errorf("%s was built with cgo; build it with CGO_ENABLED=0", path)
	}
	if settings["GOOS"] != "linux" {
		return nil // macOS has no static binaries: each one uses its libSystem
	}
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return errors.New(path + " is linked dynamically; build it with CGO_ENABLED=0")
		}
	}
	return nil
}

func sha256Of(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
