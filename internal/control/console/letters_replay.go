package console

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/relay"
)

// errNoMore ends a pump whose dead letters have all been looked at.
var errNoMore = errors.New("no more dead letters")

func (s *Server) replayLetters(_ context.Context, req ReplayLetters, j *job) (work, error) {
	if req.To != "" {
		if _, err := s.sink(req.To); err != nil {
			return nil, err
		}
	}
	return s.changeLetters(req.Filter, j, func(ctx context.Context, selected selection) error {
		routes, err := s.routesOf(selected, req.To)
		if err != nil || req.DryRun {
			return err
		}
		err = s.redeliver(ctx, routes, j)
		p := j.snapshot()
		s.logEnd("replay of dead letters by command", err, "to", req.To, "letters", p.Total, "delivered", p.Delivered, "refused", p.Refused)
		return err
	})
}

// route is the letters for one sink.
type route struct {
	to      config.Sink
	letters []chosen
}

func (s *Server) routesOf(selected selection, to string) ([]*route, error) {
	var routes []*route
	byName := map[string]*route{}
	for from, letters := range selected.bySink {
		name := from
		if to != "" {
			name = to
		}
		sink, err := s.sink(name)
		if err != nil {
			return nil, refuse(http.StatusConflict, "%d dead letters are of sink %q, which is not in the running configuration: "+
				"name a sink by --to, or leave them out by --sink", len(letters), from)
		}
		if byName[name] == nil {
			byName[name] = &route{to: sink}
			routes = append(routes, byName[name])
		}
		byName[name].letters = append(byName[name].letters, letters...)
	}
	return routes, nil
}

// redeliver runs a pump for each sink, so a dead one holds up no other.
func (s *Server) redeliver(ctx context.Context, routes []*route, j *job) error {
	failed := make([]error, len(routes))
	var running sync.WaitGroup
	for i, r := range routes {
		running.Go(func() {
			letters := &letterSource{server: s, route: r, job: j}
			err := s.pump(ctx, r.to, letters, letters, j)
			if !errors.Is(err, errNoMore) {
				failed[i] = err
			}
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// pump hands the events of source to a further instance of a sink.
func (s *Server) pump(ctx context.Context, cfg config.Sink, source relay.Source, dead relay.DeadLetters, j *job) error {
	sink, err := s.opts.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close() }() // its acknowledgements stay valid
	p := relay.Pump{
		Name: cfg.Name, Source: source, Sink: &watched{sink, j}, DeadLetters: dead,
		Limit: relay.BatchLimit{Events: cfg.BatchEvents, Bytes: int(cfg.BatchBytes)}, Timeout: cfg.Timeout,
		Logger: s.opts.Logger.With("replay", true),
	}
	return p.Run(ctx)
}

// watched tells a job the error its sink is retried for.
type watched struct {
	relay.Sink
	job *job
}

func (w *watched) Deliver(ctx context.Context, events []relay.Event) error {
	err := w.Sink.Deliver(ctx, events)
	w.job.update(func(p *Progress) {
		p.Failing = ""
		if err != nil && !relay.IsPermanent(err) {
			p.Failing = err.Error()
		}
	})
	return err
}

// letterSource gives dead letters to a pump, and takes each away after it was
// acknowledged. It belongs to the pump's goroutine.
type letterSource struct {
	server *Server
	route  *route
	job    *job

	taken   int                  // of the route's letters
	batch   []deadletters.Letter // the newest one given out
	refused int                  // of batch
}

// Next implements relay.Source.
func (l *letterSource) Next(ctx context.Context) (relay.Batch, error) {
	l.batch, l.refused = l.batch[:0], 0
	var events []relay.Event
	size, limit := 0, l.route.to
	for l.taken < len(l.route.letters) && len(events) < max(1, limit.BatchEvents) && size < max(1, int(limit.BatchBytes)) {
		letter, ok, err := l.server.opts.Letters.Get(ctx, l.route.letters[l.taken].sequence)
		if err != nil {
			return relay.Batch{}, err
		}
		l.taken++
		if !ok || letter.Damage != "" {
			l.pass(ok)
			continue
		}
		l.batch, events = append(l.batch, letter), append(events, letter.Event)
		size += len(letter.Event.Body)
	}
	if len(events) == 0 {
		return relay.Batch{}, errNoMore
	}
	return relay.Batch{Events: events, Position: relay.Position(l.taken)}, nil
}

// pass counts a letter if it has gone meanwhile, or cannot be read, and stays.
func (l *letterSource) pass(isThere bool) {
	l.job.update(func(p *Progress) {
		p.Done++
		if !isThere {
			p.Missing++
		}
	})
}

// Reject implements relay.DeadLetters: a letter refused again is kept as another letter,
// with its new reason. Ack removes the old one after that. A crash in between leaves both:
// the event is delivered once more, never lost. Between the two the letters may take more
// than their budget, or a full one could never be replayed.
func (l *letterSource) Reject(ctx context.Context, to string, rejections []relay.Rejection) error {
	again := map[string][]relay.Rejection{} // by the sink of the refusal first
	for i := range rejections {
		r, owner := rejections[i], to
		if old := l.find(&r.Event); old != nil {
			owner = old.Sink
			r.Attempts += old.Attempts
		}
		if owner != to {
			r.Reason = "sink " + to + ": " + r.Reason
		}
		again[owner] = append(again[owner], r)
	}
	for owner, rejections := range again {
		if err := l.server.opts.Letters.Reject(ctx, owner, rejections); err != nil {
			return err
		}
	}
	l.refused += len(rejections)
	l.job.update(func(p *Progress) { p.Refused += uint64(len(rejections)) })
	return nil
}

// find returns the letter of an event in the batch. If the same event stands twice
// either will do, as both are settled with the batch.
func (l *letterSource) find(e *relay.Event) *deadletters.Letter {
	for i := range l.batch {
		if l.batch[i].Event.ID == e.ID && l.batch[i].Event.Source == e.Source {
			return &l.batch[i]
		}
	}
	return nil
}

// Ack implements relay.Source. The sink has each letter of the batch, or it is kept as
// another one. A crash here delivers some again.
func (l *letterSource) Ack(ctx context.Context, _ relay.Position) error {
	l.job.update(func(p *Progress) { p.Delivered += uint64(len(l.batch) - l.refused) })
	sequences := make([]uint64, len(l.batch))
	for i := range l.batch {
		sequences[i] = l.batch[i].Sequence
	}
	if err := l.server.opts.Letters.Remove(ctx, sequences); err != nil {
		return err
	}
	l.job.update(func(p *Progress) { p.Done += uint64(len(sequences)) })
	return nil
}
