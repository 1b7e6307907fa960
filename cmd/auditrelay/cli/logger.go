package cli

import (
	"io"
	"log/slog"

	"github.com/auditrelay/auditrelay/config"
)

// newLogger makes the process's logger; c has been validated.
func newLogger(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // a validated name
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
