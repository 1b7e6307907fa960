package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/journaltest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// makeJournal writes a journal of three records.
func makeJournal(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cfg := &config.Config{DataDir: dir}
	cfg.SetDefaults()
	j := journaltest.Open(t, dir, cfg.Journal, journaltest.Options{})
	for _, id := range []string{"a", "b", "c"} {
		var b record.Batch
		b.AddEvent(&relay.Event{ID: id, Source: "/projects/p", Type: "t", Time: time.Now(), Body: bytes.Repeat([]byte(id), 100)})
		require.NoError(t, j.Append(t.Context(), &b))
	}
	j.Shut()
	return dir
}

func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Program{}.Execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// The commands read the files of the store, whether a relay has it open or not.
func TestJournalCommands(t *testing.T) {
	t.Parallel()
	dir := makeJournal(t)
	cfg := &config.Config{DataDir: dir}
	cfg.SetDefaults()
	running := journaltest.Open(t, dir, cfg.Journal, journaltest.Options{Journal: journal.Options{Sinks: []string{"archive"}}})
	shows := func() {
		code, out, errs := command(t, "journal", "inspect", "--data-dir", dir)
		require.Zero(t, code, errs)
		assert.Regexp(t, `(?m)^events +3 +\d+ +1-3 +20`, out)
		assert.Regexp(t, `(?m)^archive +0 +3 `, out)
		code, out, errs = command(t, "journal", "verify", "--data-dir", dir)
		require.Zero(t, code, errs)
		assert.Contains(t, out, "3 records with 3 events")
	}
	shows()
	running.Shut()
	shows()

	_, err := damage.Of(dir).FlipRecord(journal.EventsLog, 1)
	require.NoError(t, err)
	code, out, _ := command(t, "journal", "verify", "--data-dir", dir)
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "PROBLEM  events, position 2: no record can be read there")
	code, out, _ = command(t, "journal", "verify", "--data-dir", dir, "--json")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, `"settled": false`)
	code, out, errs := command(t, "journal", "repair", "--data-dir", dir, "--dry-run")
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "nothing was changed")
	code, _, errs = command(t, "journal", "repair", "--data-dir", dir)
	assert.Equal(t, 1, code, "no answer is a no")
	assert.Contains(t, errs, "Take a copy of "+dir)

	running = journaltest.Open(t, dir, cfg.Journal, journaltest.Options{}) // as a start does
	state, err := running.Store.Log(t.Context(), journal.EventsLog, store.Options{})
	require.NoError(t, err)
	for gap, err := range state.Scrub(t.Context()) {
		require.NoError(t, err)
		require.NoError(t, running.Quarantine.Name(t.Context(), journal.EventsLog, gap))
	}
	code, out, errs = command(t, "journal", "verify", "--data-dir", dir)
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "problems: 0 open, 1 settled")
	code, out, errs = command(t, "journal", "inspect", "--data-dir", dir)
	require.Zero(t, code, errs)
	assert.Regexp(t, `(?m)^events +2 +20.* salvage/events-`, out)
}

// A log that ends before what a sink has had is a problem like others, which a repair settles.
func TestJournalCommandsKnowALogThatWasPutBack(t *testing.T) {
	t.Parallel()
	dir := makeJournal(t)
	cfg := &config.Config{DataDir: dir}
	cfg.SetDefaults()
	earlier := t.TempDir()
	require.NoError(t, damage.CopyDir(dir, earlier))
	j := journaltest.Open(t, dir, cfg.Journal, journaltest.Options{})
	var b record.Batch
	b.AddEvent(&relay.Event{ID: "d", Source: "/projects/p", Type: "t", Time: time.Now(), Body: []byte("d")})
	require.NoError(t, j.Append(t.Context(), &b))
	source, err := j.Source(t.Context(), "archive", relay.BatchLimit{Events: 10, Bytes: 1 << 20})
	require.NoError(t, err)
	for acked := 0; acked < 4; {
		batch, err := source.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, source.Ack(t.Context(), batch.Position))
		acked += len(batch.Events)
	}
	source.Close()
	j.Shut()
	segments, err := damage.Of(dir).Segments(journal.EventsLog)
	require.NoError(t, err)
	require.Len(t, segments, 1)
	before, err := damage.Of(earlier).Segments(journal.EventsLog)
	require.NoError(t, err)
	require.NoError(t, damage.CopyOver(before[0], segments[0]))
	require.NoError(t, os.Remove(filepath.Join(string(damage.Of(dir)), "events.end")))

	code, out, _ := command(t, "journal", "verify", "--data-dir", dir)
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "PROBLEM  events, position 4: no record can be read there")
	code, out, errs := command(t, "journal", "repair", "--data-dir", dir, "--yes")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "set aside   events, position 4: ")
	code, out, errs = command(t, "journal", "verify", "--data-dir", dir)
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "problems: 0 open, 2 settled")
}

func TestJournalCommandsRefuse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"inspect", "verify", "repair"} {
		code, _, errs := command(t, "journal", name)
		assert.Equal(t, cli.ExitUsage, code)
		assert.Contains(t, errs, "data-dir")
		code, _, errs = command(t, "journal", name, "--data-dir", t.TempDir())
		assert.Equal(t, 1, code)
		assert.Contains(t, errs, "no such file or directory")
	}
}

// The relay is killed under load and the end of its newest segment torn off, as after
// fsyncs a disk lied about. Every acknowledged event outside the torn end arrives at
// every sink; the torn ones are reported, in numbers and by audit events at the sinks.
func TestTornAfterAKillIsReported(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := newScene(t, 500)
	dir := filepath.Join(filepath.Dir(s.config), "data")
	process := s.start(t)
	torn := map[uint64]int64{} // records, and how many events they held
	for round := range 3 {
		s.waitAcknowledged(t, s.sim.Counts().Acknowledged+rng.Uint64N(300)+200)
		require.NoError(t, process.Process.Kill())
		_ = process.Wait() // it was killed
		gone := tear(t, dir, rng.Int64N(60_000)+1)
		t.Logf("round %d: %d events acknowledged; tore off records %v", round, s.sim.Counts().Acknowledged, slices.Sorted(maps.Keys(gone)))
		maps.Copy(torn, gone)
		process = s.start(t)
	}
	s.waitAcknowledged(t, s.sim.Counts().Acknowledged+1) // the relay is up
	s.sim.Pause()
	s.settle(t)
	missing := map[string]int64{}
	s.drained(t) // a torn record without an acknowledgement has been pushed again
	for _, d := range s.destinations {
		var told int
		s.read(t, d, func(events []received) bool {
			told = 0
			for _, e := range events {
				told += bytes.Count(e.body, []byte(`"type":"journal.quarantined"`))
			}
			tally := tallyOf(events)
			missing[d.Name()] = tally.Missing(s.sim.Ledgers())
			return told > 0
		})
		t.Logf("%s: %d events are missing, %d audit events tell of it", d.Name(), missing[d.Name()], told)
	}
	// What the sinks had before it was torn off is found by a scrub, which begins after the start.
	var out string
	verified := func() bool {
		var code int
		code, out, _ = command(t, "journal", "verify", "--data-dir", dir)
		return code == 0
	}
	waiting.While(t, func() any { return out }, verified, "not all that was torn off is named: %s", &s.output)
	require.NoError(t, process.Process.Signal(syscall.SIGTERM))
	require.NoError(t, process.Wait(), "%s", s.output.String())
	assertNamed(t, dir, torn, missing)
}

// drained waits until every sink has all that the journal holds, and accepts the damage that they come to.
func (s *scene) drained(t *testing.T) {
	t.Helper()
	var sinks []console.Sink
	pending := func() any {
		code, out, errs := command(t, "sinks", "list", "--json", "--config", s.config)
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &sinks))
		left := uint64(0)
		for _, k := range sinks {
			left += k.Position.Pending
			if k.Position.Unknown != "" {
				left++
			}
		}
		return left
	}
	waiting.While(t, pending, func() bool { accept(t, s.config); return pending() == uint64(0) }, "the sinks do not get all: %v", &s.output)
}

// accept accepts the damage, if sinks wait for a person. How many records a tear costs
// depends on how fast the machine is.
func accept(t *testing.T, config string) {
	t.Helper()
	code, out, errs := command(t, "journal", "accept-damage", "--config", config, "--yes")
	if code != 0 {
		require.Contains(t, errs, journal.ErrNoDamage.Error())
		return
	}
	t.Log(out)
}

// assertNamed checks two things: exactly the torn records are named, and every missing
// event was in a named record.
func assertNamed(t *testing.T, dir string, torn map[uint64]int64, missing map[string]int64) {
	t.Helper()
	code, out, errs := command(t, "journal", "verify", "--data-dir", dir)
	assert.Zero(t, code, out+errs)
	code, out, errs = command(t, "journal", "inspect", "--data-dir", dir, "--json")
	require.Zero(t, code, errs)
	var in struct {
		Quarantine []journal.Loss `json:"quarantine"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &in))
	require.NotEmpty(t, in.Quarantine)
	named := int64(0)
	for _, q := range in.Quarantine {
		for p := uint64(q.From); p <= uint64(q.To); p++ {
			n, ok := torn[p]
			assert.True(t, ok, "position %d is named, and was not torn", p)
			named += n
		}
	}
	for name, n := range missing {
		assert.LessOrEqual(t, n, named, "%s: more is missing than is named", name)
	}
	t.Logf("torn: %d records; named: %d runs with %d events", len(torn), len(in.Quarantine), named)
}

// tear cuts n bytes off the end of the newest segment's records, and says which records that
// costs, and how many events they had.
func tear(t *testing.T, dir string, n int64) map[uint64]int64 {
	t.Helper()
	records, err := damage.Of(dir).Records(journal.EventsLog)
	require.NoError(t, err)
	require.NotEmpty(t, records)
	last := records[len(records)-1]
	end := max(last.Offset+last.Size-n, records[0].Offset)
	gone := map[uint64]int64{}
	for _, r := range records {
		if r.File == last.File && r.Offset+r.Size > end {
			ids, err := damage.EventIDs(r)
			require.NoError(t, err)
			gone[uint64(r.Pos)] = int64(len(ids))
		}
	}
	require.NoError(t, os.Truncate(last.File, end))
	return gone
}

func TestJournalLetGo(t *testing.T) {
	t.Parallel()
	dir := makeJournal(t)
	file := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
data_dir: %s
environments: [{project: acme, environment: live}]
ingest: {anonymous: acme/live}
journal: {url: "nats://127.0.0.1:1"}
`, dir), 0o600))
	code, _, errs := command(t, "run", "--config", file)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "the journal in the data directory holds 3 undelivered events and 0 dead letters, which would never be delivered")
	assert.Contains(t, errs, "auditrelay journal let-go")
	letGo := []string{"journal", "let-go", "--config", file}
	code, _, errs = command(t, letGo...)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "Give up 3 undelivered events and 0 dead letters in the journal in the data directory?")
	code, _, errs = command(t, append(letGo, "--stream-prefix", "NONE", "--url", "nats://x", "--yes")...)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "the relay does not keep the journal with stream_prefix NONE at nats://x")
	code, out, errs := command(t, append(letGo, "--yes")...)
	require.Zero(t, code, errs)
	assert.Contains(t, out, "given up: 3 undelivered events and 0 dead letters")
}
