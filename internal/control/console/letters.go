package console

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/relay"
)

// Letter is a dead letter.
type Letter struct {
	Sequence uint64    `json:"sequence"`
	Sink     string    `json:"sink"`
	Reason   string    `json:"reason"` // as the sink said
	Attempts int       `json:"attempts"`
	Refused  time.Time `json:"refused"`
	Damage   string    `json:"damage,omitempty"` // why the event cannot be read

	relay.Event     // without its body in lists, since it may hold personal data
	BodyBytes   int `json:"body_bytes"`
}

func letterOf(d *deadletters.Letter, withBody bool) *Letter {
	l := &Letter{
		Sequence: d.Sequence, Sink: d.Sink, Reason: d.Reason, Attempts: d.Attempts, Refused: d.Time, Damage: d.Damage,
		Event: d.Event, BodyBytes: len(d.Event.Body),
	}
	if !withBody {
		l.Body = nil
	}
	return l
}

// ListLetters asks for dead letters.
type ListLetters struct {
	Filter deadletters.Filter `json:"filter"`
	Bodies bool               `json:"bodies,omitempty"`
	// Veiled shows the events as viewers of the console in the browser may see them.
	Veiled bool `json:"veiled,omitempty"`
}

// ReplayLetters asks to hand dead letters to their sink again, or to To.
type ReplayLetters struct {
	Filter deadletters.Filter `json:"filter"`
	To     string             `json:"to,omitempty"`
	DryRun bool               `json:"dry_run,omitempty"`
}

// DiscardLetters asks to remove dead letters.
type DiscardLetters struct {
	Filter deadletters.Filter `json:"filter"`
	DryRun bool               `json:"dry_run,omitempty"`
}

func (s *Server) listLetters(ctx context.Context, req ListLetters, out *stream) (err error) {
	if err := s.knownToLetters(ctx, req.Filter.Sink); err != nil {
		return err
	}
	failed := s.opts.Letters.Find(ctx, req.Filter, func(d deadletters.Letter) bool {
		if req.Veiled {
			d.Event = s.veil(d.Event)
		}
		err = out.send(letterOf(&d, req.Bodies))
		return err == nil
	})
	return errors.Join(err, failed)
}

// knownToLetters refuses a sink that is not configured and has no dead letters: it is misspelt.
func (s *Server) knownToLetters(ctx context.Context, name string) error {
	_, unknown := s.sink(name)
	if name == "" || unknown == nil {
		return nil
	}
	usage, err := s.opts.Letters.Usage(ctx)
	if err != nil || usage[name].Letters > 0 {
		return err
	}
	return unknown
}

// selection is the dead letters of a request by their sinks, in ascending order, as they stood when
// it came: letters refused again while it runs are not among them.
type selection map[string][]chosen

// chosen is one of them.
type chosen struct {
	sequence                 uint64
	project, environment, id string
}

// changeLetters changes the chosen dead letters, unless another command does so.
func (s *Server) changeLetters(ctx context.Context, filter deadletters.Filter, j *job, change func(selection) error) error {
	if err := s.knownToLetters(ctx, filter.Sink); err != nil {
		return err
	}
	if !s.lettersTurn.TryLock() {
		return refuse(http.StatusConflict, "the dead letters are being replayed or discarded already: wait for its end, or end it with Ctrl-C")
	}
	// Before the answer's last line: whoever has read it may ask for more.
	defer s.lettersTurn.Unlock()
	j.begin("dead letters")
	selected := selection{}
	err := s.opts.Letters.Find(ctx, filter, func(d deadletters.Letter) bool {
		// Cloned, as they are parts of the whole letter's memory.
		selected[d.Sink] = append(selected[d.Sink], chosen{
			d.Sequence, strings.Clone(d.Event.Project), strings.Clone(d.Event.Environment), strings.Clone(d.Event.ID),
		})
		j.update(func(p *Progress) { p.choose(&d) })
		return true
	})
	if err != nil {
		return err
	}
	return change(selected)
}

// choose counts a chosen letter.
func (p *Progress) choose(d *deadletters.Letter) {
	if p.Sinks == nil {
		p.Sinks = map[string]uint64{}
	}
	p.Sinks[d.Sink]++
	p.Total++
	p.Matched++
	p.Last = max(p.Last, d.Sequence)
	if d.Damage != "" {
		p.Damaged++
	}
}

func (s *Server) discardLetters(ctx context.Context, req DiscardLetters, j *job) error {
	return s.changeLetters(ctx, req.Filter, j, func(selected selection) error {
		if req.DryRun {
			return nil
		}
		defer func() {
			s.opts.Logger.Warn("dead letters were discarded by command", "letters", j.snapshot().Removed, "of", j.snapshot().Total)
		}()
		return s.discard(ctx, selected, j)
	})
}

// discardedAtOnce bounds the event ids in one entry of the trail.
const discardedAtOnce = 500

// discard removes letters, in runs of one sink and environment. Each run stands in the
// trail before it is removed. A crash between leaves letters although the trail says
// they were discarded; discarded again, they stand there twice.
func (s *Server) discard(ctx context.Context, selected selection, j *job) error {
	for sink, letters := range selected {
		for len(letters) > 0 {
			n := 1
			for n < min(len(letters), discardedAtOnce) && letters[n].project == letters[0].project && letters[n].environment == letters[0].environment {
				n++
			}
			if err := s.discardRun(ctx, sink, letters[:n], j); err != nil {
				return err
			}
			letters = letters[n:]
		}
	}
	return nil
}

func (s *Server) discardRun(ctx context.Context, sink string, run []chosen, j *job) error {
	ids, sequences := make([]string, len(run)), make([]uint64, len(run))
	for i, c := range run {
		ids[i], sequences[i] = c.id, c.sequence
	}
	loss := Loss{
		Type: "deadletters.discarded", Project: run[0].project, Environment: run[0].environment, Sink: sink,
		Detail: map[string]any{"sink": sink, "event_ids": ids},
	}
	if err := s.record(ctx, loss); err != nil {
		return err
	}
	if err := s.opts.Letters.Remove(ctx, sequences); err != nil {
		return err
	}
	j.update(func(p *Progress) { p.Done += uint64(len(run)); p.Removed += uint64(len(run)) })
	return nil
}

func (s *Server) replayLetters(ctx context.Context, req ReplayLetters, j *job) error {
	if req.To != "" {
		if _, err := s.sink(req.To); err != nil {
			return err
		}
	}
	return s.changeLetters(ctx, req.Filter, j, func(selected selection) error {
		to, err := s.receivers(selected, req.To)
		if err != nil || req.DryRun || len(to) == 0 {
			return err
		}
		// A crash after it leaves an entry of the intent.
		if err := s.record(ctx, Loss{Type: "deadletters.replayed", Sink: onlyOne(to), Detail: replayed{req, j.snapshot().Sinks}}); err != nil {
			return err
		}
		err = s.redeliver(ctx, to, j)
		p := j.snapshot()
		s.logEnd("replay of dead letters by command", err, "to", req.To, "letters", p.Total, "delivered", p.Delivered, "refused", p.Refused)
		return err
	})
}

// replayed is the Detail of the entry before a replay.
type replayed struct {
	ReplayLetters
	// Letters counts them by the sink that refused them.
	Letters map[string]uint64 `json:"letters"`
}

// onlyOne is the sink that gets all letters; empty if there are several.
func onlyOne(to map[string]*letterSource) string {
	if names := slices.Collect(maps.Keys(to)); len(names) == 1 {
		return names[0]
	}
	return ""
}

// receivers gives the letters to their sinks, or to one for all.
func (s *Server) receivers(selected selection, to string) (map[string]*letterSource, error) {
	all := map[string]*letterSource{}
	for from, letters := range selected {
		name := cmp.Or(to, from)
		sink, err := s.sink(name)
		if err != nil {
			return nil, refuse(http.StatusConflict, "%d dead letters are of sink %q, which is not in the running configuration: "+
				"name a sink by --to, or leave them out by --sink", len(letters), from)
		}
		if all[name] == nil {
			all[name] = &letterSource{to: sink}
		}
		all[name].chosen = append(all[name].chosen, letters...)
	}
	return all, nil
}

// redeliver runs a pump for each sink, so a dead one holds up no other.
func (s *Server) redeliver(ctx context.Context, to map[string]*letterSource, j *job) error {
	failed := make(chan error, len(to))
	for _, l := range to {
		l.listed = listed{counted: counted{letters: s.opts.Letters, job: j}, length: len(l.chosen), limit: limitOf(l.to), load: l.get}
		go func() { failed <- s.pump(ctx, l.to, l, j) }()
	}
	var err error
	for range to {
		err = errors.Join(err, <-failed)
	}
	return err
}

// letterSource gives dead letters to a pump, and takes each away after it was
// acknowledged. It belongs to the pump's goroutine.
type letterSource struct {
	listed
	to     config.Sink
	chosen []chosen
	batch  []deadletters.Letter // the newest one given out
}

// Next implements relay.Source.
func (l *letterSource) Next(ctx context.Context) (relay.Batch, error) {
	l.batch = l.batch[:0]
	return l.listed.Next(ctx)
}

// get counts a letter as done if it has gone meanwhile, or cannot be read, and stays.
func (l *letterSource) get(ctx context.Context, i int) (relay.Event, bool, error) {
	letter, isThere, err := l.letters.Get(ctx, l.chosen[i].sequence)
	switch {
	case err != nil:
		return relay.Event{}, false, err
	case isThere && letter.Damage == "":
		l.batch = append(l.batch, letter)
		return letter.Event, true, nil
	}
	l.job.update(func(p *Progress) {
		p.Done++
		if !isThere {
			p.Missing++
		}
	})
	return relay.Event{}, false, nil
}

// Reject implements relay.DeadLetters: a letter refused again is kept as another letter,
// with its new reason. Ack removes the old one after that. A crash in between leaves both:
// the event is delivered once more, never lost. Between the two the letters may take more
// than their budget, or a full one could never be replayed.
func (l *letterSource) Reject(ctx context.Context, to string, rejections []relay.Rejection) error {
	again := map[string][]relay.Rejection{} // by the sink of the refusal first
	for i := range rejections {
		r, owner := rejections[i], to
		// If the same event stands twice in the batch either will do, as both are settled with it.
		is := func(d deadletters.Letter) bool { return d.Event.ID == r.Event.ID && d.Event.Source == r.Event.Source }
		if at := slices.IndexFunc(l.batch, is); at >= 0 {
			owner = l.batch[at].Sink
			r.Attempts += l.batch[at].Attempts
		}
		if owner != to {
			r.Reason = "sink " + to + ": " + r.Reason
		}
		again[owner] = append(again[owner], r)
	}
	for owner, rejections := range again {
		if err := l.counted.Reject(ctx, owner, rejections); err != nil {
			return err
		}
	}
	return nil
}

// Ack implements relay.Source. The sink has each letter of the batch, or it is kept as
// another one. A crash here delivers some again.
func (l *letterSource) Ack(ctx context.Context, _ relay.Position) error {
	l.job.update(func(p *Progress) { p.Delivered += uint64(l.given - l.refused) })
	sequences := make([]uint64, len(l.batch))
	for i := range l.batch {
		sequences[i] = l.batch[i].Sequence
	}
	if err := l.letters.Remove(ctx, sequences); err != nil {
		return err
	}
	l.job.update(func(p *Progress) { p.Done += uint64(len(sequences)) })
	return nil
}
