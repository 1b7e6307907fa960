package audit

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// A running relay signs its tree again on a heartbeat, with the time, even where nothing
// has changed. So "nothing changed" can be told from "nobody looked", and from times
// cut out of the history.
//
// In an extension line, the first checkpoint of a run promises the next ones within so
// many seconds; the last one of a run promises none: 0. Both are signed, so nobody
// without the key can make a gap look like a stop.
const promisePrefix = "auditrelay/heartbeat "

// beat says when a heartbeat is due. The zero beat has none.
type beat struct {
	every   time.Duration
	at      time.Time // of the newest checkpoint
	running bool      // this process has promised
}

// due reports whether the tree is to be signed though it has not grown.
func (b *beat) due(stop bool) bool {
	switch {
	case b.every == 0:
		return false
	case stop:
		return b.running
	}
	return !b.running || time.Since(b.at) >= b.every
}

// promise is the extension line of the next checkpoint, "" for none.
func (b *beat) promise(stop bool) string {
	switch {
	case b.every == 0 || b.running != stop:
		return ""
	case stop:
		return promisePrefix + "0\n"
	}
	return fmt.Sprintf("%s%d\n", promisePrefix, int64(b.every/time.Second))
}

func (b *beat) signed(stop bool) { b.running = b.every > 0 && !stop }

// Signing is when a checkpoint was signed, and what it promises of the next one.
type Signing struct {
	// Time is by the signature's timestamp; zero where it has none.
	Time time.Time
	// Within is the time in which the next checkpoint is due, if Promised; for 0, none is due.
	Within   time.Duration
	Promised bool
}

// SigningOf reads the promise among the extension lines of a checkpoint signed at a time.
func SigningOf(c *tlogproof.Checkpoint, at time.Time) Signing {
	s := Signing{Time: at.UTC()}
	for _, line := range c.Extensions {
		if text, ok := strings.CutPrefix(line, promisePrefix); ok {
			seconds, err := strconv.ParseUint(text, 10, 31)
			s.Within, s.Promised = time.Duration(seconds)*time.Second, err == nil
			break
		}
	}
	return s
}

// Gap is a time without a checkpoint, longer than two heartbeats, though a relay ran by
// its signed promises: it was killed, or checkpoints are gone.
type Gap struct {
	// After and Until are the signed times of the checkpoints around it. Until lies
	// before After where the clock went back by more than a minute, or checkpoints
	// changed places.
	After time.Time `json:"after"`
	Until time.Time `json:"until"`
	// Checkpoint is the number, from 1, of the one after it; 0 where none has come yet.
	Checkpoint uint64 `json:"checkpoint,omitempty"`
}

func (g Gap) String() string {
	what := "no heartbeat came, though the relay had not stopped"
	if g.Until.Before(g.After) {
		what = "the clock went back, or checkpoints changed places"
	}
	return fmt.Sprintf("from %s to %s: %s", g.After.UTC().Format(time.RFC3339), g.Until.UTC().Format(time.RFC3339), what)
}

// Gaps are the newest gaps between heartbeats, at most so many: those found when the
// trail was read back, and the one up to now if this process could not sign for so long.
func (t *Trail) Gaps(most int) []Gap {
	gaps := append([]Gap{}, t.view.Load().gaps...)
	p := Pulse{last: time.Unix(0, t.signedAt.Load()), within: t.options.Heartbeat}
	if t.signedAt.Load() > 0 {
		gaps = append(gaps, p.Gaps(time.Now())...)
	}
	return gaps[max(0, len(gaps)-most):]
}

// Pulse follows the signed times of a trail's checkpoints. The zero Pulse is ready.
type Pulse struct {
	last   time.Time
	within time.Duration // the next one is due in this time; 0: none is
	gaps   []Gap
}

// clockStep is how far a clock may go back without a word.
const clockStep = time.Minute

// Add takes in the next checkpoint, with its number. One without a time counts for nothing.
func (p *Pulse) Add(s Signing, seq uint64) {
	if s.Time.IsZero() {
		return
	}
	if !p.last.IsZero() {
		if passed := s.Time.Sub(p.last); passed < -clockStep || p.within > 0 && passed > 2*p.within {
			p.gaps = append(p.gaps, Gap{p.last, s.Time, seq})
		}
	}
	p.last = s.Time
	if s.Promised {
		p.within = s.Within
	}
}

// Gaps are those found so far, and the one up to now, where one is due by then. A zero
// now leaves the latter out: of a stopped relay nobody knows when it stopped.
func (p *Pulse) Gaps(now time.Time) []Gap {
	if !now.IsZero() && p.within > 0 && now.Sub(p.last) > 2*p.within {
		return append(p.gaps[:len(p.gaps):len(p.gaps)], Gap{After: p.last, Until: now})
	}
	return p.gaps
}
