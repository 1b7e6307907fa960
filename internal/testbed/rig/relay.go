package rig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Relay is `auditrelay run` in a folder of its own.
type Relay struct {
	// Ingest and Admin are its listeners, HOST:PORT. They are known before its start, for
	// its configuration.
	Ingest, Admin string

	binary, dir string
	process     *Process // nil: never started
}

// NewRelay makes dir and prepares a relay with all its files there.
func NewRelay(ctx context.Context, binary, dir string) (*Relay, error) {
	free, err := FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the relay's folder: %w", err)
	}
	return &Relay{Ingest: free[0], Admin: free[1], binary: binary, dir: dir}, nil
}

// DataDir is the right value for data_dir.
func (r *Relay) DataDir() string { return filepath.Join(r.dir, "data") }

// Start starts the relay with a configuration in YAML, and waits until it takes pushes,
// at most for within. env is added to its environment.
func (r *Relay) Start(ctx context.Context, config string, within time.Duration, env ...string) error {
	file := filepath.Join(r.dir, "relay.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return fmt.Errorf("write the relay's configuration: %w", err)
	}
	command := Command{
		Name: "the relay", Args: []string{r.binary, "run", "--config", file},
		Env: env, Log: filepath.Join(r.dir, "relay.log"),
	}
	var err error
	if r.process, err = command.Start(); err != nil {
		return err
	}
	return Until(ctx, within, "the relay is ready", func() bool { return r.Ready(ctx) }, r.process)
}

// Process is the relay's last run, nil before the first.
func (r *Relay) Process() *Process { return r.process }

// Ready asks the relay whether it takes pushes.
func (r *Relay) Ready(ctx context.Context) bool {
	code, _, err := r.Ask(ctx, "/readyz")
	return err == nil && code == http.StatusOK
}

// Ask reads a page of the relay's private listener.
func (r *Relay) Ask(ctx context.Context, path string) (code int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Admin+path, nil)
	if err != nil {
		return 0, "", err
	}
	ShowToken(req, r.DataDir())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// ShowToken adds the token of the private pages to a request, if the relay with this
// data_dir has made one.
func ShowToken(r *http.Request, dataDir string) {
	if token, err := os.ReadFile(filepath.Join(dataDir, "admin.token")); err == nil {
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
}

// Close kills a running relay.
func (r *Relay) Close() {
	if r.process != nil {
		r.process.Kill()
	}
}
