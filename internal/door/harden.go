package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
)

// Harden makes a server answer 500 after a panic of its handler, and log the panic and
// the server's own complaints. The server must not be serving yet. name is the server's
// in the log.
func Harden(server *http.Server, name string, logger *slog.Logger) {
	logger = logger.With("listener", name)
	server.Handler = recovering(server.Handler, logger)
	server.ErrorLog = slog.NewLogLogger(complaints{logger.Handler()}, slog.LevelError)
}

// maxPanicText bounds a panic's value in the log.
const maxPanicText = 1000

// recovering logs a panic once, with its stack. The path is not logged: it may hold a key.
func recovering(next http.Handler, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answer{ResponseWriter: w}
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause) // a handler's way to have the connection closed
			}
			text := fmt.Sprint(cause)
			logger.Error("handler panicked; the request failed, the relay goes on",
				"method", r.Method, "panic", text[:min(len(text), maxPanicText)], "stack", string(debug.Stack()))
			if answer.begun {
				panic(http.ErrAbortHandler) // no half answer passes for a whole one
			}
			w.Header().Set("Connection", "close")
			http.Error(w, "the relay failed at this request; its log says how", http.StatusInternalServerError)
		}()
		next.ServeHTTP(answer, r)
	})
}

// answer notes whether an answer was begun.
type answer struct {
	http.ResponseWriter
	begun bool
}

func (a *answer) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// handshakeError begins the server's line on a failed TLS handshake.
const handshakeError = "http: TLS handshake error"

// complaints gives an http.Server's lines their level.
type complaints struct{ slog.Handler }

func (c complaints) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case strings.HasPrefix(r.Message, "http: panic serving"):
		r.Level = slog.LevelError
	case strings.HasPrefix(r.Message, handshakeError):
		r.Level = slog.LevelDebug // any stranger can cause it
	default:
		r.Level = slog.LevelWarn
	}
	if !c.Enabled(ctx, r.Level) {
		return nil
	}
	return c.Handler.Handle(ctx, r)
}
