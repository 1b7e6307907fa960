package journal

import "context"

// served are the configured sinks and environments, which a reload of the configuration changes.
type served struct {
	sinks []string
	// sources are the environments', without a bound on others.
	sources []string
}

// serves are the sinks and sources that the journal serves: none while it is only looked into.
func (j *Journal) serves() served {
	if now := j.served.Load(); now != nil {
		return *now
	}
	return served{}
}

// Register makes the journal keep from now on what a sink does not have. [Journal.Serve] and
// [Journal.Source] do it too, but tell of no error before others are changed.
func (j *Journal) Register(ctx context.Context, sink string) error { return j.register(ctx, sink) }

// Serve replaces the sinks and the sources that the journal was opened with. A sink that is gone
// keeps its position, and what it does not have is kept for it until it is retired, as after a
// start without it.
func (j *Journal) Serve(sinks, sources []string) {
	j.served.Store(&served{sinks, sources})
	j.decoded.Serve(len(sinks))
	j.budget.serve(len(sources) == 1)
	for _, sink := range sinks {
		j.metrics.overlap.WithLabelValues(sink)
	}
}

// serve says whether there is a single source from now on.
func (b *budget) serve(alone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone = alone
}
