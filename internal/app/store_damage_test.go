package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

const (
	events  = "events"
	letters = "deadletters"
)

// creditor is a webhook's receiver that takes nothing until it is told to.
type creditor struct {
	url string

	mu   sync.Mutex
	open chan struct{}   // closed once it takes events; guarded by mu
	wait bool            // until then its requests wait, and are not refused; guarded by mu
	got  map[string]bool // guarded by mu
}

func newCreditor(t *testing.T) *creditor {
	t.Helper()
	c := &creditor{open: make(chan struct{}), got: map[string]bool{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *creditor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	open, wait := c.open, c.wait
	c.mu.Unlock()
	if wait {
		select {
		case <-open:
		case <-r.Context().Done():
			return
		}
	}
	var batch []struct{ ID string }
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-open:
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if json.Unmarshal(body, &batch) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, e := range batch {
		c.got[e.ID] = true
	}
}

// pay makes it take events.
func (c *creditor) pay() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.open)
}

// lacks are the ids that it did not get.
func (c *creditor) lacks(ids []string) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if !c.got[id] {
			all = append(all, id)
		}
	}
	return all
}

// owing is a relay with a small journal that owes events to a creditor.
type owing struct {
	*running
	cfg  *config.Config
	owed *creditor
	ids  []string // pushed
}

func newOwing(t *testing.T) *owing {
	t.Helper()
	dir := t.TempDir()
	o := &owing{owed: newCreditor(t)}
	o.cfg = testConfig(dir,
		config.Sink{Name: "owed", BatchEvents: 1, Webhook: &config.Webhook{URL: secret.New(o.owed.url)}},
		config.Sink{Name: "strict", File: &config.File{Path: filepath.Join(dir, "strict.jsonl")}, Redact: &config.Redact{Remove: []string{"/email"}}})
	o.cfg.Journal.MaxBytes, o.cfg.Ingest.Limits.BodyBytes = 8<<20, 1<<20 // for segments of 256 KiB
	o.cfg.SetDefaults()
	o.running = start(t, o.cfg)
	return o
}

func (o *owing) store() damage.Store { return damage.Of(o.cfg.DataDir) }

// push pushes events, each of which is a record of 15 KB.
func (o *owing) push(n int) {
	o.t.Helper()
	for range n {
		id := fmt.Sprintf("event-%d", len(o.ids))
		code, body := o.pushLoki(fmt.Sprintf(`{"streams":[{"stream":{},"values":[["%d","{\"event_id\":\"%s\",\"noise\":\"%s\"}"]]}]}`,
			time.Now().UnixNano(), id, incompressible(30_000)))
		require.Equal(o.t, http.StatusNoContent, code, body)
		o.ids = append(o.ids, id)
	}
}

// restart stops the relay, harms its files and starts it again.
func (o *owing) restart(harm func() error) {
	o.t.Helper()
	require.NoError(o.t, o.stop())
	require.NoError(o.t, harm())
	o.running = start(o.t, o.cfg)
}

// settle waits until the creditor lacks nothing but what the quarantine names, and returns
// what that is. A relay that waits for a person to accept the damage is told so.
func (o *owing) settle() (lost []string) {
	o.t.Helper()
	waiting.While(o.t, func() any { return len(lost) }, func() bool {
		o.accept()
		lost = o.owed.lacks(o.ids)
		return len(lost) <= o.named(events)
	}, "events are neither delivered nor named")
	return lost
}

// accept tells a relay that waits for a person to accept the damage that it is accepted.
func (o *owing) accept() {
	client := console.NewClient(o.cfg.DataDir)
	if damage, err := client.Damage(o.t.Context()); err == nil && damage.Held {
		_, _ = client.AcceptDamage(o.t.Context()) // there may be more to come
	}
}

// named is how many positions of a log the quarantine names.
func (o *owing) named(log string) (n int) {
	all, err := o.store().Quarantined(o.t.Context(), log)
	require.NoError(o.t, err)
	for _, s := range all {
		n += int(s.To - s.From + 1)
	}
	return n
}

// still checks that the relay takes and delivers pushes.
func (o *owing) still() {
	o.t.Helper()
	o.push(1)
	o.arrived(o.ids[len(o.ids)-1])
	code, text := o.get("/readyz")
	assert.Equal(o.t, http.StatusOK, code, text)
}

// The oldest events are lost with their file. Each of them is named, and all others arrive.
func TestALostFirstSegmentIsNamedWhole(t *testing.T) {
	t.Parallel()
	o := newOwing(t)
	o.push(60)
	var gone []damage.Place
	o.restart(func() error {
		segments, err := o.store().Segments(events)
		require.NoError(t, err)
		require.Greater(t, len(segments), 2)
		gone, err = o.store().Hit(events, damage.Record, segments[0], 0, 1<<40)
		require.NoError(t, err)
		return os.Remove(segments[0])
	})
	o.owed.pay()
	o.still()
	lost := o.settle()
	require.Greater(t, len(gone), 3)
	assert.Equal(t, len(gone), o.named(events))
	assert.LessOrEqual(t, len(lost), len(gone))
	require.NoError(t, o.stop())
}

// A bit rots under a running relay. It costs the record that it hits, and no other one.
func TestRotOnARunningRelayCostsOneRecord(t *testing.T) {
	t.Parallel()
	o := newOwing(t)
	o.owed.mu.Lock()
	o.owed.wait = true
	o.owed.mu.Unlock()
	o.push(60)
	at, err := o.store().FlipRecord(events, -30)
	require.NoError(t, err)
	o.owed.pay()
	o.still()
	lost := o.settle()
	assert.Len(t, lost, 1)
	all, err := o.store().Quarantined(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []damage.Stretch{{Log: events, From: at.Pos, To: at.Pos}}, all)
	require.NoError(t, o.stop())
}

// The position of a sink that has everything is written over the position of one that lacks
// everything, in several ways. The second sink gets everything all the same.
func TestAnothersPositionSkipsNothing(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, o *owing) error{
		"a value over a value": func(_ *testing.T, o *owing) error {
			return o.store().CopyValue("position/file", "position/owed")
		},
		"the value is lost":      func(_ *testing.T, o *owing) error { return o.store().FlipValue("position/file") },
		"all positions are lost": func(_ *testing.T, o *owing) error { return os.Remove(filepath.Join(string(o.store()), "lazy")) },
		"the table is lost":      func(_ *testing.T, o *owing) error { return o.store().LoseFolder(damage.Table) },
		"another relay's values": anothersTable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwing(t)
			o.push(20)
			o.arrived(o.ids...)
			o.restart(func() error { return harm(t, o) })
			o.owed.pay()
			o.still()
			lost := o.settle()
			if o.named(events) == 0 {
				assert.Empty(t, lost)
			}
			require.NoError(t, o.stop())
		})
	}
}

// anothersTable puts the positions of another relay there, whose sinks are far ahead.
func anothersTable(t *testing.T, o *owing) error {
	t.Helper()
	other := newOwing(t)
	other.owed.pay()
	other.push(40)
	other.settle()
	require.NoError(t, other.stop())
	return damage.CopyOver(filepath.Join(string(other.store()), "lazy"), filepath.Join(string(o.store()), "lazy"))
}

// Missing folders, and files that are exchanged or misplaced, refuse no start. What they
// cost is named.
func TestNoFileRefusesTheStart(t *testing.T) {
	t.Parallel()
	segment := func(o *owing, i int) string {
		all, err := o.store().Segments(events)
		require.NoError(o.t, err)
		return all[i]
	}
	for name, harm := range map[string]func(o *owing) error{
		"the store is gone":   func(o *owing) error { return os.RemoveAll(string(o.store())) },
		"the events are gone": func(o *owing) error { return o.store().LoseFolder(events) },
		"the folders exchanged": func(o *owing) error {
			return damage.Swap(filepath.Join(string(o.store()), events), filepath.Join(string(o.store()), letters))
		},
		"the trail is gone":      func(o *owing) error { return os.RemoveAll(filepath.Join(string(o.store()), "trail.entries")) },
		"the quarantine is gone": func(o *owing) error { return o.store().LoseFolder("quarantine") },
		"two segments exchanged": func(o *owing) error { return damage.Swap(segment(o, 0), segment(o, 1)) },
		"a segment over another": func(o *owing) error { return damage.CopyOver(segment(o, 0), segment(o, 1)) },
		"another log's segment": func(o *owing) error {
			others, err := o.store().Segments(letters)
			require.NoError(o.t, err)
			return damage.CopyOver(others[0], segment(o, 0))
		},
		"another log's end mark": func(o *owing) error {
			return damage.CopyOver(filepath.Join(string(o.store()), letters+".end"), filepath.Join(string(o.store()), events+".end"))
		},
		"a folder in a file's place": func(o *owing) error {
			path := segment(o, 1)
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwing(t)
			o.push(40)
			o.arrived(o.ids...)
			o.restart(func() error { return harm(o) })
			o.owed.pay()
			pushed := o.ids
			o.still()
			o.settle()
			if slices.Contains([]string{"the store is gone", "the events are gone", "the folders exchanged"}, name) {
				lacks := 0
				waiting.While(t, func() any { return lacks }, func() bool {
					o.accept() // a sink may come to the damage after another has named it
					lacks = len(o.owed.lacks(o.ids))
					return lacks == len(pushed)
				}, "what was pushed since is not delivered")
				assert.Equal(t, pushed, o.owed.lacks(o.ids))
				assert.GreaterOrEqual(t, o.named(events), len(pushed))
			}
			require.NoError(t, o.stop())
		})
	}
}

// An unknown version refuses the start, and says what wrote it.
func TestALaterVersionRefusesTheStart(t *testing.T) {
	t.Parallel()
	o := newOwing(t)
	o.push(1)
	require.NoError(t, o.stop())
	segments, err := o.store().Segments(events)
	require.NoError(t, err)
	require.NoError(t, damage.MakeLater(segments[0]))
	err = Run(t.Context(), o.cfg, Options{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, segments[0]+" has version 1000 of its format")
	require.ErrorContains(t, err, "run that version, or restore a backup from before the upgrade")
}

// The folder of the events is removed under a running relay: its pushes are refused.
func TestARemovedFolderRefusesPushes(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"replaced": func(dir string) error { return os.Rename(dir, dir+".away") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwing(t)
			o.push(1)
			require.NoError(t, remove(filepath.Join(string(o.store()), events)))
			if name == "replaced" {
				require.NoError(t, os.Mkdir(filepath.Join(string(o.store()), events), 0o700))
			}
			for range 2 {
				code, body := o.running.push("into-nowhere")
				assert.Equal(t, http.StatusServiceUnavailable, code, body)
			}
			waiting.Until(t, func() bool { code, _ := o.get("/readyz"); return code == http.StatusServiceUnavailable })
			_ = o.stop() // it may say that the files are gone
			o.running = start(t, o.cfg)
			o.still()
			require.NoError(t, o.stop())
		})
	}
}

// refuse pushes lines that the strict sink refuses, and waits for their letters.
func (o *owing) refuse(n int) {
	o.t.Helper()
	before := len(o.letters())
	var values []string
	for i := range n {
		values = append(values, fmt.Sprintf(`["%d","line %d of %d is no JSON"]`, time.Now().UnixNano(), before+i, n))
	}
	code, body := o.pushLoki(`{"streams":[{"stream":{},"values":[` + strings.Join(values, ",") + `]}]}`)
	require.Equal(o.t, http.StatusNoContent, code, body)
	waiting.While(o.t, func() any { return len(o.letters()) }, func() bool { return len(o.letters()) == before+n })
}

// letters are the dead letters, by number.
func (o *owing) letters() map[uint64]bool {
	o.t.Helper()
	all := map[uint64]bool{}
	require.NoError(o.t, console.NewClient(o.cfg.DataDir).Letters(context.WithoutCancel(o.t.Context()), console.ListLetters{}, func(l *console.Letter) error {
		if l.Damage == "" {
			all[l.Sequence] = true
		}
		return nil
	}))
	return all
}

// Dead letters that a disk loses are named, each of them, whatever way they go.
func TestLostDeadLettersAreNamed(t *testing.T) {
	t.Parallel()
	newest := func(o *owing) string {
		all, err := o.store().Segments(letters)
		require.NoError(o.t, err)
		return all[len(all)-1]
	}
	for name, harm := range map[string]func(o *owing, earlier string) error{
		"a bit":               func(o *owing, _ string) error { _, err := o.store().FlipRecord(letters, 20); return err },
		"the end":             func(o *owing, _ string) error { _, err := o.store().LoseTail(letters, 7); return err },
		"the newest file":     func(o *owing, _ string) error { return os.Remove(newest(o)) },
		"an older copy of it": func(o *owing, earlier string) error { return damage.CopyOver(earlier, newest(o)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwing(t)
			o.refuse(40)
			earlier := filepath.Join(t.TempDir(), "earlier")
			require.NoError(t, damage.CopyOver(newest(o), earlier))
			o.refuse(20)
			before := o.letters()
			o.restart(func() error { return harm(o, earlier) })
			lost := func() int {
				left := o.letters()
				gone := maps.Clone(before)
				maps.DeleteFunc(gone, func(n uint64, _ bool) bool { return left[n] })
				return len(gone)
			}
			waiting.Until(t, func() bool { n := lost(); return n > 0 && o.named(letters) == n }, "lost letters are not named")
			assert.NotEqual(t, "0", o.metric("auditrelay_journal_lost_records"))
			require.NoError(t, o.stop())
		})
	}
}
