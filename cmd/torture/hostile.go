package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/relay"
)

// hostileRate is the quota of the hostile environment, in events a second.
const hostileRate = 200

// hostile has one environment push whatever may harm its neighbours, the audit trail and the
// readers. The other environments' events and the trail's entries arrive all the same, at a
// sink that refuses much of what is pushed, and in a chat.
func hostile(ctx context.Context, t *trial) error {
	h := &attacker{strict: filepath.Join(t.dir, "strict.jsonl"), rng: t.random()}
	chat := httptest.NewServer(http.HandlerFunc(h.message))
	defer chat.Close()
	s, err := t.running(ctx, setting{
		rate: min(t.rate, 100), first: fmt.Sprintf(", quota: {events_per_second: %d}", hostileRate),
		more: fmt.Sprintf("  - {name: strict, redact: {remove: [/user/email]}, file: {path: %s}}\n"+
			"  - {name: chat, format: slack, batch_wait: 1s, webhook: {url: %q}}\n"+
			"journal: {dead_letter_bytes: 1MiB}\n", h.strict, chat.URL),
	})
	if err != nil {
		return err
	}
	defer s.close()
	h.scene = s
	for _, attack := range []func(context.Context) error{h.fillLetters, h.squat, h.imitate, h.fromTheFuture, h.repeat, h.rebind, s.settle} {
		if err := attack(ctx); err != nil {
			return err
		}
		t.row.rounds++
	}
	return h.onePairOneEvent()
}

// attacker is a scene with a hostile environment.
type attacker struct {
	*scene
	strict string // a file sink's, with redaction
	rng    *rand.Rand

	mu   sync.Mutex
	said []string // lines in the chat; guarded by mu
}

// message is the chat's receiver.
func (h *attacker) message(_ http.ResponseWriter, r *http.Request) {
	var m struct{ Text string }
	body, _ := io.ReadAll(r.Body)
	if json.Unmarshal(body, &m) == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.said = append(h.said, strings.Split(m.Text, "\n")...)
	}
}

// send pushes lines at a time, and expects them to be taken. It waits if the quota asks for it.
func (h *attacker) send(ctx context.Context, at time.Time, lines ...string) error {
	var values []string
	for _, line := range lines {
		text, err := json.Marshal(line)
		if err != nil {
			return err
		}
		values = append(values, fmt.Sprintf(`["%d",%s]`, at.UnixNano(), text))
	}
	body := `{"streams":[{"stream":{"a":"b"},"values":[` + strings.Join(values, ",") + `]}]}`
	var code int
	return h.until(ctx, "hostile events are taken", func() bool {
		code, _ = h.pushBody(ctx, strings.NewReader(body), int64(len(body)))
		return code == http.StatusNoContent || code != http.StatusTooManyRequests && code != 0
	})
}

// entry makes an entry of the trail, and waits until the strict sink and the chat have it.
func (h *attacker) entry(ctx context.Context) (id string, err error) {
	reason := fmt.Sprintf("reason-%d", h.rng.Uint64())
	request := console.AddSilence{Project: h.environments[1].Project, Environment: h.environments[1].Environment, For: 60, Reason: reason}
	if _, err := console.NewClient(h.dataDir).AddSilence(ctx, request); err != nil {
		return "", err
	}
	err = h.until(ctx, "an entry of the trail is at the strict sink", func() bool {
		for rec, err := range readback.Records(h.strict) {
			if err == nil && rec.Attributes["source"] == relay.TrailSource && strings.Contains(string(rec.Body), reason) {
				id = rec.ID()
			}
		}
		return id != ""
	})
	return id, err
}

// fillLetters pushes several budgets of events that the strict sink cannot redact, and others
// with a secret in a text.
func (h *attacker) fillLetters(ctx context.Context) error {
	const pushes, each, size = 50, 10, 8 << 10
	for n := range pushes {
		var lines []string
		for i := range each {
			noise := make([]byte, size)
			for k := range noise {
				noise[k] = byte('!' + h.rng.IntN(90))
			}
			lines = append(lines, fmt.Sprintf("no object %d %d %s", n, i, noise))
		}
		lines = append(lines, fmt.Sprintf(`{"event_id":"hidden-%d","a":"said {\"user\":{\"email\":\"hunter2\"}}"}`, n))
		if err := h.send(ctx, time.Now(), lines...); err != nil {
			return err
		}
	}
	neighbour := h.environments[1]
	before := h.arrived(neighbour.Environment)
	if err := h.until(ctx, "a neighbour's events arrive at the strict sink", func() bool { return h.arrived(neighbour.Environment) > before }); err != nil {
		return err
	}
	if _, err := h.entry(ctx); err != nil {
		return err
	}
	letters, _ := sumOf(h.metrics(ctx), `auditrelay_dead_letters_fullest_bytes{sink="strict"`)
	h.t.remark("%.1f MiB of one environment's letters in a budget of 1 MiB, and neighbours and the trail arrive", letters/(1<<20))
	if letters <= 1<<20 {
		return errors.New("the letters' budget was not spent: nothing is shown")
	}
	return nil
}

// arrived counts an environment's events at the strict sink.
func (h *attacker) arrived(environment string) (n int) {
	for rec, err := range readback.Records(h.strict) {
		if err == nil && rec.Attributes["environment"] == environment && strings.HasPrefix(fmt.Sprint(rec.Attributes["type"]), "event_log") {
			n++
		}
	}
	return n
}

// squat takes the ids of the trail's next entries.
func (h *attacker) squat(ctx context.Context) error {
	id, err := h.entry(ctx)
	if err != nil {
		return err
	}
	name, at, _ := strings.Cut(id, "@")
	var next int64
	if _, err := fmt.Sscan(at, &next); err != nil {
		return fmt.Errorf("the entry's id is %q: %w", id, err)
	}
	var lines []string
	for i := range int64(50) {
		lines = append(lines, fmt.Sprintf(`{"event_id":"%s@%d","source":%q,"type":"settings.changed","trail":{"index":%d}}`, name, next+1+i, relay.TrailSource, next+1+i))
	}
	if err := h.send(ctx, time.Now(), lines...); err != nil {
		return err
	}
	_, err = h.entry(ctx)
	return err
}

// imitate pushes events as the trail's entries are written, and wants a real one seen.
func (h *attacker) imitate(ctx context.Context) error {
	var lines []string
	for i := range 60 {
		lines = append(lines, fmt.Sprintf(`{"event_id":"imitation-%d","action":"settings.changed","detail":{"summary":"IMITATION <!channel>","severity":"critical"}}`, i))
	}
	if err := h.send(ctx, time.Now(), lines...); err != nil {
		return err
	}
	h.mu.Lock()
	seen := len(h.said)
	h.mu.Unlock()
	if _, err := h.entry(ctx); err != nil {
		return err
	}
	return h.until(ctx, "the entry is a line in the chat", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return strings.Contains(strings.Join(h.said[seen:], "\n"), "silence")
	})
}

// fromTheFuture pushes events dated in a hundred years. Loki's own tests cover what Loki does
// with them.
func (h *attacker) fromTheFuture(ctx context.Context) error {
	return h.send(ctx, time.Now().AddDate(100, 0, 0), `{"event_id":"future"}`)
}

// repeat pushes the same events for some seconds, as fast as it can.
func (h *attacker) repeat(ctx context.Context) error {
	const lasts, burst, each = 10 * time.Second, 10 * time.Second, 90
	var values []string
	for i := range each {
		values = append(values, fmt.Sprintf(`["%d","{\"event_id\":\"same-%d\"}"]`, i+1, i))
	}
	body := `{"streams":[{"stream":{"a":"b"},"values":[` + strings.Join(values, ",") + `]}]}`
	tally := map[int]int{}
	start := time.Now()
	for time.Since(start) < lasts && ctx.Err() == nil {
		code, _ := h.pushBody(ctx, strings.NewReader(body), int64(len(body)))
		tally[code]++
	}
	most := int((time.Since(start)+burst).Seconds()*hostileRate) + 2*each
	h.t.remark("repeated pushes by status: %v", tally)
	if taken := each * tally[http.StatusNoContent]; taken > most {
		return fmt.Errorf("%d repeated events passed a quota of %d a second in %s", taken, hostileRate, lasts)
	}
	return nil
}

// rebind asks the private listener as a web page, and as a local user without the token.
func (h *attacker) rebind(ctx context.Context) error {
	for _, c := range []struct {
		path, host string
		want       int
	}{
		{"/metrics", "rebind.attacker.example", http.StatusForbidden},
		{"/tlog/", "rebind.attacker.example", http.StatusForbidden},
		{"/tlog/", "", http.StatusUnauthorized},
		{"/status", "", http.StatusUnauthorized},
		{"/readyz", "", http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.admin+c.path, http.NoBody)
		if err != nil {
			return err
		}
		req.Host = c.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			return fmt.Errorf("%s of %q is answered with %d, not %d", c.path, c.host, resp.StatusCode, c.want)
		}
		if strings.Contains(string(body), "strict") {
			return fmt.Errorf("%s tells a stranger too much: %s", c.path, body)
		}
	}
	return nil
}

// onePairOneEvent reads the destinations back: no pair of source and id has two events, no
// secret arrived where it is redacted, and the chat showed no imitation.
func (h *attacker) onePairOneEvent() error {
	bodies, entries := map[string]string{}, 0
	for rec, err := range readback.Records(h.file.Path) {
		if err != nil {
			return err
		}
		if rec.Attributes["source"] == relay.TrailSource {
			entries++
		}
		pair := fmt.Sprint(rec.Attributes["source"], " ", rec.ID())
		if before, twice := bodies[pair]; twice && before != string(rec.Body) {
			return fmt.Errorf("%s has two events: %s and %s", pair, before, rec.Body)
		}
		bodies[pair] = string(rec.Body)
	}
	for rec, err := range readback.Records(h.strict) {
		if err == nil && strings.Contains(string(rec.Body), "hunter2") {
			return fmt.Errorf("a secret arrived: %s", rec.Body)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if text := strings.Join(h.said, "\n"); strings.Contains(text, "IMITATION") {
		return errors.New("the chat shows an imitation")
	}
	h.t.remark("%d pairs of source and id, %d of them the trail's, each one event; %d lines in the chat, none an imitation's", len(bodies), entries, len(h.said))
	return nil
}
