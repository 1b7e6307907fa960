package console

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// progressInterval is the time between two reports of progress to a client.
const progressInterval = 200 * time.Millisecond

// stream writes an answer line by line.
type stream struct {
	enc   *json.Encoder
	flush func() error
	began bool
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &stream{enc: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
}

// send writes an item, and tell anything else; put writes an item that may wait for those after
// it. The first line waits for nothing.
func (s *stream) send(v any) error   { return s.line(item[any]{Item: &v}, true) }
func (s *stream) put(v any) error    { return s.line(item[any]{Item: &v}, false) }
func (s *stream) tell(f frame) error { return s.line(f, true) }

func (s *stream) line(v any, now bool) error {
	if err := s.enc.Encode(v); err != nil || s.began && !now {
		return err
	}
	s.began = true
	return s.flush()
}

// end writes the last line.
func (s *stream) end(ctx context.Context, p *Progress, err error) {
	f := frame{Progress: p, Finished: err == nil}
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		f.Error = "the relay is shutting down; run the command again when it is back"
	default:
		f.Error = err.Error()
	}
	_ = s.tell(f) // the client has gone, or sees a stream without its end
}

// lastWords is the time for an answer's rest when the relay stops.
const lastWords = 500 * time.Millisecond

// cutOff ends unread answers when the relay stops: a paused `auditrelay tap | less` would
// hold the stop up.
func cutOff(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := http.NewResponseController(w)
		defer context.AfterFunc(r.Context(), func() { _ = answer.SetWriteDeadline(time.Now().Add(lastWords)) })()
		next.ServeHTTP(w, r)
	})
}

// job is a piece of long work.
type job struct {
	mu sync.Mutex
	p  Progress // guarded by mu
}

func (j *job) update(change func(p *Progress)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.p)
}

func (j *job) snapshot() *Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.p
	p.Notes, p.Sinks = slices.Clone(p.Notes), maps.Clone(p.Sinks)
	return &p
}

// logEnd logs how work for a command has ended.
func (s *Server) logEnd(what string, err error, fields ...any) {
	if err != nil {
		s.opts.Logger.Warn(what+" ended early", append(fields, "error", err)...)
		return
	}
	s.opts.Logger.Info(what+" has ended", fields...)
}

// run does work and streams its progress. When the client goes away, or the
// console is closed, work's context ends, and run waits for it.
func (s *Server) run(w http.ResponseWriter, r *http.Request, j *job, work func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := newStream(w)
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			out.end(r.Context(), j.snapshot(), err)
			return
		case <-tick.C:
			if out.tell(frame{Progress: j.snapshot()}) != nil {
				cancel()
			}
		}
	}
}
