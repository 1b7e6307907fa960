package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
)

// lokiBuild builds Loki in the given folder, if it is not there yet.
//
//go:embed build-loki.sh
var lokiBuild []byte

// lokiSelector finds events delivered by the relay with its default labels.
const lokiSelector = `{service_name="auditrelay"}`

func startLoki(ctx context.Context, s *session) (*place, error) {
	binary, err := s.lokiBinary(ctx)
	if err != nil {
		return nil, err
	}
	dir := s.folder("loki")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for loki: %w", err)
	}
	// By default it takes 4 MB a second, and 3 MB of one stream.
	loki, err := realservers.StartLoki(ctx, binary, dir, "ingestion_rate_mb: 64", "ingestion_burst_size_mb: 128",
		"per_stream_rate_limit: 64MB", "per_stream_rate_limit_burst: 128MB")
	if err != nil {
		return nil, err
	}
	since := time.Now().Add(-time.Minute)
	return &place{
		targets: []target{{
			name: "loki", sink: "loki",
			section: fmt.Sprintf("loki: {url: %q}", loki.URL+"/loki/api/v1/push"),
			read: func(ctx context.Context, add func(id string)) error {
				ids, err := loki.IDs(ctx, lokiSelector, since)
				addCounted(ids, add)
				return err
			},
		}},
		// There is one process only: nobody takes over, and its memory comes back from
		// its write-ahead log.
		outage: &outage{
			kill: func(context.Context) (string, error) { loki.Kill(); return "loki", nil },
			heal: loki.Restart,
		},
		tails: loki.Tail,
		close: loki.Kill,
	}, nil
}

// addCounted adds each id as often as it was counted.
func addCounted(ids map[string]int, add func(id string)) {
	for id, n := range ids {
		for range n {
			add(id)
		}
	}
}

// lokiBinary builds Loki once, in some minutes.
func (s *session) lokiBinary(ctx context.Context) (string, error) {
	version := regexp.MustCompile(`(?m)^version=(\S+)$`).FindSubmatch(lokiBuild)
	if version == nil {
		return "", fmt.Errorf("build-loki.sh names no version")
	}
	dir := filepath.Join(s.cache, "loki-"+string(version[1]))
	binary := filepath.Join(dir, "loki")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", &skip{"there is no go here, which builds Loki"}
	}
	script := s.folder("build-loki.sh")
	if err := os.WriteFile(script, lokiBuild, 0o700); err != nil {
		return "", fmt.Errorf("write build-loki.sh: %w", err)
	}
	return binary, s.build(ctx, "build-loki", "sh", script, dir)
}
