package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// journalServer is an external nats-server with the relay's journal. Its files can be
// set back, as a power cut does with unsynced writes.
type journalServer struct {
	dir     string
	address string // HOST:PORT
	command rig.Command
	process *rig.Process
}

func newJournalServer(ctx context.Context, dir string) (*journalServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	free, err := rig.FreeAddresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	j := &journalServer{dir: dir, address: free[0]}
	file := filepath.Join(dir, "server.conf")
	text := fmt.Sprintf("listen: %q\njetstream: {store_dir: %q, max_file_store: 100GB, max_memory_store: 64MB}\n", j.address, j.store())
	j.command = rig.Command{Name: "the journal's nats-server", Args: []string{self, natsCommand, file}, Log: filepath.Join(dir, "server.log")}
	return j, os.WriteFile(file, []byte(text), 0o600)
}

func (j *journalServer) store() string { return filepath.Join(j.dir, "store") }

func (j *journalServer) saved() string { return filepath.Join(j.dir, "saved") }

func (j *journalServer) start(ctx context.Context) (err error) {
	if j.process, err = j.command.Start(); err != nil {
		return err
	}
	return rig.Until(ctx, patience, "the journal's nats-server listens", func() bool {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", j.address)
		return err == nil && c.Close() == nil
	}, j.process)
}

// save keeps a copy of the files, while the server is away.
func (j *journalServer) save(ctx context.Context) error {
	j.process.Kill()
	if err := os.RemoveAll(j.saved()); err != nil {
		return err
	}
	if err := os.CopyFS(j.saved(), os.DirFS(j.store())); err != nil {
		return err
	}
	return j.start(ctx)
}

// restore puts the copy back while the server is away. If keepTable is set, the table stays as
// new as it is: the sinks' positions, and what it says of each log, are then ahead of the logs.
func (j *journalServer) restore(keepTable bool) error {
	if keepTable {
		ahead, err := filepath.Glob(filepath.Join(j.store(), "jetstream", "*", "streams", tableStream))
		if err != nil || len(ahead) != 1 {
			return fmt.Errorf("find the table's stream: %d folders (%w)", len(ahead), err)
		}
		to := filepath.Join(j.saved(), strings.TrimPrefix(ahead[0], j.store()))
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.CopyFS(to, os.DirFS(ahead[0])); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(j.store()); err != nil {
		return err
	}
	return os.Rename(j.saved(), j.store())
}

// rolledBack sets the files of an external journal back to an earlier copy, while the
// relay runs and while it is away, with and without the table. Events
// acknowledged in between may be missing, and must then be named. All others, above all
// those acknowledged later, must arrive.
func rolledBack(ctx context.Context, t *trial) error {
	server, err := newJournalServer(ctx, filepath.Join(t.dir, "journal"))
	if err != nil {
		return err
	}
	if err := server.start(ctx); err != nil {
		return err
	}
	defer func() { server.process.Kill() }()
	s, err := t.running(ctx, setting{more: fmt.Sprintf("journal: {url: \"nats://%s\", replicas: 1}", server.address)})
	if err != nil {
		return err
	}
	defer s.close()
	var excused []string
	for rounds := max(4, share(t.rounds, 10)); t.row.rounds < rounds; t.row.rounds++ {
		lost, err := s.rollBack(ctx, server, t.row.rounds%2 == 1, t.row.rounds/2%2 == 1)
		if err != nil {
			return fmt.Errorf("round %d: %w", t.row.rounds+1, err)
		}
		excused = append(excused, lost...)
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	missing, err := s.count(ctx, excused)
	if err != nil {
		return err
	}
	named := s.metric(ctx, "auditrelay_journal_lost_records")
	t.remark("rolled back %d times; of %d events that were acknowledged in between, missing: %v; lost records named: %s", t.row.rounds, len(excused), missing, named)
	if named == "0" || named == "" {
		return fmt.Errorf("the journal lost records and names none")
	}
	return s.relay.stop()
}

// rollBack plays one round, and returns the possibly missing events.
func (s *scene) rollBack(ctx context.Context, server *journalServer, keepTable, away bool) (lost []string, err error) {
	more := func() error {
		return s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+uint64(s.t.rate/2))
	}
	if err := more(); err != nil {
		return nil, err
	}
	before := s.sim.Ledgers()
	if err := server.save(ctx); err != nil {
		return nil, err
	}
	if err := more(); err != nil {
		return nil, err
	}
	server.process.Kill()
	if away {
		s.relay.kill()
	}
	s.answered(ctx)
	lost = acknowledgedSince(before, s.sim.Ledgers())
	if err := server.restore(keepTable); err != nil {
		return nil, err
	}
	if err := server.start(ctx); err != nil {
		return nil, err
	}
	if away {
		if err := s.startReady(ctx); err != nil {
			return nil, err
		}
	}
	s.t.progress("rolled back %d events; the table was kept: %t, the relay was away: %t", len(lost), keepTable, away)
	return lost, more()
}

// answered waits for answers on their way, until nothing more is acknowledged for a
// while.
func (s *scene) answered(ctx context.Context) {
	const calm = time.Second
	for last := s.sim.Counts().Acknowledged; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(calm):
		}
		now := s.sim.Counts().Acknowledged
		if now == last {
			return
		}
		last = now
	}
}

// acknowledgedSince returns the ids acknowledged between two looks.
func acknowledgedSince(before, after []workspacesim.Ledger) (ids []string) {
	for i, l := range after {
		had := map[uint64]bool{}
		for _, r := range before[i].Acknowledged {
			for seq := r.From; seq < r.To; seq++ {
				had[seq] = true
			}
		}
		for _, r := range l.Acknowledged {
			for seq := r.From; seq < r.To; seq++ {
				if !had[seq] {
					ids = append(ids, workspacesim.EventID(l.Prefix, seq))
				}
			}
		}
	}
	return ids
}

// metric reads one of the relay's metrics without labels; empty if there is none.
func (s *scene) metric(ctx context.Context, name string) string {
	_, text := s.ask(ctx, "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
