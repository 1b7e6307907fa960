package config

import (
	"os"
	"strings"
	"time"
)

// setDefault fills in an empty field.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetDefaults sets every empty field to its default. [Parse] calls it; a Go program that makes
// a Config itself calls it before Validate.
func (c *Config) SetDefaults() {
	setDefault(&c.ShutdownTimeout, 30*time.Second)
	if w := c.Workspace; w != nil {
		setDefault(&w.RequestsPerSecond, 5)
		setDefault(&w.Timeout, 30*time.Second)
	}
	setDefault(&c.Ingest.Listen, "127.0.0.1:3100")
	c.Ingest.Limits.setDefaults()
	c.Journal.setDefaults()
	setDefault(&c.Streaming.Interval, time.Minute)
	if c.Streaming.RotationOverlap == nil {
		c.Streaming.RotationOverlap = new(15 * time.Minute)
	}
	setDefault(&c.Settings.Interval, 5*time.Minute)
	setDefault(&c.Audit.Origin, "auditrelay.local/"+hostname())
	c.Audit.setDefaults(c.DataDir)
	setDefault(&c.Audit.Serve.Listen, ServeOnAdmin)
	setDefault(&c.Audit.Quorum, len(c.Audit.Witnesses))
	setDefault(&c.Audit.Spans.Interval, 10*time.Minute)
	setDefault(&c.Audit.Spans.Events, 1_000_000)
	setDefault(&c.Admin.Listen, "127.0.0.1:9100")
	setDefault(&c.Heartbeat.Interval, time.Minute)
	setDefault(&c.Traces.Ratio, 0.001)
	setDefault(&c.Log.Level, "info")
	setDefault(&c.Log.Format, "text")
	for i := range c.Environments {
		setDefault(&c.Environments[i].Mode, ModeEnforce)
	}
	for i := range c.Sinks {
		c.Sinks[i].setDefaults()
	}
}

func (l *IngestLimits) setDefaults() {
	setDefault(&l.BodyBytes, 10<<20)
	setDefault(&l.DecompressedBytes, 64<<20)
	setDefault(&l.Entries, 100_000)
	setDefault(&l.LineBytes, 256<<10)
	setDefault(&l.Labels, 256)
	setDefault(&l.LabelBytes, 64<<10)
	setDefault(&l.Concurrent, 256)
	setDefault(&l.InFlightBytes, 256<<20)
	setDefault(&l.ReadTimeout, 30*time.Second)
}

func (j *Journal) setDefaults() {
	if j.URL == "" {
		setDefault(&j.Replicas, 1)
	}
	setDefault(&j.Replicas, 3)
	setDefault(&j.StreamPrefix, "AUDITRELAY")
	setDefault(&j.MaxBytes, 10<<30)
	setDefault(&j.DeadLetterBytes, 1<<30)
	setDefault(&j.ReplayWindow, 72*time.Hour)
	setDefault(&j.DuplicateWindow, 10*time.Minute)
}

// hostname returns as much of the host's name as the origin of a trail may contain.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '+' {
			return '-'
		}
		return r
	}, name)
}
