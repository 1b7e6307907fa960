package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
)

func (s *Server) listLetters(ctx context.Context, req ListLetters, out *stream) (err error) {
	failed := s.opts.Letters.Find(ctx, req.Filter, func(d deadletters.Letter) bool {
		err = out.send(letterOf(&d, req.Bodies))
		return err == nil
	})
	return errors.Join(err, failed)
}

// selection is the dead letters of a request, as they stood when it came: letters
// refused again while it runs are not among them.
type selection struct {
	bySink map[string][]chosen // ascending
}

// chosen is one of them.
type chosen struct {
	sequence                 uint64
	project, environment, id string
}

func (s *Server) choose(ctx context.Context, filter deadletters.Filter, j *job) (selection, error) {
	selected := selection{bySink: map[string][]chosen{}}
	err := s.opts.Letters.Find(ctx, filter, func(d deadletters.Letter) bool {
		// Cloned, as they are parts of the whole letter's memory.
		selected.bySink[d.Sink] = append(selected.bySink[d.Sink], chosen{
			d.Sequence, strings.Clone(d.Event.Project), strings.Clone(d.Event.Environment), strings.Clone(d.Event.ID),
		})
		j.update(func(p *Progress) {
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
		})
		return true
	})
	return selected, err
}

// changeLetters gives work on the chosen dead letters, unless other work changes them.
func (s *Server) changeLetters(filter deadletters.Filter, j *job, change func(context.Context, selection) error) (work, error) {
	select {
	case s.lettersTurn <- struct{}{}:
	default:
		return nil, refuse(http.StatusConflict, "the dead letters are being replayed or discarded already: wait for its end, or end it with Ctrl-C")
	}
	j.p.Unit = "dead letters"
	return func(ctx context.Context) error {
		// Before the answer's last line: whoever has read it may ask for more.
		defer func() { <-s.lettersTurn }()
		selected, err := s.choose(ctx, filter, j)
		if err != nil {
			return err
		}
		return change(ctx, selected)
	}, nil
}

func (s *Server) discardLetters(_ context.Context, req DiscardLetters, j *job) (work, error) {
	return s.changeLetters(req.Filter, j, func(ctx context.Context, selected selection) error {
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
	for sink, letters := range selected.bySink {
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
