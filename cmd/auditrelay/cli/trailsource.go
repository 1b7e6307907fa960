package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// trailSource answers questions about an audit trail: a running relay, or the files of a
// stopped one.
type trailSource interface {
	List(ctx context.Context, req console.ListTrail, yield func(timeline.Row) error) error
	Entries(ctx context.Context, f timeline.Filter, yield func(timeline.Entry) error) error
	Settings(ctx context.Context, f timeline.Filter) ([]timeline.Setting, error)
	At(ctx context.Context, w timeline.Where, at time.Time) (timeline.State, error)
}

// trailFlags name an audit trail.
type trailFlags struct {
	filesFlags
	offline bool
}

func (p Program) trail() *trailFlags { return &trailFlags{filesFlags: *p.files()} }

const whichTrail = whichRelay + ` With
--offline it reads the files of a stopped relay instead, and checks no signature
('auditrelay journal verify' does).`

func (f *trailFlags) about() string { return whichTrail }

func (f *trailFlags) addTo(cmd *cobra.Command) {
	f.relayFlags.addTo(cmd)
	f.addOfflineTo(cmd, "read the files of a stopped relay")
}

// addFilesTo adds the flags for reading the files of a relay.
func (f *trailFlags) addFilesTo(cmd *cobra.Command, offline string) {
	addConfigFlag(cmd, &f.config, "the relay's configuration `FILE`")
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "the relay's data `DIR`")
	f.addOfflineTo(cmd, offline)
}

func (f *trailFlags) addOfflineTo(cmd *cobra.Command, about string) {
	cmd.Flags().BoolVar(&f.offline, "offline", false, about)
}

// asks implements source.
func (f *trailFlags) asks(run func(cmd *cobra.Command, args []string, source trailSource) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if f.offline {
			return f.readsFiles(cmd, args, run)
		}
		source, err := f.client()
		if err != nil {
			return err
		}
		return run(cmd, args, source)
	}
}

// readsFiles uses a copy of the relay's index, as nothing in the data directory may change.
// Where there is none, it makes one, for this command only.
func (f *trailFlags) readsFiles(cmd *cobra.Command, args []string, run func(*cobra.Command, []string, trailSource) error) (err error) {
	cfg, trail, err := f.openTrail(cmd.Context())
	if err != nil {
		return err
	}
	defer trail.Close()
	dir, err := os.MkdirTemp("", "auditrelay-trail-")
	if err != nil {
		return fmt.Errorf("make a folder for the index of the trail: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, timeline.FileName)
	if err := copyIndex(path, filepath.Join(cfg.DataDir, timeline.FileName)); err != nil {
		return err
	}
	index := timeline.Open(timeline.Options{Path: path, Trail: trail})
	ctx, cancel := context.WithCancel(cmd.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		index.Keep(ctx)
	}()
	defer func() { cancel(); <-done }()
	return run(cmd, args, offlineTrail{index})
}

// readTrail opens the trail in the data directory of a configuration for reading only.
func readTrail(ctx context.Context, cfg *config.Config) (*audit.Reader, error) {
	s, err := app.ViewStore(cfg)
	if err != nil {
		return nil, err
	}
	return audit.OpenReader(ctx, s)
}

// copyIndex copies the index of a trail, if there is one.
func copyIndex(to, from string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the index of the trail: %w", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.Copy(out, in)
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		return fmt.Errorf("copy the index of the trail: %w", err)
	}
	return nil
}

// offlineTrail is a trail without a relay.
type offlineTrail struct{ *timeline.Index }

// List implements trailSource.
func (o offlineTrail) List(ctx context.Context, req console.ListTrail, yield func(timeline.Row) error) error {
	if req.Follow {
		return errors.New("--follow needs a running relay: leave --offline out")
	}
	_, err := o.Index.List(ctx, req.Filter, yield)
	return err
}
