package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// followEvery is the time between two looks at the files that the configuration names.
const followEvery = 2 * time.Second

// contents are hashes of what files hold, by their paths. It does not matter how a file was
// replaced: in place, by a rename, or by a link in its path, as Kubernetes does. The hash of a file
// that cannot be read is zero.
type contents map[string][sha256.Size]byte

// mostRead bounds what is read of a file. A larger one is no file that the relay can use.
const mostRead = 1 << 20

func contentsOf(files map[string]string) contents {
	all := contents{}
	for _, file := range files {
		all[file], _ = hashFile(file) // zero: its user says why it cannot be read
	}
	return all
}

func hashFile(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return sum, err
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(f, mostRead)); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// since names the fields whose files differ from what they held before, sorted.
func (c contents) since(before contents, files map[string]string) (fields []string) {
	for field, file := range files {
		if was, known := before[file]; known && was != c[file] {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

// follower uses changed files. It is of one goroutine.
type follower struct {
	*process
	last    contents // of the look before
	failing retry.Failure
}

// followFiles looks at the files until the relay stops.
func (r *process) followFiles() {
	r.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "auditrelay_config_files_usable",
		Help: "1 if the files that the configuration names are used as they are on disk; 0 if a changed one cannot be used, so that what it held before is.",
	}, func() float64 {
		if r.reload.filesError() != "" {
			return 0
		}
		return 1
	}))
	r.admin.AddCheck(admin.Check{Name: "files", Probe: func(context.Context) (string, error) {
		if text := r.reload.filesError(); text != "" {
			return "warning: " + text, nil
		}
		return "those that the configuration names are used as they are on disk", nil
	}})
	f := &follower{process: r}
	r.stack.push("files", background(func(ctx context.Context) {
		for retry.Sleep(ctx, cmp.Or(r.reload.Every, followEvery)) == nil {
			f.look(ctx)
		}
	}))
}

// look uses files that have changed, once it has seen them twice as they are: one may be written
// at present. What cannot be used is tried again at each look.
func (f *follower) look(ctx context.Context) {
	f.reload.turn.Lock()
	defer f.reload.turn.Unlock()
	now := contentsOf(f.reload.loaded.Files)
	steady := maps.Equal(now, f.last)
	f.last = now
	changed := now.since(f.reload.used, f.reload.loaded.Files)
	var err error
	switch {
	case len(changed) == 0 && f.reload.sure:
	case !steady:
		return
	default:
		err = f.useFiles(ctx, changed, now)
	}
	if ctx.Err() != nil {
		return
	}
	f.reload.setFilesError(err)
	if err == nil {
		f.failing.Over()
	} else if f.failing.Again(err.Error()) {
		f.log.Warn("changed files cannot be used; what they held before is used, and they are tried again", "fields", strings.Join(changed, ", "), "error", err)
	}
}

// useFiles applies the configuration with the files as they are now. The turn is held.
func (r *process) useFiles(ctx context.Context, changed []string, now contents) error {
	loaded := r.reload.loaded
	next, err := loaded.Again()
	if err != nil {
		return fmt.Errorf("read the configuration with its changed files: %w", err)
	}
	next.Traces = r.cfg().Traces // its headers are those of the start
	report := console.Reloaded{Changes: r.changes(next), Files: changed}
	if len(report.Changes)+len(changed) == 0 {
		r.reload.sure = true
		return nil
	}
	if err := r.prepare(ctx, &report, next); err != nil {
		return err
	}
	for name, section := range servers(next) { // they read their files themselves, and keep what they have
		if _, err := section.ServerConfig(); err != nil {
			return fmt.Errorf("%s.tls: %w", name, err)
		}
	}
	loaded.Config = next
	fresh := r.switchTo(ctx, next, changed)
	r.reload.loaded, r.reload.used, r.reload.sure = loaded, now, true
	r.log.Info("changed files are used", "fields", strings.Join(changed, ", "), "changing_over", untilOpened(ctx, fresh, r.reload.Patience))
	for _, field := range changed {
		if rule := followed(field); rule != "" {
			r.log.Warn("a changed file is used after a restart only", "field", field, "reason", rule)
		}
	}
	return nil
}

// followed returns why a file is not followed; empty if it is. The certificates of listeners and
// clients are read at each handshake, and the credentials of the journal at each connection.
func followed(field string) string {
	if config.RuleOf(field).Rule == config.Live {
		return ""
	}
	for _, part := range []string{"ingest.tls.", "admin.tls.", "audit.serve.tls.", "journal."} {
		if strings.HasPrefix(field, part) {
			return ""
		}
	}
	if strings.HasSuffix(field, ".cert_file") || strings.HasSuffix(field, ".key_file") {
		return ""
	}
	return config.RuleOf(field).Reason
}

// sinkOf returns the name of the sink that a field belongs to.
func sinkOf(cfg *config.Config, field string) (string, bool) {
	for i := range cfg.Sinks {
		if strings.HasPrefix(field, fmt.Sprintf("sinks[%d].", i)) {
			return cfg.Sinks[i].Name, true
		}
	}
	return "", false
}

// filesError is why changed files are not used; empty if they are.
func (s *reloading) filesError() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files
}

func (s *reloading) setFilesError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = ""
	if err != nil {
		s.files = err.Error()
	}
}
