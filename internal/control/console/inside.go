package console

import (
	"context"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace"
)

// Client makes a client for a person, who asks within the relay and not through its socket. Who
// the person is was checked by the caller.
func (s *Server) Client(by workspace.Person) *Client {
	return &Client{http: &http.Client{Transport: inside{s, by}}, Person: by}
}

// inside carries the calls of a person to the routes of a server.
type inside struct {
	server *Server
	by     workspace.Person
}

// RoundTrip implements [http.RoundTripper]. It returns at the answer's first bytes; the call ends
// with its context, and when the answer's body is closed.
func (i inside) RoundTrip(req *http.Request) (*http.Response, error) {
	if !i.server.enter() {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(context.WithValue(req.Context(), personKey{}, i.by))
	unread, body := io.Pipe()
	a := &insideAnswer{header: http.Header{}, body: body, began: make(chan struct{})}
	go func() {
		defer i.server.inside.Done()
		defer cancel()
		defer context.AfterFunc(i.server.working, cancel)()
		defer context.AfterFunc(req.Context(), func() { _ = body.CloseWithError(context.Cause(req.Context())) })()
		i.server.serve(a, req.WithContext(ctx))
		_ = body.Close()
	}()
	select {
	case <-a.began:
	case <-req.Context().Done():
		cancel()
		return nil, req.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Header: a.header, Request: req, ContentLength: -1,
		Body: insideBody{unread, cancel},
	}, nil
}

// enter counts a call in, unless the server is closed.
func (s *Server) enter() bool {
	s.entering.Lock()
	defer s.entering.Unlock()
	if s.working.Err() != nil {
		return false
	}
	s.inside.Add(1)
	return true
}

// serve has a call answered. A panic ends that call alone, as in net/http.
func (s *Server) serve(a *insideAnswer, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			s.opts.Logger.Error("a question of the console made the relay panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			writeJSON(a, http.StatusInternalServerError, answerError{"the relay could not answer; its log says why"}) // a stream's last line, too
		}
	}()
	defer func() { _ = r.Body.Close() }()
	s.handler.ServeHTTP(a, r)
	a.WriteHeader(http.StatusOK)
}

// insideAnswer is an [http.ResponseWriter] whose body is read as it is written.
type insideAnswer struct {
	header http.Header
	body   *io.PipeWriter
	status int
	once   sync.Once
	began  chan struct{} // closed once status is set
}

func (a *insideAnswer) Header() http.Header { return a.header }

func (a *insideAnswer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status = status
		close(a.began)
	})
}

func (a *insideAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// FlushError and SetWriteDeadline are for [http.ResponseController].
func (a *insideAnswer) FlushError() error {
	a.WriteHeader(http.StatusOK)
	return nil
}

// SetWriteDeadline ends an answer that nobody reads.
func (a *insideAnswer) SetWriteDeadline(at time.Time) error {
	time.AfterFunc(time.Until(at), func() { _ = a.body.CloseWithError(errClosed) })
	return nil
}

type insideBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b insideBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
