package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// randomFaults harms one file of a killed relay's store at random and starts the relay there,
// again and again, each time from the same files. The relay must take pushes, and deliver them. Each
// event that was acknowledged before must arrive at each sink that lacks it, or be named in the
// quarantine; and so must each dead letter.
func randomFaults(ctx context.Context, t *trial) error {
	o := &owing{t: t, acknowledged: map[string]bool{}, letters: map[store.Pos]string{}, at: map[store.Pos][]string{}}
	o.receiver = httptest.NewServer(http.HandlerFunc(o.receive))
	defer o.receiver.Close()
	if err := o.prepare(ctx); err != nil {
		return fmt.Errorf("make the files to be harmed: %w", err)
	}
	named, waited := 0, 0
	for ; t.row.rounds < t.faults; t.row.rounds++ {
		about, found, err := o.round(ctx, t.row.rounds)
		if err != nil {
			return fmt.Errorf("fault %d (%s), drawn by --seed %d: %w", t.row.rounds, about, t.seed, err)
		}
		t.row.lost += int64(len(found.silent))
		if len(found.silent) > 0 {
			t.row.wrong = append(t.row.wrong, fmt.Sprintf("fault %d (%s) lost %d events or letters in silence, one of them %s", t.row.rounds, about, len(found.silent), found.silent[0]))
		}
		if found.named > 0 {
			named++
		}
		if found.held {
			waited++
		}
		if t.row.rounds%25 == 24 {
			t.progress("%d faults", t.row.rounds+1)
		}
	}
	t.row.acknowledged, t.row.delivered = uint64(len(o.acknowledged)), int64(len(o.acknowledged))
	t.remark("single faults, each on the same %d events and %d dead letters; after %d of them losses were named, after %d sinks waited for a person",
		len(o.acknowledged), len(o.letters), named, waited)
	return nil
}

// owing is a relay that owes all of its events to a receiver, and is harmed in many ways.
type owing struct {
	t         *trial
	base      string // the data directory to be harmed
	earlier   string // a copy of it from before
	delivered string // what the file sink had written

	acknowledged map[string]bool        // the ids of events
	at           map[store.Pos][]string // and where they are
	letters      map[store.Pos]string   // the events of dead letters

	receiver *httptest.Server
	mu       sync.Mutex
	taking   bool            // guarded by mu
	got      map[string]bool // by the receiver; guarded by mu
}

// receive is the webhook that all events are owed to.
func (o *owing) receive(w http.ResponseWriter, r *http.Request) {
	var events []struct {
		ID string `json:"id"`
	}
	body, err := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.taking || err != nil || json.Unmarshal(body, &events) != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for _, e := range events {
		o.got[e.ID] = true
	}
	w.WriteHeader(http.StatusNoContent)
}

func (o *owing) take(taking bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taking, o.got = taking, map[string]bool{}
}

func (o *owing) received() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.got)
}

// relay is a relay on files in a folder of its own.
func (o *owing) relay(ctx context.Context, name string) (*scene, error) {
	dir := filepath.Join(o.t.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	free, err := rig.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	s := &scene{
		t: o.t, binary: o.t.binary, dataDir: filepath.Join(dir, "data"), config: filepath.Join(dir, "relay.yaml"),
		ingest: free[0], admin: free[1],
	}
	// With this budget a segment has 256 KiB, so there are several.
	text := fmt.Sprintf(`data_dir: %s
ingest: {listen: "%s", limits: {body_bytes: 1MiB}}
admin: {listen: "%s"}
journal: {max_bytes: 8MiB}
sinks:
  - {name: archive, file: {path: %s}}
  - {name: strict, redact: {remove: [/user/email]}, file: {path: %s}}
  - {name: owed, webhook: {url: %q}}
environments:
  - {project: torture, environment: live, credentials: [{username: %s, password: %s}]}
`, s.dataDir, s.ingest, s.admin, filepath.Join(dir, "archive.jsonl"), filepath.Join(dir, "strict.jsonl"), o.receiver.URL, pushUser, pushPassword)
	return s, os.WriteFile(s.config, []byte(text), 0o600)
}

// prepare makes the files: two lives of a relay, each ended by a kill, and a copy in between.
func (o *owing) prepare(ctx context.Context) error {
	o.take(false)
	s, err := o.relay(ctx, "base")
	if err != nil {
		return err
	}
	defer func() { s.close() }()
	o.base, o.earlier, o.delivered = s.dataDir, filepath.Join(o.t.dir, "earlier"), filepath.Join(o.t.dir, "base", "archive.jsonl")
	random := o.t.random()
	for life, pushes := range []int{40, 80} {
		if err := s.startReady(ctx); err != nil {
			return err
		}
		for n := range pushes {
			if err := o.push(ctx, s, random, life, n); err != nil {
				return err
			}
		}
		if err := s.until(ctx, "the letters are kept and the archive has all", func() bool {
			have, err := archived(o.delivered)
			letters, _ := sumOf(s.metrics(ctx), "auditrelay_sink_dead_letters{")
			return err == nil && len(missing(o.acknowledged, have)) == 0 && int(letters) >= (life+1)*lettersOfALife
		}); err != nil {
			return err
		}
		s.relay.kill()
		if life == 0 {
			if err := damage.CopyDir(o.base, o.earlier); err != nil {
				return err
			}
		}
	}
	return o.look(ctx)
}

// lettersOfALife is how many events a sink refuses in one life.
const lettersOfALife = 20

// push pushes five events of random sizes, and sometimes a line that the strict sink refuses.
func (o *owing) push(ctx context.Context, s *scene, random *rand.Rand, life, n int) error {
	var values []string
	var ids []string
	for i := range 5 {
		id := fmt.Sprintf("event-%d-%d-%d", life, n, i)
		ids = append(ids, id)
		values = append(values, fmt.Sprintf(`["%d","{\"event_id\":\"%s\",\"noise\":\"%s\"}"]`, time.Now().UnixNano(), id, noise(random, 500+random.IntN(8000))))
	}
	if n < lettersOfALife {
		values = append(values, fmt.Sprintf(`["%d","line %d-%d is no JSON"]`, time.Now().UnixNano(), life, n))
	}
	body := `{"streams":[{"stream":{"a":"b"},"values":[` + strings.Join(values, ",") + `]}]}`
	if code, _ := s.pushBody(ctx, strings.NewReader(body), int64(len(body))); code != http.StatusNoContent {
		return fmt.Errorf("a push was answered with %d: %s", code, s.relay.tail())
	}
	for _, id := range ids {
		o.acknowledged[id] = true
	}
	return nil
}

func noise(random *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuv"[random.IntN(32)]
	}
	return string(b)
}

// look finds out where the events and the letters are.
func (o *owing) look(ctx context.Context) error {
	places, err := damage.Of(o.base).Records(eventsLog)
	if err != nil {
		return err
	}
	records, err := load(places)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, r := range records {
		o.at[r.Pos] = r.ids
		for _, id := range r.ids {
			found[id] = true
		}
	}
	if lacks := missing(o.acknowledged, found); len(lacks) > 0 {
		return fmt.Errorf("%d acknowledged events are not in the journal's files, one of them %s", len(lacks), lacks[0])
	}
	o.letters, err = lettersIn(ctx, damage.Of(o.base))
	if err == nil && len(o.letters) < 2*lettersOfALife {
		err = fmt.Errorf("the files have %d dead letters", len(o.letters))
	}
	return err
}

// lettersIn are the dead letters of a store: the ids of their events, by position.
func lettersIn(ctx context.Context, dir damage.Store) (map[store.Pos]string, error) {
	all := map[store.Pos]string{}
	return all, dir.Read(ctx, lettersLog, func(item store.Item) error {
		if item.Record == nil || item.Record.Kind != 1 {
			return nil
		}
		head, _, _ := bytes.Cut(item.Record.Data, []byte{'\n'})
		var letter struct{ Event string }
		if err := json.Unmarshal(head, &letter); err != nil {
			return fmt.Errorf("read a dead letter: %w", err)
		}
		all[item.Record.Pos] = letter.Event
		return nil
	})
}

// archived are the ids in a file sink's file.
func archived(path string) (map[string]bool, error) {
	all := map[string]bool{}
	for rec, err := range readback.Records(path) {
		if errors.Is(err, os.ErrNotExist) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all[rec.ID()] = true
	}
	return all, nil
}

// missing are those of the wanted that are not there.
func missing(wanted, there map[string]bool) (all []string) {
	for id := range wanted {
		if !there[id] {
			all = append(all, id)
		}
	}
	return all
}

// outcome is what one fault did.
type outcome struct {
	silent []string // events and letters that nobody got, and that nothing names
	named  int      // positions in the quarantine
	held   bool     // sinks waited for a person
}

// round harms a copy of the files and starts a relay there.
func (o *owing) round(ctx context.Context, n int) (about string, found outcome, err error) {
	s, err := o.relay(ctx, fmt.Sprintf("fault-%d", n))
	if err != nil {
		return "", found, err
	}
	dir := filepath.Dir(s.dataDir)
	defer func() {
		s.close()
		if err == nil && len(found.silent) == 0 {
			err = os.RemoveAll(dir)
		}
	}()
	if err := errors.Join(damage.CopyDir(o.base, s.dataDir), damage.CopyOver(o.delivered, filepath.Join(dir, "archive.jsonl"))); err != nil {
		return "", found, err
	}
	rng := rand.New(rand.NewPCG(o.t.seed, uint64(n)))
	if about, err = s.files().Random(rng, damage.Of(o.earlier)); err != nil {
		return about, found, err
	}
	o.take(true)
	if err := s.startReady(ctx); err != nil {
		return about, found, err
	}
	fresh := fmt.Sprintf("event-after-fault-%d", n)
	if err := s.until(ctx, "a push is taken", func() bool { return s.pushID(ctx, fresh) }); err != nil {
		return about, found, err
	}
	found, err = o.settled(ctx, s, fresh)
	return about, found, err
}

// settled waits until nothing is missing in silence, or nothing more comes. The event fresh was
// acknowledged after the fault.
func (o *owing) settled(ctx context.Context, s *scene, fresh string) (found outcome, err error) {
	left, look := int64(1), time.Time{}
	err = s.while(ctx, "each event has arrived or is named", func() int64 {
		if !found.held && s.gauge(ctx, "auditrelay_journal_damage_held") == "1" {
			out, failed := exec.CommandContext(ctx, s.binary, "journal", "accept-damage", "--config", s.config, "--yes").CombinedOutput()
			if found.held = failed == nil; !found.held {
				o.t.progress("accepting the damage failed for now: %s", out)
			}
		}
		if time.Since(look) < 100*time.Millisecond {
			return left
		}
		look = time.Now()
		if found.silent, found.named, err = o.silent(ctx, s, fresh); err == nil {
			left = int64(len(found.silent))
		}
		return left
	}, func() bool { return left == 0 })
	if s.relay.ended() || ctx.Err() != nil {
		return found, err
	}
	return found, nil
}

// silent are the events that a sink lacks, and the letters that are gone, of which the
// quarantine says nothing.
func (o *owing) silent(ctx context.Context, s *scene, fresh string) (lost []string, named int, err error) {
	all, err := s.files().Quarantined(ctx)
	if err != nil {
		return nil, 0, err
	}
	excused, excusedLetters := map[string]bool{}, map[store.Pos]bool{}
	for _, q := range all {
		named += int(q.To - q.From + 1)
		for at, ids := range o.at {
			if q.Log == eventsLog && at >= q.From && at <= q.To {
				for _, id := range ids {
					excused[id] = true
				}
			}
		}
		for at := range o.letters {
			if q.Log == lettersLog && at >= q.From && at <= q.To {
				excusedLetters[at] = true
			}
		}
	}
	at, err := archived(filepath.Join(filepath.Dir(s.dataDir), "archive.jsonl"))
	if err != nil {
		return nil, 0, err
	}
	for _, there := range []map[string]bool{at, o.received()} {
		if !there[fresh] {
			lost = append(lost, fresh)
		}
		for _, id := range missing(o.acknowledged, there) {
			if !excused[id] {
				lost = append(lost, id)
			}
		}
	}
	now, err := lettersIn(ctx, s.files())
	if err != nil {
		return nil, 0, err
	}
	events := map[string]bool{}
	for _, event := range now {
		events[event] = true
	}
	for at, event := range o.letters {
		if !events[event] && !excusedLetters[at] {
			lost = append(lost, "the dead letter of "+event)
		}
	}
	return lost, named, nil
}
