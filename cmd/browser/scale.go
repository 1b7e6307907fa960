package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// longStart bounds a start on a million entries, of which each is read and hashed, on a machine that may
// be busy.
const longStart = 20 * time.Minute

// mostForAPage bounds the time from a request to the end of its answer.
const mostForAPage = 100 * time.Millisecond

// measure times the pages over a long trail and many environments.
func measure(ctx context.Context, b *chrome, o options, dir string, r *report) error {
	if o.entries == 0 {
		return nil
	}
	began := time.Now()
	s, err := longStage(ctx, o, filepath.Join(dir, "long"))
	if s != nil && s.relay != nil {
		defer s.relay.Close()
	}
	if err != nil {
		return err
	}
	r.say("\n%-44s %8s   (%d entries, %d environments, made in %s)", "page", "ms", o.entries, o.environments, time.Since(began).Round(time.Second))
	t, err := b.enter(s, light)
	if err != nil {
		return err
	}
	defer t.close()
	paths, err := t.paths(s)
	if err != nil {
		return err
	}
	slices.Sort(paths)
	for _, path := range append(slices.Compact(paths), "/changes?text=nobody+wrote+this", "/changes?environment=env-7&severity=high") {
		if path == "/no-such-page" {
			continue
		}
		took, err := t.timed(s.web + path)
		if err != nil {
			r.fail("%s with a long trail: %v", path, err)
			continue
		}
		r.say("%-44s %8.1f", path, float64(took.Microseconds())/1000)
		if took > mostForAPage {
			r.fail("%s takes %s with a long trail, more than %s", path, took, mostForAPage)
		}
	}
	return nil
}

// timed is the median time of a page, from its request to the end of its answer.
func (t *tab) timed(address string) (time.Duration, error) {
	var all []float64
	for range 7 {
		if err := t.goTo(address); err != nil {
			return 0, err
		}
		var took float64
		if err := t.eval(`(n => n.responseEnd - n.requestStart)(performance.getEntriesByType("navigation")[0])`, &took); err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return time.Duration(all[len(all)/2] * float64(time.Millisecond)), nil
}

// longStage is a relay whose trail was filled while it was stopped.
func longStage(ctx context.Context, o options, dir string) (s *stage, err error) {
	s = &stage{binary: o.binary, sinks: []string{"archive"}, weakened: int64(o.entries / 2), silent: workspacesim.Environment{Project: "shop", Environment: "env-7"}}
	if s.relay, err = rig.NewRelay(ctx, o.binary, dir); err != nil {
		return s, err
	}
	free, err := rig.FreeAddresses(ctx, 1)
	if err != nil {
		return s, err
	}
	s.web = "http://" + free[0]
	if err := s.relay.Start(ctx, s.longConfig(o), time.Minute); err != nil { // makes the key and an empty trail
		return s, err
	}
	if err := s.relay.Process().Stop(time.Minute); err != nil {
		return s, err
	}
	if err := fill(ctx, s.relay.DataDir(), o); err != nil {
		return s, err
	}
	if err := s.relay.Start(ctx, s.longConfig(o), longStart); err != nil {
		return s, err
	}
	return s, rig.Until(ctx, longStart, "the long trail is listed", func() bool {
		rows := s.rows(ctx, timeline.Filter{Limit: 1})
		return len(rows) == 1 && rows[0].Index >= int64(o.entries)-1
	}, s.relay.Process())
}

func (s *stage) longConfig(o options) string {
	var text strings.Builder
	fmt.Fprintf(&text, `data_dir: %q
console: {listen: %q}
ingest: {listen: %q, anonymous: shop/env-0}
admin: {listen: %q}
sinks: [{name: archive, file: {path: %q}, match: {types: [event_log.*]}}]
environments:
`, s.relay.DataDir(), strings.TrimPrefix(s.web, "http://"), s.relay.Ingest, s.relay.Admin, filepath.Join(s.relay.DataDir(), "..", "events.jsonl"))
	for i := range o.environments {
		fmt.Fprintf(&text, "  - {project: shop, environment: env-%d}\n", i)
	}
	return text.String()
}

// fill appends entries to the log of a stopped relay. It takes them for its own, and signs them.
func fill(ctx context.Context, dataDir string, o options) error {
	s, err := disk.Open(disk.Config{Dir: filepath.Join(dataDir, "store"), Salvage: filepath.Join(dataDir, "salvage"), Writer: "browser", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	log, err := s.Log(ctx, audit.EntriesLog, store.Options{})
	const plain, batch = 1, 1000 // the kind of a record that is not compressed
	drafts := make([]store.Draft, 0, batch)
	for i := 0; i < o.entries && err == nil; i++ {
		var d store.Draft
		if d, err = draft(i, o.environments); err != nil {
			break
		}
		d.Kind = plain
		if drafts = append(drafts, d); len(drafts) == batch || i == o.entries-1 {
			_, err = log.Append(ctx, drafts...)
			drafts = drafts[:0]
		}
	}
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

// draft is a change of one setting of one environment.
func draft(i, environments int) (store.Draft, error) {
	kinds := []string{"rbac_policy", "password_strength_config", "sms_country_codes"}
	severity := []string{"info", "low", "medium", "high"}[i%4]
	e := audit.Entry{
		Type: "settings.changed", Project: "shop", Environment: fmt.Sprintf("env-%d", i%environments), Subject: kinds[i%len(kinds)],
		Time:   time.Now().Add(time.Duration(i-2_000_000) * time.Second).UTC(),
		Before: json.RawMessage(fmt.Sprintf(`{"value":%d}`, i)), After: json.RawMessage(fmt.Sprintf(`{"value":%d}`, i+1)),
		Detail: json.RawMessage(fmt.Sprintf(`{"actor":"unknown","cause":"outside","changes":[{"new":%d,"old":%d,"path":"/value"}],"direction":"weaker","severity":%q,"summary":"the breach check of template %d is off"}`, i+1, i, severity, i)),
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return store.Draft{}, err
	}
	record, err := jsontext.Canonical(raw)
	return store.Draft{Key: strings.Join([]string{e.Project, e.Environment, e.Subject}, "."), Data: record}, err
}
